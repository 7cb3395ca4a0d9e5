//! L5: the command line. One file per command; this is the list of them.

mod address;
mod carry;
pub mod check;
pub mod child;
pub mod client;
pub mod completions;
pub mod exit;
pub mod explain;
pub mod fence;
pub mod hold;
pub mod lease;
mod live;
mod notify;
pub mod run;
pub mod serve;
mod signals;
pub mod sse;
pub mod status;
mod term;
pub mod with_token;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use exit::Exit;

const BEGIN: &str = "\
Begin with a fencegate.toml: `fencegate check` says what is wrong with it, `fencegate serve` runs it,
`fencegate status` shows how it is, `fencegate explain PUT /bucket/key` what it makes of a request.

Exit codes: 0 done, 1 refused or lost, 2 wrong command line or configuration, 3 no answer.
`run` and `with` pass on the command's; their own are 123 to 127, see `fencegate run --help`.";

/// A fencing proxy for storage: refuses stale writes before they reach an S3 or REST store.
#[derive(Parser, Debug)]
#[command(name = "fencegate", version, about, propagate_version = true, after_help = BEGIN)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Explain(explain::Explain),
    Run(run::Run),
    Hold(hold::Hold),
    With(with_token::With),
    Lease(lease::LeaseArgs),
    Fence(fence::FenceArgs),
    Status(status::Status),
    Completions(completions::Completions),
    #[command(name = "__guard", hide = true)]
    Guard(child::Guard),
    #[command(name = "__exec", hide = true)]
    Exec(child::Exec),
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
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return usage(&error),
    };
    let exit: Exit = match command {
        Command::Run(command) => return command.run(),
        Command::With(command) => return command.run(),
        Command::Guard(command) => return command.run(),
        Command::Exec(command) => return command.run(),
        Command::Serve(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Hold(command) => command.run(),
        Command::Lease(args) => args.run(),
        Command::Fence(args) => args.run(),
        Command::Status(command) => command.run(),
        Command::Completions(command) => command.run::<Cli>(),
    };
    exit.into()
}

/// Says what is wrong with the command line. 2, but for the commands that pass on another's status, which may
/// be 2 as well.
fn usage(error: &clap::Error) -> ExitCode {
    let passes_on = matches!(std::env::args().nth(1).as_deref(), Some("run" | "with"));
    // Nobody to tell that nobody can be told.
    let _ = error.print();
    match error.use_stderr() {
        true if passes_on => ExitCode::from(run::FAILED),
        true => Exit::Usage.into(),
        false => Exit::Done.into(),
    }
}

#[cfg(test)]
mod tests;
