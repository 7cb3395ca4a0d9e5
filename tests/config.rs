//! `fencegate check`, on the binary: what it prints, and how it exits.

use std::path::Path;
use std::process::{Command, Output};

fn check(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fencegate"))
        .arg("check")
        .args(args)
        .current_dir(dir)
        .env_remove("FENCEGATE_CONFIG")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config")
}

#[test]
fn a_good_file_exits_with_0_and_shows_each_rules_level_and_reasons() {
    let output = check(&examples(), &["--config", "s3-seaweedfs.toml"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for line in [
        "s3-seaweedfs.toml: ok",
        "rule 1: backups/{cluster}/** -> resource wal/{cluster}",
        "  level: drained",
        "  U1 declared upstream.sole_path = true: nothing else writes to this store",
        "  U3 profile  seaweedfs 4.48 discards uploads that end early",
        "  U5 given    one replica",
        "rule 3: public/** -> no fence",
        "note: a machine that is rolled back to a snapshot",
    ] {
        assert!(shown.lines().any(|shown| shown.starts_with(line)), "{line:?} in\n{shown}");
    }
    let output = check(&examples(), &[]);
    assert_eq!(output.status.code(), Some(0), "fencegate.toml is the default");
}

#[test]
fn a_bad_file_exits_with_2_and_names_each_fault_on_stderr() {
    let dir = tempfile::tempdir().unwrap();
    let bad = "[upstream]\nkind = \"s3\"\nurl = \"http://u:pw-of-mine@h\"\n[fence]\nreeds = 1\n";
    std::fs::write(dir.path().join("bad.toml"), bad).unwrap();
    let output = check(dir.path(), &["--config", "bad.toml"]);
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{shown}");
    assert!(shown.contains("bad.toml:3:1: `upstream.url` has credentials in it; "), "{shown}");
    assert!(
        shown.contains("bad.toml:5:1: unknown key `reeds` in `fence`; did you mean `reads`?"),
        "{shown}"
    );
    assert!(!shown.contains("pw-of-mine") && output.stdout.is_empty(), "{shown}");

    let output = check(dir.path(), &["--config", "bad.toml", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ok"], &report["faults"][0]["line"]), (&false.into(), &3.into()));

    let output = check(dir.path(), &[]);
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{shown}");
    assert!(
        shown.contains("fencegate.toml: ") && shown.contains("--config or FENCEGATE_CONFIG"),
        "{shown}"
    );
}

#[test]
fn the_printed_file_is_whole_and_checks_again() {
    let dir = tempfile::tempdir().unwrap();
    let text_in =
        "[upstream]\nkind = \"s3\"\nurl = \"http://h\"\n[admin]\ntokens = [\"pw-of-mine\"]\n";
    std::fs::write(dir.path().join("fencegate.toml"), text_in).unwrap();
    let output = check(dir.path(), &["--print"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        printed.contains("drain_wait = \"25s\"") && !printed.contains("pw-of-mine"),
        "{printed}"
    );
    std::fs::write(dir.path().join("again.toml"), &printed).unwrap();
    let output = check(dir.path(), &["--config", "again.toml", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], true);
}

/// The keys of a file, commented out or not, each as `[table] key` with its value and whether it is in force.
fn keys(file: &str) -> Vec<(String, String, bool)> {
    let mut table = String::new();
    let mut keys = Vec::new();
    for line in file.lines() {
        let code = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = code.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = format!("[{name}]");
        } else if let Some((key, value)) = code.split_once(" = ")
            && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            keys.push((format!("{table} {key}"), value.to_owned(), !line.starts_with('#')));
        }
    }
    keys
}

#[test]
fn the_reference_has_exactly_the_keys_of_the_commented_file_and_their_defaults() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/reference/configuration.md")).unwrap();
    let file = std::fs::read_to_string(root.join("config/fencegate.toml")).unwrap();
    let mut rows = std::collections::BTreeMap::new();
    let mut table = "";
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            table = title.trim_matches('`');
        } else if let Some((key, rest)) =
            line.strip_prefix("| `").and_then(|rest| rest.split_once("` | "))
        {
            rows.insert(format!("{table} {key}"), rest.split(" | ").next().unwrap().to_owned());
        }
    }
    let keys = keys(&file);
    for (key, value, in_force) in keys.iter().filter(|(key, ..)| !key.starts_with("[upstreams.")) {
        let row = rows.remove(key).unwrap_or_else(|| panic!("no row for {key}"));
        if *in_force && row != "required" {
            assert_eq!(row, format!("`{value}`"), "default of {key}");
        }
    }
    assert!(rows.is_empty(), "keys that the file has not: {rows:?}");
    assert!(keys.len() >= 50, "{}", keys.len());
}

#[test]
fn a_live_check_tells_a_store_that_answers_from_one_that_does_not() {
    use crate::support::gate::Gate;
    use crate::support::raw_store::RawStore;
    let store = RawStore::start();
    let gate = Gate::builder(&store.url()).start();
    let config = gate.config_path().display().to_string();
    let output = check(gate.dir(), &["--config", &config, "--live"]);
    let seen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{seen}");
    assert!(seen.contains("upstream: takes connections"), "{seen}");
    assert!(seen.contains(&format!("in use by process {} on ", gate.pid())), "{seen}");
    drop(gate);
    let dir = tempfile::tempdir().unwrap();
    // Nobody listens on port 1 of this machine.
    let file = "[upstream]\nkind = \"s3\"\nurl = \"http://127.0.0.1:1\"\n[lease]\npath = \"no/where.redb\"\n";
    std::fs::write(dir.path().join("fencegate.toml"), file).unwrap();
    let output = check(dir.path(), &["--live", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let oks: Vec<_> =
        report["live"].as_array().unwrap().iter().map(|look| look["ok"].as_bool()).collect();
    assert_eq!(oks, [Some(false), Some(false)], "{report}");
}
