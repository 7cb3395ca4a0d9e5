//! L5: the command line.

mod address;
pub mod client;
pub mod exit;
pub mod fence;
pub mod lease;
pub mod sse;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A fencing proxy for storage: refuses stale writes before they reach the store.
#[derive(Parser, Debug)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Lease(lease::LeaseArgs),
    Fence(fence::FenceArgs),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let exit = match Cli::parse().command {
        Command::Lease(args) => args.run(),
        Command::Fence(args) => args.run(),
    };
    exit.into()
}
