//! Parses the command line, runs it, turns the result into an exit code.

fn main() -> std::process::ExitCode {
    fencegate::cli::main()
}
