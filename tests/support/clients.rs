//! Real client programs: curl that signs, boto3 snippets, awscli and others of the Python environment.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::process::{Process, clean_env};
use super::stores::{ACCESS_KEY, SECRET_KEY};

/// Where a program of the Python environment is that `make prereqs` installs.
pub fn venv(program: &str) -> PathBuf {
    let root = std::env::var_os("FENCEGATE_VENV").map(PathBuf::from).unwrap_or_else(|| {
        let home = PathBuf::from(std::env::var_os("HOME").expect("HOME is set"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        cache.unwrap_or_else(|| home.join(".cache")).join("fencegate/venv")
    });
    root.join("bin").join(program)
}

/// A command of the Python environment, set up to reach `endpoint` with the stores' keys.
///
/// The child sees the endpoint as `AWS_ENDPOINT_URL` too, which boto3 and awscli read.
pub fn client(program: &str, endpoint: &str) -> Command {
    let mut command = Command::new(venv(program));
    aws_env(clean_env(&mut command), endpoint);
    command
}

fn aws_env(command: &mut Command, endpoint: &str) {
    command
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", endpoint);
}

/// What every snippet begins with: `s3` (path style) and `client(token, **config)`, whose requests all carry the token.
const PRELUDE: &str = r#"
import os, sys, boto3
from botocore.config import Config
from botocore.exceptions import ClientError
def client(token=None, **config):
    config.setdefault("s3", {"addressing_style": "path"})
    made = boto3.client("s3", config=Config(**config))
    if token is not None:
        def add(request, **_):
            request.headers["Fencing-Token"] = str(token)
        made.meta.events.register("before-sign.s3", add)
    return made
s3 = client(os.environ.get("TOKEN"))
"#;

/// Runs Python code with boto3 against `endpoint`; `args` are `sys.argv[1:]`. The caller judges the exit status.
///
/// `token` is carried by the ready-made `s3`; `client(token)` makes others.
pub fn boto3(endpoint: &str, token: Option<u64>, code: &str, args: &[&str]) -> Output {
    let mut command = client("python", endpoint);
    if let Some(token) = token {
        command.env("TOKEN", token.to_string());
    }
    command.arg("-c").arg(format!("{PRELUDE}\n{code}")).args(args);
    command.output().expect("python of the environment runs; see `make prereqs`")
}

/// Starts what [`boto3`] runs, to be watched and signalled; it dies with the test process.
pub fn boto3_process(endpoint: &str, token: Option<u64>, code: &str, args: &[&str]) -> Process {
    let python = venv("python").to_str().expect("a path in UTF-8").to_owned();
    let code = format!("{PRELUDE}\n{code}");
    let args = [&["-u", "-c", &code], args].concat();
    Process::start("boto3", &python, &args, |command| {
        aws_env(command, endpoint);
        if let Some(token) = token {
            command.env("TOKEN", token.to_string());
        }
    })
}

/// Runs awscli v1 whose requests all carry a token, added by a plugin before it signs.
pub fn awscli_fenced(endpoint: &str, token: u64, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let plugin = "import os
def add(request, **_):
    request.headers['Fencing-Token'] = os.environ['TOKEN']
def awscli_initialize(cli):
    cli.register('before-sign.s3', add)
";
    std::fs::write(dir.path().join("fence.py"), plugin).unwrap();
    std::fs::write(dir.path().join("config"), "[plugins]\nfence = fence\n").unwrap();
    client("aws", endpoint)
        .args(args)
        .env("PYTHONPATH", dir.path())
        .env("AWS_CONFIG_FILE", dir.path().join("config"))
        .env("TOKEN", token.to_string())
        .output()
        .expect("aws of the environment runs; see `make prereqs`")
}

/// Runs awscli v1 against `endpoint`.
pub fn awscli(endpoint: &str, args: &[&str]) -> Output {
    client("aws", endpoint)
        .args(args)
        .output()
        .expect("aws of the environment runs; see `make prereqs`")
}

/// Stdout of a command that must have succeeded.
#[track_caller]
pub fn stdout_of(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// One request by curl, signed with the stores' keys (SigV4) unless [`Curl::unsigned`].
#[derive(Clone, Debug)]
pub struct Curl {
    method: &'static str,
    url: String,
    headers: Vec<String>,
    body: Option<Vec<u8>>,
    signed: bool,
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Of the final answer; 0 if there was none.
    pub status: u16,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The bytes of the body.
    pub body: Vec<u8>,
}

// === impl Curl ===

impl Curl {
    /// Any method.
    pub fn new(method: &'static str, url: &str) -> Curl {
        Curl { method, url: url.to_owned(), headers: Vec::new(), body: None, signed: true }
    }

    /// A GET.
    pub fn get(url: &str) -> Curl {
        Curl::new("GET", url)
    }

    /// A PUT; without a body it sends `Content-Length: 0`.
    pub fn put(url: &str) -> Curl {
        Curl::new("PUT", url)
    }

    /// A DELETE.
    pub fn delete(url: &str) -> Curl {
        Curl::new("DELETE", url)
    }

    /// Adds `Fencing-Token`.
    pub fn token(self, token: u64) -> Curl {
        self.header("Fencing-Token", &token.to_string())
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Curl {
        self.headers.push(format!("{name}: {value}"));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: &[u8]) -> Curl {
        self.body = Some(body.to_vec());
        self
    }

    /// Sets a JSON body; with its own `Content-Type` header.
    pub fn json(self, text: &str) -> Curl {
        self.body(text.as_bytes())
    }

    /// Leaves the signature off.
    pub fn unsigned(mut self) -> Curl {
        self.signed = false;
        self
    }

    /// Sends it. Panics if no complete answer came.
    #[track_caller]
    pub fn send(&self) -> Answer {
        self.try_send().unwrap_or_else(|| panic!("no answer: {} {}", self.method, self.url))
    }

    // curl 7.88 signs a removed header (`-H Expect:`) too, and a query only in the order of its names.

    /// Sends it; `None` if no complete answer came (refused, reset, time-out of 120 s).
    pub fn try_send(&self) -> Option<Answer> {
        let mut command = Command::new("curl");
        clean_env(&mut command).args(["-q", "-sS", "-i", "--path-as-is", "--max-time", "120"]);
        if self.signed {
            command.args(["--aws-sigv4", "aws:amz:us-east-1:s3"]);
            command.args(["--user", &format!("{ACCESS_KEY}:{SECRET_KEY}")]);
            command.args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        }
        for header in &self.headers {
            command.args(["-H", header]);
        }
        match self.method {
            "HEAD" => command.arg("--head"),
            method => command.args(["-X", method]),
        };
        // A PUT without a body is one with an empty body; `-H Content-Length: 0` would be signed.
        let sends = self.body.is_some() || matches!(self.method, "PUT" | "POST");
        let body = sends.then(|| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), self.body.as_deref().unwrap_or_default()).unwrap();
            file
        });
        if let Some(file) = &body {
            command.arg("--data-binary").arg(format!("@{}", file.path().display()));
            if !self
                .headers
                .iter()
                .any(|line| line.to_ascii_lowercase().starts_with("content-type:"))
            {
                command.args(["-H", "Content-Type: application/octet-stream"]);
            }
        }
        let output = command.arg(&self.url).output().expect("curl runs; see `make prereqs`");
        output.status.success().then(|| Answer::parse(&output.stdout))
    }
}

// === impl Answer ===

impl Answer {
    /// Splits what `curl -i` prints; interim answers are skipped.
    pub fn parse(mut bytes: &[u8]) -> Answer {
        loop {
            let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
            let end =
                end.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
            let mut answer = Answer::parse_head(&bytes[..end]);
            bytes = &bytes[end + 4..];
            if !(100..200).contains(&answer.status) {
                answer.body = bytes.to_vec();
                return answer;
            }
        }
    }

    /// Reads a status line and headers.
    pub fn parse_head(bytes: &[u8]) -> Answer {
        let head = String::from_utf8_lossy(bytes).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {head}"));
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Answer { status, headers, body: Vec::new() }
    }

    /// The first value of a header; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// `<Code>` of an S3 error.
    pub fn code(&self) -> Option<String> {
        let text = self.text();
        let from = text.find("<Code>")? + "<Code>".len();
        let to = text[from..].find("</Code>")? + from;
        Some(text[from..to].to_owned())
    }
}
