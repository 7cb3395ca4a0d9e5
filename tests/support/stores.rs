//! Real S3 stores, each started once per test process, on the first use.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::clients::{Curl, venv};
use super::process::{Process, free_port, lasting_dir};
use super::wait;

/// The documented example pair; every store here is given it.
pub const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
/// Its secret.
pub const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// A running store.
pub struct Store {
    /// Also the name of its profile in fencegate's configuration.
    pub name: &'static str,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    process: Process,
    dir: PathBuf,
}

// === impl Store ===

impl Store {
    /// A new, empty bucket whose name begins with `prefix`.
    pub fn bucket(&self, prefix: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nth = COUNT.fetch_add(1, Ordering::Relaxed);
        let bucket = format!("{prefix}-{}-{nth}", std::process::id());
        let answer = Curl::put(&format!("{}/{bucket}", self.url)).send();
        assert_eq!(answer.status, 200, "{}: create bucket {bucket}: {}", self.name, answer.text());
        bucket
    }

    /// The bytes of an object, straight from the store; `None` if it does not exist.
    pub fn object(&self, bucket: &str, key: &str) -> Option<Vec<u8>> {
        let answer = Curl::get(&format!("{}/{bucket}/{key}", self.url)).send();
        match answer.status {
            200 => Some(answer.body),
            404 => None,
            _ => panic!("{}: get {bucket}/{key}: {answer:?}", self.name),
        }
    }

    /// Puts an object straight into the store.
    pub fn put_object(&self, bucket: &str, key: &str, body: &[u8]) {
        let answer = Curl::put(&format!("{}/{bucket}/{key}", self.url)).body(body).send();
        assert_eq!(answer.status, 200, "{}: put {bucket}/{key}: {answer:?}", self.name);
    }

    /// The directory that it keeps its data in.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// What it wrote, for a failure's message.
    pub fn tail(&self) -> String {
        self.process.tail()
    }
}

/// SeaweedFS: checks signatures, honours conditions, keeps versions. `None` only if stores are skipped.
pub fn seaweedfs() -> Option<&'static Store> {
    static STORE: OnceLock<Option<Store>> = OnceLock::new();
    STORE.get_or_init(start_seaweedfs).as_ref()
}

/// moto: no signature check, most conditions.
pub fn moto() -> Option<&'static Store> {
    static STORE: OnceLock<Option<Store>> = OnceLock::new();
    let start = || {
        let port = free_port().to_string();
        let store = start("moto", "moto_server", &["-H", "127.0.0.1", "-p", &port], &[], &port)?;
        store.ready("/moto-api/", |status| status == 200);
        Some(store)
    };
    STORE.get_or_init(start).as_ref()
}

/// nanio: checks signatures, ignores every condition.
pub fn nanio() -> Option<&'static Store> {
    static STORE: OnceLock<Option<Store>> = OnceLock::new();
    let start = || {
        let port = free_port().to_string();
        let args = [
            "serve",
            "--data-dir",
            "data",
            "--host",
            "127.0.0.1",
            "--port",
            &port,
            "--no-access-log",
        ];
        let keys = [("NANIO_ACCESS_KEY", ACCESS_KEY), ("NANIO_SECRET_KEY", SECRET_KEY)];
        let store = start("nanio", "nanio", &args, &keys, &port)?;
        store.ready("/", |status| status != 0);
        Some(store)
    };
    STORE.get_or_init(start).as_ref()
}

/// `rclone serve s3`: checks signatures strictly, takes session tokens, refuses chunked uploads.
pub fn rclone() -> Option<&'static Store> {
    static STORE: OnceLock<Option<Store>> = OnceLock::new();
    let start = || {
        let port = free_port().to_string();
        let address = format!("127.0.0.1:{port}");
        let keys = format!("{ACCESS_KEY},{SECRET_KEY}");
        let args = [
            "--config",
            "/dev/null",
            "serve",
            "s3",
            "--addr",
            &address,
            "--auth-key",
            &keys,
            "--vfs-cache-mode",
            "off",
            "data",
        ];
        let store = start("rclone", "rclone", &args, &[], &port)?;
        store.ready("/", |status| status != 0);
        Some(store)
    };
    STORE.get_or_init(start).as_ref()
}

