//! Child processes that never outlive the test process, their output, and free ports.
//!
//! `setpriv --pdeathsig` asks the kernel to kill the child when the *thread* that started it ends,
//! and then becomes the program itself, so its pid is the program's. Hence one thread that never
//! ends starts all of them: a test's own thread ends with its test.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::wait;

/// Variables that point clients and servers at this machine's certificates or accounts.
const FOREIGN: &[&str] = &[
    "AWS_CA_BUNDLE",
    "AWS_PROFILE",
    "AWS_SESSION_TOKEN",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "FENCEGATE_CONFIG",
    "FENCEGATE_LOG",
    "FENCEGATE_SERVER",
    "FENCEGATE_TOKEN",
    "FENCING_TOKEN",
];

/// Takes off what the environment of a developer's machine would change.
pub fn clean_env(command: &mut Command) -> &mut Command {
    for name in FOREIGN {
        command.env_remove(name);
    }
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
    {
        command.env_remove(name);
    }
    command
        .env("NO_PROXY", "*")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_CONFIG_FILE", "/nonexistent/config")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials")
}

/// A running child and the lines that it wrote to stdout and stderr.
pub struct Process {
    name: String,
    child: Mutex<Child>,
    pid: Pid,
    lines: Arc<Lines>,
    /// What reads its stdout and its stderr.
    readers: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct Lines {
    all: Mutex<Vec<String>>,
    more: Condvar,
}

// === impl Process ===

impl Process {
    /// Starts `program` with `args`; `set_up` may change its environment and directory.
    pub fn start(
        name: &str,
        program: &str,
        args: &[&str],
        set_up: impl FnOnce(&mut Command),
    ) -> Process {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", program]).args(args);
        clean_env(&mut command);
        set_up(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(command)
            .unwrap_or_else(|error| panic!("{name}: cannot start {program}: {error}"));
        let lines = Arc::new(Lines::default());
        let readers = vec![
            follow(child.stdout.take().expect("piped above"), &lines),
            follow(child.stderr.take().expect("piped above"), &lines),
        ];
        let pid = Pid::from_raw(child.id().try_into().expect("a pid fits"));
        Process {
            name: name.to_owned(),
            child: Mutex::new(child),
            pid,
            lines,
            readers: Mutex::new(readers),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal; nothing happens if the process has been waited for.
    pub fn signal(&self, signal: Signal) {
        let mut child = self.child.lock().unwrap();
        if matches!(child.try_wait(), Ok(None)) {
            kill(self.pid, signal).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
    }

    /// Its exit status, if it has ended.
    pub fn exited(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().try_wait().unwrap()
    }

    /// Waits until it ends.
    pub fn wait_exit(&self, deadline: Duration) -> ExitStatus {
        wait::try_wait_for_some(deadline, || self.exited()).unwrap_or_else(|| {
            panic!("{} did not end within {deadline:?}\n{}", self.name, self.tail())
        })
    }

    /// Waits until it ends and all that it wrote has been read.
    pub fn wait_end(&self, deadline: Duration) -> (ExitStatus, String) {
        let status = self.wait_exit(deadline);
        for reader in self.readers.lock().unwrap().drain(..) {
            reader.join().unwrap();
        }
        (status, self.lines().join("\n"))
    }

    /// Every line so far, stdout and stderr mixed in the order read.
    pub fn lines(&self) -> Vec<String> {
        self.lines.all.lock().unwrap().clone()
    }

    /// Waits for a line, already written or still to come, for which `wanted` holds.
    pub fn wait_line(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + wait::DEADLINE;
        let mut all = self.lines.all.lock().unwrap();
        let mut seen = 0;
        loop {
            if let Some(line) = all[seen..].iter().find(|line| wanted(line)) {
                return line.clone();
            }
            seen = all.len();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(all);
                panic!("{}: no line with {what}\n{}", self.name, self.tail());
            }
            all = self.lines.more.wait_timeout(all, left).unwrap().0;
        }
    }

    /// The last lines, for a failure's message.
    pub fn tail(&self) -> String {
        let lines = self.lines();
        let from = lines.len().saturating_sub(30);
        format!("--- last lines of {}\n{}\n---", self.name, lines[from..].join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        child.kill().ok();
        child.wait().ok();
    }
}

/// Waits until every thread of a process has stopped. SIGSTOP only asks: what was running runs on for a moment.
pub fn wait_stopped(pid: Pid) {
    let stopped = |task: std::path::PathBuf| {
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    wait::wait_for(&format!("{pid} is stopped"), wait::DEADLINE, || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it exists");
        tasks.flatten().all(|task| stopped(task.path()))
    });
}

/// Spawns on the one thread that never ends.
fn spawn(command: Command) -> std::io::Result<Child> {
    type Order = (Command, Sender<std::io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                reply.send(command.spawn()).ok();
            }
        });
        Mutex::new(orders)
    });
    let (reply, answer) = channel();
    spawner.lock().unwrap().send((command, reply)).expect("the spawner never ends");
    answer.recv().expect("the spawner answers every order")
}

/// A directory that is removed when the test process ends, whatever way: statics are never dropped.
pub fn lasting_dir(prefix: &str) -> PathBuf {
    static JANITOR: OnceLock<Mutex<Child>> = OnceLock::new();
    let dir = TempDir::with_prefix(prefix).unwrap().keep();
    let janitor = JANITOR.get_or_init(|| {
        // Its input ends when this process does; then the servers, killed meanwhile, write no more.
        let script =
            "while read -r dir; do set -- \"$@\" \"$dir\"; done; sleep 1; rm -rf -- \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null());
        Mutex::new(command.stderr(Stdio::null()).process_group(0).spawn().unwrap())
    });
    let mut janitor = janitor.lock().unwrap();
    writeln!(janitor.stdin.as_mut().expect("piped above"), "{}", dir.display()).unwrap();
    dir
}

fn follow(stream: impl Read + Send + 'static, lines: &Arc<Lines>) -> thread::JoinHandle<()> {
    let lines = Arc::clone(lines);
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            lines.all.lock().unwrap().push(String::from_utf8_lossy(&line).into_owned());
            lines.more.notify_all();
        }
    })
}

/// A port on 127.0.0.1 that is free now and that no other caller in this process got.
///
/// Below the kernel's ephemeral range, so that no outgoing connection takes it meanwhile.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    const FIRST: u32 = 15_000;
    const COUNT: u32 = 17_000;
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + start.wrapping_add(step) % COUNT).expect("in range");
        let fresh = GIVEN.lock().unwrap().get_or_insert_default().insert(port);
        if fresh && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
