//! The command line as a whole: every part of it has help and a place in the reference.

use std::collections::BTreeSet;

use clap::CommandFactory;

use super::*;

/// The command and every command below it, but those that only the program itself calls.
fn every(command: &clap::Command, name: &str, found: &mut Vec<(String, clap::Command)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        every(sub, &format!("{name} {}", sub.get_name()), found);
    }
    found.push((name.to_owned(), command.clone()));
}

fn commands() -> Vec<(String, clap::Command)> {
    let mut found = Vec::new();
    every(&Cli::command(), "fencegate", &mut found);
    assert!(found.len() > 15, "the walk is broken");
    found
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_and_argument_has_help() {
    let mut silent = Vec::new();
    for (name, command) in commands() {
        if command.get_about().is_none() {
            silent.push(name.clone());
        }
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
        for argument in arguments.filter(|argument| argument.get_help().is_none()) {
            silent.push(format!("{name} {}", argument.get_id()));
        }
    }
    assert!(silent.is_empty(), "without help: {silent:?}");
}

#[test]
fn every_command_has_a_line_in_the_reference() {
    let page = include_str!("../../docs/reference/cli.md");
    let missing: Vec<_> = commands()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| {
            let words = name.trim_start_matches("fencegate ");
            name != "fencegate" && !page.contains(&format!("`{words}")) && !page.contains(name)
        })
        .collect();
    assert!(missing.is_empty(), "docs/reference/cli.md does not tell of {missing:?}");
}

#[test]
fn commands_are_told_apart_by_their_first_line() {
    let abouts: Vec<_> =
        commands().iter().map(|(_, command)| command.get_about().unwrap().to_string()).collect();
    assert_eq!(abouts.iter().collect::<BTreeSet<_>>().len(), abouts.len());
}
