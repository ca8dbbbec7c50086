//! Simulation of the broker: many short lives, each determined by a seed.
//!
//! `simulate --seeds 1000 [--first 0]` runs lives one after the other and stops at the first finding,
//! with its seed. `SEED=n simulate` runs that life again and prints what its clients did.

#![allow(clippy::print_stdout)]
#![allow(clippy::print_stderr)]

mod client;
mod life;
mod oracle;
mod random;

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
                eprintln!("usage: simulate [--seeds N] [--first N]; SEED=n repeats one life");
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
        let outcome = catch_unwind(|| life::run(seed, repeated.is_some()));
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
