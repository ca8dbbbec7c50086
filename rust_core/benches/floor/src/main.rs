//! The kernel floor: moves the benchmark's byte pattern over loopback TCP with no protocol at all, and
//! says what that costs. See README.md of this crate.

mod board;
mod capacity;
mod crew;
mod driver;
mod failure;
mod greeting;
mod histogram;
mod load;
mod mail;
mod net;
mod options;
mod process;
mod report;
mod rng;
mod run;
mod server;
mod setup;
mod signal;
mod split;

use std::io::Write;
use std::process::ExitCode;

use crate::failure::{Context, Failure};
use crate::options::Command;

/// Status of a wrong command line.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let command = match Command::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("floor: {error}; see floor --help");
            return ExitCode::from(USAGE_ERROR);
        }
    };
    match execute(&command) {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("floor: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for; a measured run with errors ends with status 1, too.
fn execute(command: &Command) -> Result<ExitCode, Failure> {
    let mut stdout = std::io::stdout().lock();
    match command {
        Command::Help => stdout.write_all(options::HELP.as_bytes()),
        Command::Run(options) => {
            let measured = run::measure(options)?;
            let report = report::json(&measured);
            writeln!(stdout, "{report:#}").context("write the result to standard output")?;
            if measured.errors > 0 {
                return Ok(ExitCode::FAILURE);
            }
            Ok(())
        }
    }
    .context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
