//! The README and the docs are true where a machine can tell: links lead somewhere, commands exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::gate::program;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    let mut left = vec![root().join("docs")];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// Text outside code blocks, and the lines inside those marked as shell (` ```sh `, ` ```console `).
fn split(text: &str) -> (String, Vec<(usize, String)>) {
    let (mut prose, mut shell) = (String::new(), Vec::new());
    let mut fence = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &fence) {
            (Some(language), None) => fence = Some(language.trim().to_owned()),
            (Some(_), Some(_)) => fence = None,
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
            (None, Some(language)) => {
                // In a console's transcript the rest is what the commands printed.
                let typed = match language.as_str() {
                    "console" => line.trim_start().starts_with("$ "),
                    language => matches!(language, "sh" | "bash"),
                };
                if typed {
                    shell.push((number + 1, line.to_owned()));
                }
            }
        }
    }
    (prose, shell)
}

/// The code blocks marked ` ```toml ` that are whole configurations.
fn configurations(text: &str) -> Vec<String> {
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .filter(|block| block.contains("[upstream]") && block.contains("[[rule]]"))
        .map(str::to_owned)
        .collect()
}

/// The targets of `[text](target)` in prose.
fn links(prose: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in prose.match_indices("](") {
        let rest = &prose[at + 2..];
        if let Some(end) = rest.find(')') {
            found.push(rest[..end].to_owned());
        }
    }
    found
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept =
        heading.to_lowercase().replace(|c: char| !c.is_alphanumeric() && !" -_".contains(c), "");
    kept.trim().replace(' ', "-")
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        let page = path.strip_prefix(root()).unwrap().display().to_string();
        for link in links(&split(&text).0) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            if !target.exists() {
                broken.push(format!("{page}: {link}: there is no such file"));
            } else if !fragment.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let headings = text.lines().filter(|line| line.starts_with('#'));
                if !headings
                    .map(|line| anchor(line.trim_start_matches('#')))
                    .any(|name| name == fragment)
                {
                    broken.push(format!("{page}: {link}: there is no such heading"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_on_the_map_and_in_the_summary() {
    let docs = root().join("docs");
    let [map, summary] =
        ["README.md", "SUMMARY.md"].map(|name| fs::read_to_string(docs.join(name)).unwrap());
    let mut missing = Vec::new();
    for (path, _) in pages() {
        let Ok(page) = path.strip_prefix(&docs) else { continue };
        let page = page.to_string_lossy().into_owned();
        if matches!(page.as_str(), "README.md" | "SUMMARY.md") {
            continue;
        }
        for (name, text) in [("README.md", &map), ("SUMMARY.md", &summary)] {
            if !text.contains(&format!("]({page})")) {
                missing.push(format!("docs/{name} does not list {page}"));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// The subcommand words of each `fencegate …` call in a line of shell.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let words: Vec<&str> =
        line.split(|c: char| c.is_whitespace() || "$()|;&`\"'".contains(c)).collect();
    for (at, word) in words.iter().enumerate() {
        if word.rsplit('/').next() == Some("fencegate") {
            let path = words[at + 1..]
                .iter()
                .take_while(|word| {
                    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                })
                .take_while(|word| !word.starts_with('-'))
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>();
            if !path.is_empty() {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn every_command_in_the_docs_exists() {
    let mut wrong = Vec::new();
    let mut tried = Vec::<Vec<String>>::new();
    for (path, text) in pages() {
        for (number, line) in split(&text).1 {
            for call in calls(&line) {
                if tried.contains(&call) {
                    continue;
                }
                let output = Command::new(program()).args(&call).arg("--help").output().unwrap();
                let help = String::from_utf8_lossy(&output.stdout);
                if !output.status.success() || !help.contains("Usage:") {
                    wrong.push(format!(
                        "{}:{number}: fencegate {}",
                        path.display(),
                        call.join(" ")
                    ));
                }
                tried.push(call);
            }
        }
    }
    assert!(!tried.is_empty(), "no command was found: the scan is broken");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_whole_configuration_in_the_docs_passes_check() {
    let dir = TempDir::with_prefix("fencegate-docs-").unwrap();
    let file = dir.path().join("fencegate.toml");
    let mut tried = 0;
    for (path, text) in pages() {
        for block in configurations(&text) {
            fs::write(&file, &block).unwrap();
            let mut check = Command::new(program());
            let output = check.arg("check").arg("--config").arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}:\n{block}\n{said}", path.display());
            tried += 1;
        }
    }
    assert!(tried > 0, "no configuration was found: the scan is broken");
}

#[test]
fn the_scan_of_the_docs_sees_links_and_commands() {
    let text = "# A b\nsee [x](y.md#a-b) and [z](https://h)\n```sh\nT=$(fencegate lease acquire r --ttl 5s)\n```\n";
    let (prose, shell) = split(text);
    assert_eq!(links(&prose), ["y.md#a-b", "https://h"]);
    assert_eq!(calls(&shell[0].1), [["lease", "acquire", "r"]]);
    assert_eq!(anchor(" Answers of the `proxy`!"), "answers-of-the-proxy");
}
