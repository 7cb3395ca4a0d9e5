//! L5: the command line. One file per command; this is the list of them.

pub mod check;
pub mod exit;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use exit::Exit;

/// A fencing proxy for storage: refuses stale writes before they reach an S3 or REST store.
#[derive(Parser)]
#[command(name = "fencegate", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Check),
}

/// Where the configuration is; for the commands that read it.
#[derive(Args, Clone, Debug)]
pub struct ConfigFile {
    /// The configuration file.
    #[arg(long, value_name = "FILE", env = "FENCEGATE_CONFIG", default_value = "fencegate.toml")]
    pub config: std::path::PathBuf,
}

/// Runs the program.
pub fn main() -> ExitCode {
    let exit: Exit = match Cli::parse().command {
        Command::Check(command) => command.run(),
    };
    exit.into()
}
