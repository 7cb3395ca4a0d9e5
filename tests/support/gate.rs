//! A real `fencegate serve` with a configuration of its own, and the command line against it.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::clients::{Answer, Curl, stdout_of};
use super::process::{Process, clean_env, free_port, wait_stopped};
use super::wait;

/// The rules of a gate that was given none.
const RULES: &str = r#"
[[rule]]
match = "wal/**"
resource = "wal/main"

[[rule]]
match = "public/**"
fence = "none"
"#;

/// The program under test; `FENCEGATE_TEST_BIN` names another one.
pub fn program() -> String {
    std::env::var("FENCEGATE_TEST_BIN")
        .unwrap_or_else(|_| env!("CARGO_BIN_EXE_fencegate").to_owned())
}

/// How to start a gate.
#[derive(Clone, Debug)]
pub struct Builder {
    upstream: String,
    kind: &'static str,
    assumptions: bool,
    proxy: String,
    store: String,
    lease: String,
    fence: String,
    admin: String,
    rules: String,
    env: Vec<(String, String)>,
    file: Option<String>,
    under: Vec<String>,
}

/// A running gate. Dropping it kills it.
pub struct Gate {
    dir: TempDir,
    proxy: SocketAddr,
    admin: SocketAddr,
    env: Vec<(String, String)>,
    under: Vec<String>,
    process: Process,
}

// === impl Builder ===

impl Builder {
    /// The store does not speak S3.
    pub fn rest(mut self) -> Builder {
        self.kind = "rest";
        self
    }

    /// Declares none of the assumptions, so that rules are `advisory` unless other lines say more.
    pub fn without_assumptions(mut self) -> Builder {
        self.assumptions = false;
        self
    }

    /// Adds lines under `[proxy]`.
    pub fn proxy(mut self, lines: &str) -> Builder {
        add(&mut self.proxy, lines);
        self
    }

    /// Adds lines under `[upstream]`.
    pub fn upstream(mut self, lines: &str) -> Builder {
        add(&mut self.store, lines);
        self
    }

    /// Adds lines under `[lease]`.
    pub fn lease(mut self, lines: &str) -> Builder {
        add(&mut self.lease, lines);
        self
    }

    /// Adds lines under `[fence]`.
    pub fn fence(mut self, lines: &str) -> Builder {
        add(&mut self.fence, lines);
        self
    }

    /// Adds lines under `[admin]`.
    pub fn admin(mut self, lines: &str) -> Builder {
        add(&mut self.admin, lines);
        self
    }

    /// Replaces the rules: whole `[[rule]]` tables, and any other table.
    pub fn rules(mut self, tables: &str) -> Builder {
        tables.clone_into(&mut self.rules);
        self
    }

    /// One rule for one bucket: everything in it belongs to `resource`.
    pub fn bucket(self, bucket: &str, resource: &str) -> Builder {
        self.rules(&format!("[[rule]]\nmatch = \"{bucket}/**\"\nresource = \"{resource}\"\n"))
    }

    /// Replaces the whole file; `{proxy}` and `{admin}` in it become the two addresses.
    pub fn file(mut self, text: &str) -> Builder {
        self.file = Some(text.to_owned());
        self
    }

