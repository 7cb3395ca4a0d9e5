//! Completions that a real shell understands, and manual pages.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::support::clients::stdout_of;
use crate::support::gate::program;

fn fencegate(args: &[&str]) -> std::process::Output {
    Command::new(program()).args(args).output().unwrap()
}

/// What bash offers after these words; the last one is being written.
fn offered(words: &[&str]) -> Vec<String> {
    let script = r#"
source <("$0" completions bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_fencegate fencegate "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;
    let output =
        Command::new("bash").arg("-c").arg(script).arg(program()).args(words).output().unwrap();
    stdout_of(&output).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    assert_eq!(offered(&["fencegate", "stat"]), ["status"]);
    assert_eq!(offered(&["fencegate", "lease", "acq"]), ["acquire"]);
    assert_eq!(offered(&["fencegate", "lease", "acquire", "--dr"]), ["--drain"]);
    let all = offered(&["fencegate", ""]);
    assert!(all.iter().any(|word| word == "serve"), "{all:?}");
    assert!(
        !all.iter().any(|word| word.starts_with("__")),
        "what the program calls itself: {all:?}"
    );
}

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout_of(&fencegate(&["completions", shell]));
        for word in ["acquire", "request-id", "watch"] {
            assert!(script.contains(word), "{word} for {shell}");
        }
    }
    assert_eq!(fencegate(&["completions", "tcsh"]).status.code(), Some(2));
    assert_eq!(fencegate(&["completions"]).status.code(), Some(2));
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = TempDir::with_prefix("fencegate-man-").unwrap();
    let to = dir.path().join("new/man1");
    stdout_of(&fencegate(&["completions", "--man", to.to_str().unwrap()]));
    let read =
        |page: &str| fs::read_to_string(to.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
    for (page, says) in [
        ("fencegate.1", "fencing proxy"),
        ("fencegate-serve.1", "SIGHUP"),
        ("fencegate-lease-acquire.1", "request\\-id"),
        ("fencegate-status.1", "attention"),
    ] {
        let text = read(page);
        assert!(text.contains(".TH ") && text.contains(says), "{says} in {page}:\n{text}");
    }
    let pages = fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name());
    let hidden: Vec<_> = pages.filter(|name| name.to_string_lossy().contains("__")).collect();
    assert!(hidden.is_empty(), "{hidden:?}");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(fencegate(&["completions", "--man", file.to_str().unwrap()]).status.code(), Some(1));
}
