//! Simulation of the broker: many short runs, each determined by a seed.
//!
//! `simulate --seeds 1000 [--first 0]` tries seeds one after the other and stops at the first
//! finding, with its seed. `SEED=n simulate` repeats the runs of that seed and prints the actions
//! of their clients.
//!
//! Each seed has two runs: one with random clients, and one under the load test.

#![allow(clippy::print_stdout)]
#![allow(clippy::print_stderr)]

mod client;
mod oracle;
mod random;
mod random_clients;
mod random_load;

use std::panic::catch_unwind;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut seeds, mut first) = (100_u64, 0_u64);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().and_then(|text| text.parse().ok());
        match (flag.as_str(), value) {
            ("--seeds", Some(value)) => seeds = value,
            ("--first", Some(value)) => first = value,
            _ => {
                eprintln!("usage: simulate [--seeds N] [--first N]; SEED=n repeats one seed");
                return ExitCode::from(2);
            }
        }
    }
    let repeated = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    if let Some(seed) = repeated {
        (first, seeds) = (seed, 1);
    }
    let mut messages = 0;
    for seed in first..first + seeds {
        let is_verbose = repeated.is_some();
        let outcome = catch_unwind(|| {
            let seen = random_clients::run(seed, is_verbose)?;
            let loaded = random_load::run(seed, is_verbose);
            Ok(seen + loaded.map_err(|why: String| format!("under load: {why}"))?)
        });
        let finding = match outcome {
            Ok(Ok(count)) => {
                messages += count;
                continue;
            }
            Ok(Err(finding)) => finding,
            Err(_) => "a panic, see above".to_owned(),
        };
        println!("seed {seed}: {finding}");
        println!("SEED={seed} repeats it");
        println!("simulation: {} passed, 1 failed", seed - first);
        return ExitCode::FAILURE;
    }
    println!("simulation: {seeds} passed, 0 failed ({messages} deliveries checked)");
    ExitCode::SUCCESS
}