    /// Sets a variable of the process. `FENCEGATE_BREAK` works in a `must-fail` build only.
    pub fn env(mut self, name: &str, value: &str) -> Builder {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it by way of another program, which becomes it: `["prlimit", "--nofile=64", "--"]`.
    pub fn under(mut self, command: &[&str]) -> Builder {
        self.under = command.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub fn start(self) -> Gate {
        let dir = TempDir::with_prefix("fencegate-gate-").unwrap();
        // A port that was free a moment ago may be taken by now; any other failure is final.
        for _ in 0..5 {
            let (proxy, admin) = (address(), address());
            fs::write(dir.path().join("fencegate.toml"), self.text(proxy, admin)).unwrap();
            let process = serve(dir.path(), &self.under, &self.env);
            if let Err(tail) = ready(&process, admin) {
                assert!(tail.to_lowercase().contains("in use"), "the gate does not start\n{tail}");
                continue;
            }
            return Gate { dir, proxy, admin, env: self.env, under: self.under, process };
        }
        panic!("no free ports after five attempts");
    }

    /// Runs it expecting it to refuse to start; gives its exit status and everything that it said.
    #[track_caller]
    pub fn start_refused(self) -> (ExitStatus, String) {
        let dir = TempDir::with_prefix("fencegate-gate-").unwrap();
        fs::write(dir.path().join("fencegate.toml"), self.text(address(), address())).unwrap();
        let process = serve(dir.path(), &self.under, &self.env);
        process.wait_end(wait::DEADLINE)
    }

    /// The configuration file.
    pub fn text(&self, proxy: SocketAddr, admin: SocketAddr) -> String {
        if let Some(file) = &self.file {
            return file
                .replace("{proxy}", &proxy.to_string())
                .replace("{admin}", &admin.to_string());
        }
        let mut text = format!("[proxy]\nlisten = \"{proxy}\"\n{}\n", self.proxy);
        write!(text, "[upstream]\nkind = \"{}\"\nurl = \"{}\"\n", self.kind, self.upstream)
            .unwrap();
        if self.assumptions {
            text.push_str("torn_uploads = \"discarded\"\nfinal_answers = true\n");
            text.push_str("linearizable = true\nsole_path = true\n");
        }
        write!(text, "{}\n[lease]\nbackend = \"embedded\"\n{}\n", self.store, self.lease).unwrap();
        write!(text, "[fence]\n{}\n[admin]\nlisten = \"{admin}\"\n{}\n", self.fence, self.admin)
            .unwrap();
        text.push_str(&self.rules);
        text
    }
}

fn add(to: &mut String, lines: &str) {
    to.push_str(lines);
    to.push('\n');
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

fn serve(dir: &Path, under: &[String], env: &[(String, String)]) -> Process {
    let config = dir.join("fencegate.toml");
    let (config, program) = (config.to_str().expect("a path in UTF-8"), program());
    let mut words: Vec<&str> = under.iter().map(String::as_str).collect();
    words.extend([program.as_str(), "serve", "--config", config]);
    Process::start("fencegate", words[0], &words[1..], |command| {
        command.current_dir(dir).envs(env.iter().map(|(name, value)| (name, value)));
    })
}

/// Waits until `/readyz` says 200; what the process wrote if it ended instead.
#[track_caller]
fn ready(process: &Process, admin: SocketAddr) -> Result<(), String> {
    let url = format!("http://{admin}/readyz");
    let outcome = wait::try_wait_for_some(wait::DEADLINE, || {
        if process.exited().is_some() {
            return Some(Err(process.tail()));
        }
        let answer = Curl::get(&url).unsigned().try_send()?;
        (answer.status == 200).then_some(Ok(()))
    });
    outcome.unwrap_or_else(|| panic!("{url} is not 200\n{}", process.tail()))
}

// === impl Gate ===

impl Gate {
    /// A gate in front of `upstream`: kind s3, every assumption declared, `wal/**` fenced as `wal/main`, `public/**` open.
    pub fn builder(upstream: &str) -> Builder {
        Builder {
            upstream: upstream.to_owned(),
            kind: "s3",
            assumptions: true,
            proxy: String::new(),
            store: String::new(),
            lease: String::new(),
            fence: String::new(),
            admin: String::new(),
            rules: RULES.to_owned(),
            env: Vec::new(),
            file: None,
            under: Vec::new(),
        }
    }

    /// `http://127.0.0.1:PORT`, for clients of the store.
    pub fn url(&self) -> String {
        format!("http://{}", self.proxy)
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.proxy
    }

    /// `http://127.0.0.1:PORT` of the lease API.
    pub fn admin(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Where the admin side listens.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The configuration file; write it and call [`Gate::sighup`] to reload.
    pub fn config_path(&self) -> PathBuf {
        self.dir.path().join("fencegate.toml")
    }

    /// The directory of its configuration and its database.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs `fencegate ARGS` against this server.
    pub fn cli(&self, args: &[&str]) -> Output {
        self.cli_command(args).output().unwrap()
    }

    /// The command of [`Gate::cli`], to be changed or started otherwise.
    pub fn cli_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        clean_env(&mut command)
            .args(args)
            .env("FENCEGATE_SERVER", self.admin())
            .current_dir(self.dir());
        command
    }

    /// Starts `fencegate ARGS` against this server and lets it run; `set_up` may change its environment.
    pub fn spawn(&self, args: &[&str], set_up: impl FnOnce(&mut Command)) -> Process {
        Process::start(args[0], &program(), args, |command| {
            command.env("FENCEGATE_SERVER", self.admin()).current_dir(self.dir());
            set_up(command);
        })
    }

    /// `lease acquire RESOURCE --ttl TTL`; the token.
    #[track_caller]
    pub fn acquire(&self, resource: &str, holder: &str, ttl: &str) -> u64 {
        let output = self.cli(&["lease", "acquire", resource, "--holder", holder, "--ttl", ttl]);
        stdout_of(&output).parse().expect("a token alone on stdout")
    }

    /// `lease release RESOURCE TOKEN`.
    #[track_caller]
    pub fn release(&self, resource: &str, token: u64) {
        stdout_of(&self.cli(&["lease", "release", resource, &token.to_string()]));
    }

    /// A takeover: releases `token` and acquires as `holder`; the new token.
    #[track_caller]
    pub fn hand_over(&self, resource: &str, token: u64, holder: &str) -> u64 {
        self.release(resource, token);
        self.acquire(resource, holder, "60s")
    }

    /// One call of the lease API with a JSON body.
    pub fn post(&self, path: &str, json: &str) -> Answer {
        let url = format!("{}{path}", self.admin());
        Curl::new("POST", &url)
            .unsigned()
            .header("Content-Type", "application/json")
            .json(json)
            .send()
    }

    /// One GET on the admin side.
    pub fn get(&self, path: &str) -> Answer {
        Curl::get(&format!("{}{path}", self.admin())).unsigned().send()
    }

    /// Every line that it has written since the last start.
    pub fn log(&self) -> Vec<String> {
        self.process.lines()
    }

    /// Waits for a line that contains every one of `parts`.
    #[track_caller]
    pub fn wait_log(&self, parts: &[&str]) -> String {
        self.process
            .wait_line(&parts.join(" and "), |line| parts.iter().all(|part| line.contains(part)))
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.process.pid().as_raw()
    }

    /// Asks it to stop; see [`Gate::wait_exit`].
    pub fn sigterm(&self) {
        self.process.signal(Signal::SIGTERM);
    }

    /// Asks it to stop, and waits until it has ended as it should.
    #[track_caller]
    pub fn stop(&self) {
        self.sigterm();
        let status = self.process.wait_exit(wait::DEADLINE);
        assert!(status.success(), "{status}\n{}", self.process.tail());
    }

    /// Kills it and waits until it is gone.
    pub fn sigkill(&self) {
        self.process.signal(Signal::SIGKILL);
        self.process.wait_exit(wait::DEADLINE);
    }

    /// Asks it to read its configuration again.
    pub fn sighup(&self) {
        self.process.signal(Signal::SIGHUP);
    }

    /// Stops it where it stands (SIGSTOP); returns when every thread has stopped.
    pub fn pause(&self) {
        self.process.signal(Signal::SIGSTOP);
        wait_stopped(self.process.pid());
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// Waits until it has ended.
    pub fn wait_exit(&self, deadline: Duration) -> ExitStatus {
        self.process.wait_exit(deadline)
    }

    /// Starts it the same way as it was, expecting it to refuse; its exit status and what it said.
    #[track_caller]
    pub fn restart_refused(&mut self) -> (ExitStatus, String) {
        self.sigkill();
        self.process = serve(self.dir.path(), &self.under, &self.env);
        self.process.wait_end(wait::DEADLINE)
    }

    /// Starts it again on the same addresses and files, killing it first if it still runs.
    #[track_caller]
    pub fn restart(&mut self) {
        self.sigkill();
        self.process = serve(self.dir.path(), &self.under, &self.env);
        ready(&self.process, self.admin).unwrap_or_else(|tail| panic!("no restart\n{tail}"));
    }
}
