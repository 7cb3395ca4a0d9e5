//! Real programs under `run` and `with`, unmodified, before a store that checks their signatures.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::run::{number, parent_of};
use crate::support::clients::{client, stdout_of, venv};
use crate::support::gate::Gate;
use crate::support::process::{clean_env, free_port};
use crate::support::raw_store::RawStore;
use crate::support::stores::{self, ACCESS_KEY, SECRET_KEY, Store};
use crate::support::wait::{DEADLINE, wait_for};

/// A gate before SeaweedFS, with everything in a new bucket fenced as `resource`. `None` if stores are skipped.
fn gate(resource: &str) -> Option<(&'static Store, Gate, String)> {
    let store = stores::seaweedfs()?;
    let bucket = store.bucket("wrap");
    let gate = Gate::builder(&store.url).bucket(&bucket, resource).start();
    Some((store, gate, bucket))
}

fn keys(command: &mut Command) -> &mut Command {
    command
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .env("AWS_DEFAULT_REGION", "us-east-1")
}

/// `fencegate ARGS` to its end, with the store's keys.
fn fencegate(gate: &Gate, args: &[&str]) -> Output {
    keys(&mut gate.cli_command(args)).output().unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

fn path(program: &str) -> String {
    venv(program).to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn boto3_puts_gets_and_uploads_in_parts() {
    let Some((store, gate, bucket)) = gate("r") else { return };
    let code = r#"
import boto3, io, sys
from botocore.config import Config
bucket = sys.argv[1]
s3 = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
s3.put_object(Bucket=bucket, Key="small", Body=b"small", Metadata={"one": "two"})
s3.upload_fileobj(io.BytesIO(b"x" * (20 << 20)), bucket, "d/large")
s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "small"})
assert s3.get_object(Bucket=bucket, Key="small")["Body"].read() == b"small"
assert s3.head_object(Bucket=bucket, Key="d/large")["ContentLength"] == 20 << 20
s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "copy"}]})
print("done")
"#;
    let run = ["run", "r", "--env", "AWS_ENDPOINT_URL={proxy}", "--", &path("python"), "-c", code];
    let output = fencegate(&gate, &[&run[..], &[&bucket]].concat());
    assert_eq!(stdout_of(&output), "done");
    assert_eq!(store.object(&bucket, "small").as_deref(), Some(&b"small"[..]));
    assert_eq!(store.object(&bucket, "d/large").map(|body| body.len()), Some(20 << 20));
    assert_eq!(store.object(&bucket, "copy"), None);
    // The same without a lease: it is the token that let it pass.
    let bare = client("python", &gate.url()).args(["-c", code, &bucket]).output().unwrap();
    assert!(said(&bare).contains("MissingFencingToken"), "{}", said(&bare));
}

