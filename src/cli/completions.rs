//! `fencegate completions`: what shells and `man` want to know of the command line.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::exit::Exit;

/// Print completions for a shell, or write the manual pages.
///
/// For bash: `fencegate completions bash > /etc/bash_completion.d/fencegate`.
#[derive(Args, Debug)]
pub struct Completions {
    /// Which shell.
    #[arg(required_unless_present = "man")]
    shell: Option<Shell>,
    /// Write manual pages, one a command, to this directory instead.
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    man: Option<PathBuf>,
}

// === impl Completions ===

impl Completions {
    /// Runs the command for the command line `C`.
    pub fn run<C: CommandFactory>(self) -> Exit {
        let written = match (self.shell, &self.man) {
            (_, Some(dir)) => man::<C>(dir).map_err(|error| format!("{}: {error}", dir.display())),
            (Some(shell), None) => {
                // A reader that went away has seen what it wanted.
                let _ = std::io::stdout().write_all(&completions::<C>(shell));
                Ok(())
            }
            (None, None) => Err("name a shell, or a directory with --man".to_owned()),
        };
        match written {
            Ok(()) => Exit::Done,
            Err(fault) => {
                eprintln!("fencegate: the manual pages were not written: {fault}");
                Exit::Refused
            }
        }
    }
}

/// The command line without what only the program itself calls: completions would offer it.
fn shown<C: CommandFactory>() -> Command {
    let all = C::command();
    let shown = Command::new("fencegate").propagate_version(true);
    all.get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .fold(shown, |shown, sub| shown.subcommand(sub.clone()))
        .about(all.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
}

fn completions<C: CommandFactory>(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown::<C>(), "fencegate", &mut script);
    script
}

fn man<C: CommandFactory>(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(shown::<C>(), dir)
}
