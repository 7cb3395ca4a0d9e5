//! The image's build, followed as far as a machine without a container registry can.
//!
//! The build stage's `COPY` lines, filtered by `.dockerignore`, are laid out in a directory of their
//! own; cargo must find everything there. With `FENCEGATE_LONG=1` the stage's `RUN` is run too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::clients::stdout_of;
use crate::support::wait::long;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The instructions of each stage, continuation lines joined, comments off.
fn stages() -> Vec<Vec<(String, String)>> {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let mut stages: Vec<Vec<(String, String)>> = Vec::new();
    for line in text.replace("\\\n", " ").lines().filter(|line| !line.starts_with('#')) {
        let Some((word, rest)) = line.split_once(' ') else { continue };
        if word == "FROM" {
            stages.push(Vec::new());
        }
        let stage = stages.last_mut().expect("FROM comes first");
        stage.push((word.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    stages
}

fn values<'a>(stage: &'a [(String, String)], word: &'a str) -> impl Iterator<Item = &'a str> {
    stage.iter().filter(move |(have, _)| have == word).map(|(_, value)| value.as_str())
}

/// Whether `.dockerignore` (everything out, some paths back in) lets `path` into the build.
fn in_context(path: &Path) -> bool {
    let text = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    assert_eq!(lines.next(), Some("*"), "the test knows the form that begins with `*` only");
    lines.filter_map(|line| line.strip_prefix('!')).any(|kept| path.starts_with(kept))
}

/// Does the build stage's `COPY` lines.
fn lay_out(stage: &[(String, String)], to: &Path) {
    for copy in values(stage, "COPY") {
        let mut words: Vec<&str> = copy.split(' ').collect();
        let target = words.pop().expect("a COPY has a target");
        for source in words {
            assert!(in_context(Path::new(source)), ".dockerignore keeps out {source}");
            let into = target == "./" || target.ends_with('/');
            let name = Path::new(source).file_name().expect("a name");
            let target = if into { to.join(target).join(name) } else { to.join(target) };
            copy_all(&root().join(source), &target);
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            copy_all(&path, &to.join(path.file_name().expect("a name")));
        }
        return;
    }
    fs::create_dir_all(to.parent().expect("below the root")).unwrap();
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}

fn cargo(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).current_dir(dir);
    command
}

#[test]
fn the_image_builds_from_what_it_copies() {
    let stages = stages();
    let dir = TempDir::with_prefix("fencegate-image-").unwrap();
    lay_out(&stages[0], dir.path());
    let metadata = ["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"];
    stdout_of(&cargo(&metadata, dir.path()).output().unwrap());
    for run in values(&stages[0], "RUN") {
        assert!(dir.path().join(run).exists(), "RUN {run}: not copied");
        if long() {
            let mut build = Command::new(dir.path().join(run));
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image");
            stdout_of(&build.env("CARGO_TARGET_DIR", &target).output().unwrap());
            assert!(target.join("release/fencegate").exists());
        }
    }
}

#[test]
fn what_the_source_includes_is_copied_into_the_image() {
    let dir = TempDir::with_prefix("fencegate-image-").unwrap();
    lay_out(&stages()[0], dir.path());
    let mut left = vec![PathBuf::from("src")];
    while let Some(path) = left.pop() {
        if dir.path().join(&path).is_dir() {
            let entries = fs::read_dir(dir.path().join(&path)).unwrap();
            left.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
            continue;
        }
        // Unit tests may compare with pages and tables that are not shipped.
        if path.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let text = fs::read_to_string(dir.path().join(&path)).unwrap();
        for (at, _) in text.match_indices("include_str!(\"") {
            let name = text[at + "include_str!(\"".len()..].split('"').next().expect("a name");
            let included = dir.path().join(path.parent().expect("in src")).join(name);
            assert!(included.exists(), "{}: {name} is not copied", path.display());
        }
    }
}

#[test]
fn the_image_ships_what_make_release_builds() {
    let stages = stages();
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let recipe = makefile.split("\nrelease:\n").nth(1).and_then(|rest| rest.lines().next());
    let runs: Vec<&str> = values(&stages[0], "RUN").collect();
    assert_eq!(runs, [recipe.expect("a recipe").trim()]);
    let target = values(&stages[0], "ENV").find_map(|env| env.strip_prefix("CARGO_TARGET_DIR="));
    let built = PathBuf::from(target.expect("a target directory")).join("release/fencegate");
    let copied = values(&stages[1], "COPY").next().expect("the binary is copied");
    assert_eq!(copied, format!("--from=build {} /usr/local/bin/fencegate", built.display()));
    assert_eq!(values(&stages[1], "ENTRYPOINT").next(), Some("[\"/usr/local/bin/fencegate\"]"));
}

#[test]
fn the_image_is_built_by_the_stated_rust_and_does_not_run_as_root() {
    let stages = stages();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.expect("a rust-version").trim_matches('"');
    let from = values(&stages[0], "FROM").next().expect("a FROM");
    assert!(from.starts_with(&format!("rust:{version}-")), "{from}: Cargo.toml says {version}");
    let user = values(&stages[1], "USER").last().expect("a USER");
    assert!(user.parse::<u32>().is_ok_and(|uid| uid > 0), "USER {user}");
}
