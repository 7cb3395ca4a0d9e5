//! L5: the command line. One file per command; this is the list of them.

mod address;
pub mod check;
pub mod client;
pub mod exit;
pub mod explain;
pub mod fence;
pub mod lease;
pub mod serve;
pub mod sse;
pub mod status;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use exit::Exit;

/// A fencing proxy for storage: refuses stale writes before they reach an S3 or REST store.
#[derive(Parser, Debug)]
#[command(name = "fencegate", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Explain(explain::Explain),
    Lease(lease::LeaseArgs),
    Fence(fence::FenceArgs),
    Status(status::Status),
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
        Command::Serve(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Lease(args) => args.run(),
        Command::Fence(args) => args.run(),
        Command::Status(command) => command.run(),
    };
    exit.into()
}
