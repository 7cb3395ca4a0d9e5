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

#[test]
fn the_reference_speaks_of_every_key_of_the_commented_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/reference/configuration.md")).unwrap();
    let file = std::fs::read_to_string(root.join("config/fencegate.toml")).unwrap();
    let mut table = String::new();
    let mut keys = 0;
    for line in file.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            table = name.trim_matches(['[', ']']).to_owned();
            assert!(page.contains(&format!("[{table}]")), "[{table}]");
            continue;
        }
        let Some((key, value)) = line.split_once(" = ") else { continue };
        if !key.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            continue;
        }
        // Each key is a row of the section of its table, with the default as the file has it.
        let start = page
            .find(&format!("## `[{table}]`"))
            .or_else(|| page.find(&format!("## `[[{table}]]`")));
        let Some(start) = start else {
            assert_eq!(table, "upstreams.state");
            continue;
        };
        let section = page[start + 2..].split("\n## ").next().unwrap();
        let row = section.lines().find(|row| row.starts_with(&format!("| `{key}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {key} of [{table}]"));
        let is_default = file.lines().any(|line| line == format!("{key} = {value}"));
        if is_default && !matches!(key, "kind" | "url") {
            assert!(
                row.contains(&format!("| `{value}` |")),
                "default of {key} of [{table}]: {value}"
            );
        }
        keys += 1;
    }
    assert!(keys > 50, "{keys}");
}