fn start_seaweedfs() -> Option<Store> {
    let config = format!(
        r#"{{"identities":[{{"name":"admin","credentials":[{{"accessKey":"{ACCESS_KEY}","secretKey":"{SECRET_KEY}"}}],"actions":["Admin","Read","Write","List","Tagging"]}}]}}"#
    );
    let s3 = free_port().to_string();
    // Every port is given, gRPC ones too: their default is port + 10000, which may be taken.
    let ports = [
        ("-s3.port", s3.clone()),
        ("-s3.port.grpc", free_port().to_string()),
        ("-master.port", free_port().to_string()),
        ("-master.port.grpc", free_port().to_string()),
        ("-volume.port", free_port().to_string()),
        ("-volume.port.grpc", free_port().to_string()),
        ("-filer.port", free_port().to_string()),
        ("-filer.port.grpc", free_port().to_string()),
        ("-s3.port.iceberg", "0".to_owned()),
        ("-s3.port.lance", "0".to_owned()),
    ];
    let mut args: Vec<String> = [
        "server",
        "-dir=data",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        // Each bucket takes several volumes at once; with few, a later bucket answers 500 for ever.
        "-volume.max=300",
        "-master.volumeSizeLimitMB=64",
        "-master.telemetry=false",
        "-s3",
        "-s3.config=s3.json",
        "-s3.domainName=s3.test",
        "-s3.localSocket=s3.sock",
        "-filer.localSocket=filer.sock",
    ]
    .map(str::to_owned)
    .to_vec();
    args.extend(ports.iter().map(|(flag, port)| format!("{flag}={port}")));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let store = start_with("seaweedfs", "weed", &args, &[], &s3, &[("s3.json", &config)])?;
    store.ready("/healthz", |status| status == 200);
    Some(store)
}

fn start(
    name: &'static str,
    program: &str,
    args: &[&str],
    env: &[(&str, &str)],
    port: &str,
) -> Option<Store> {
    start_with(name, program, args, env, port, &[])
}

fn start_with(
    name: &'static str,
    program: &str,
    args: &[&str],
    env: &[(&str, &str)],
    port: &str,
    files: &[(&str, &str)],
) -> Option<Store> {
    let program = venv(program);
    if !program.exists() {
        if std::env::var_os("FENCEGATE_SKIP_STORES").is_some_and(|value| value == "1") {
            eprintln!("SKIPPED: {name} is not installed and FENCEGATE_SKIP_STORES=1");
            return None;
        }
        panic!("{name}: {} is missing; run `make prereqs`", program.display());
    }
    let dir = lasting_dir("fencegate-store-");
    fs::create_dir(dir.join("data")).unwrap();
    for (file, text) in files {
        fs::write(dir.join(file), text).unwrap();
    }
    let program = program.to_str().expect("a path in UTF-8").to_owned();
    let process = Process::start(name, &program, args, |command| {
        command.current_dir(&dir).envs(env.iter().copied());
    });
    Some(Store { name, url: format!("http://127.0.0.1:{port}"), process, dir })
}

impl Store {
    fn ready(&self, path: &str, is_ready: impl Fn(u16) -> bool) {
        let ready = wait::try_wait_for_some(Duration::from_secs(90), || {
            if let Some(status) = self.process.exited() {
                panic!("{} ended: {status}\n{}", self.name, self.process.tail());
            }
            let answer = Curl::get(&format!("{}{path}", self.url)).unsigned().try_send();
            answer.is_some_and(|answer| is_ready(answer.status)).then_some(())
        });
        assert!(ready.is_some(), "{} is not ready\n{}", self.name, self.process.tail());
    }
}