#[test]
fn restic_backs_up_and_prunes_and_ends_with_its_lease() {
    let Some((_, gate, bucket)) = gate("r") else { return };
    let repository = format!("RESTIC_REPOSITORY=s3:{{proxy}}/{bucket}/repo");
    let run = ["run", "r", "--ttl", "6s", "--wait", "60s", "--env", &repository];
    let run = [&run[..], &["--env", "RESTIC_PASSWORD=p", "--env", "HOME=.", "--"]].concat();
    let restic = |args: &[&str]| {
        let output = fencegate(&gate, &[&run[..], &["restic"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    };
    fs::write(gate.dir().join("data"), b"precious").unwrap();
    restic(&["init"]);
    restic(&["backup", "data"]);
    restic(&["backup", "data"]);
    restic(&["forget", "--keep-last", "1", "--prune"]);
    // A backup that goes on while the lease is taken away. restic retries a refusal for ever; run ends it.
    let endless = "echo main=$$; (echo x; cat fifo) | restic backup --stdin";
    nix::unistd::mkfifo(&gate.dir().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let args = [&run[..], &["sh", "-c", endless]].concat();
    let process = gate.spawn(&args, |command| {
        keys(command);
    });
    number(&process, "main");
    gate.cli(&["fence", "bump", "r"]);
    assert_eq!(process.wait_exit(DEADLINE).code(), Some(124), "{}", process.tail());
    restic(&["unlock"]);
    restic(&["check"]);
}

/// T4.
#[test]
fn a_demoted_primary_archives_nothing_and_its_log_says_why() {
    let Some((store, gate, bucket)) = gate("wal/main") else { return };
    let segment = "000000010000000000000001";
    let hold = |node: &str| {
        fs::create_dir(gate.dir().join(node)).unwrap();
        fs::write(gate.dir().join(node).join(segment), node.repeat(16 << 20)).unwrap();
        let file = format!("{node}/token");
        let args = ["hold", "wal/main", "--ttl", "3s", "--wait", "60s", "--token-file", &file];
        let holding = gate.spawn(&args, |_| {});
        holding.wait_line("holding", |line| line.contains("holding wal/main"));
        holding
    };
    let archive = |node: &str| {
        let (file, segment) = (format!("{node}/token"), format!("{node}/{segment}"));
        let with = ["with", "--token-file", &file, "--env", "AWS_ENDPOINT_URL={proxy}", "--"];
        let archiver = path("barman-cloud-wal-archive");
        let target = format!("s3://{bucket}");
        fencegate(&gate, &[&with[..], &[&archiver, &target, "main", &segment]].concat())
    };
    let old = hold("a");
    // Paused, and past its lease: it does not know that another one is primary.
    old.signal(Signal::SIGSTOP);
    let _new = hold("b");
    assert!(archive("b").status.success());
    let refused = archive("a");
    assert_eq!(refused.status.code(), Some(4), "the archiver's own: {}", said(&refused));
    assert!(said(&refused).contains("StaleFencingToken"), "{}", said(&refused));
    assert!(said(&refused).contains("This writer has lost its lease"), "{}", said(&refused));
    let key = format!("main/wals/0000000100000000/{segment}");
    assert!(store.object(&bucket, &key).is_some_and(|body| body.iter().all(|byte| *byte == b'b')));
    // Once it knows, the archiver is not even started.
    old.signal(Signal::SIGCONT);
    assert_eq!(old.wait_exit(DEADLINE).code(), Some(1));
    let refused = archive("a");
    assert_eq!(refused.status.code(), Some(124));
    assert!(said(&refused).contains("the lease is lost"), "{}", said(&refused));
}

/// T9.
#[test]
fn of_two_litestreams_the_replica_is_the_second_ones() {
    let Some((store, gate, bucket)) = gate("ls") else { return };
    let litestream = |node: &str, ttl: &str| {
        let (dir, port) = (gate.dir().join(node), free_port());
        fs::create_dir(&dir).unwrap();
        config(&dir, "replicate.yml", &bucket, &format!("http://127.0.0.1:{port}"));
        let (program, listen) = (path("litestream"), format!("127.0.0.1:{port}"));
        let script = format!(
            "cd {node}; {program} restore -config replicate.yml -if-replica-exists -o db ./db && {} && echo main=$$ && exec {program} replicate -config replicate.yml",
            sql("db", "create table if not exists t (x)"),
        );
        let args = ["run", "ls", "--ttl", ttl, "--wait", "60s", "--listen", &listen];
        gate.spawn(&[&args[..], &["--", "sh", "-c", &script]].concat(), |command| {
            keys(command);
        })
    };
    // Straight from the store, past the gate.
    config(gate.dir(), "restore.yml", &bucket, &store.url);
    let replica = || {
        let target = gate.dir().join("restored");
        let _ = fs::remove_file(&target);
        let mut restore = Command::new(venv("litestream"));
        keys(clean_env(&mut restore)).current_dir(gate.dir());
        let args = ["restore", "-config", "restore.yml", "-o", "restored", "./db"];
        restore.args(args).output().unwrap().status.success().then(|| rows(&target))?
    };
    let insert = |node: &str, row: &str| {
        let command = sql("db", &format!("insert into t values ('{row}')"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(gate.dir().join(node));
        stdout_of(&shell.output().unwrap());
    };
    let replicated = |want: &[&str]| {
        wait_for(&format!("{want:?} in the replica"), DEADLINE, || {
            replica().is_some_and(|rows| rows == want)
        });
    };
    let a = litestream("a", "4s");
    let main = number(&a, "main");
    insert("a", "a1");
    replicated(&["a1"]);
    let guard = parent_of(main);
    let all = [a.pid().as_raw(), guard, main];
    let signal = |signal| all.map(|pid| kill(Pid::from_raw(pid), signal).unwrap());
    signal(Signal::SIGSTOP);
    insert("a", "a2");
    let b = litestream("b", "20s");
    number(&b, "main");
    insert("b", "b1");
    replicated(&["a1", "b1"]);
    signal(Signal::SIGCONT);
    assert_eq!(a.wait_exit(DEADLINE).code(), Some(124), "{}", a.tail());
    insert("b", "b2");
    replicated(&["a1", "b1", "b2"]);
}

fn config(dir: &Path, name: &str, bucket: &str, endpoint: &str) {
    let text = format!(
        "dbs:\n  - path: ./db\n    replica:\n      type: s3\n      bucket: {bucket}\n      path: ls\n      region: us-east-1\n      endpoint: {endpoint}\n      force-path-style: true\n      sync-interval: 100ms\n"
    );
    fs::write(dir.join(name), text).unwrap();
}

/// A shell command that does something to a database.
fn sql(file: &str, statement: &str) -> String {
    let python = path("python");
    format!(
        "{python} -c \"import sqlite3; c = sqlite3.connect('{file}', timeout=20); c.execute('pragma journal_mode=wal'); c.execute(\\\"{statement}\\\"); c.commit()\""
    )
}

/// The rows of a database that is whole.
fn rows(file: &Path) -> Option<Vec<String>> {
    let code = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nassert c.execute('pragma integrity_check').fetchone() == ('ok',)\nfor row in c.execute('select x from t order by x'): print(row[0])";
    let output = Command::new(venv("python")).args(["-c", code]).arg(file).output().unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// T8, without the lock of Terraform's own.
#[test]
fn terraform_applies_under_a_lease_and_a_stale_apply_leaves_the_state_alone() {
    if Command::new("terraform").arg("version").output().is_err() {
        eprintln!("SKIPPED: there is no terraform on this machine");
        return;
    }
    let store = RawStore::start();
    let rules = "[[rule]]\nmatch = \"state/{env}\"\nresource = \"state/{env}\"\n";
    let gate = Gate::builder(&store.url()).rest().rules(rules).start();
    let main = |value: &str| {
        let text = format!(
            "terraform {{\n  backend \"http\" {{}}\n}}\nresource \"terraform_data\" \"x\" {{\n  input = \"{value}\"\n}}\n"
        );
        fs::write(gate.dir().join("main.tf"), text).unwrap();
    };
    let under = |how: &[&str], script: &str| {
        let env = ["--env", "TF_HTTP_ADDRESS={proxy}/state/prod", "--env", "TF_IN_AUTOMATION=1"];
        gate.cli(
            &[how, &env, &["--env", "CHECKPOINT_DISABLE=1", "--", "sh", "-c", script]].concat(),
        )
    };
    let apply = "terraform init -input=false -no-color -reconfigure && terraform apply -auto-approve -input=false -no-color";
    main("first");
    let first = under(&["run", "state/prod"], apply);
    assert!(first.status.success(), "{}", said(&first));
    let old = gate.acquire("state/prod", "old", "60s");
    gate.release("state/prod", old);
    main("second");
    let second = under(&["run", "state/prod"], apply);
    assert!(second.status.success(), "{}", said(&second));
    let state = store.object("/state/prod").expect("a state");
    assert!(String::from_utf8_lossy(&state).contains("second"));
    main("stale");
    let stale = under(&["with", "--token", &old.to_string()], apply);
    assert_eq!(stale.status.code(), Some(1), "{}", said(&stale));
    assert!(said(&stale).contains("412"), "{}", said(&stale));
    assert_eq!(store.object("/state/prod").expect("a state"), state);
}
