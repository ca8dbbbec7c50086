//! Shards on the simulated network.

#![cfg(feature = "sim")]

mod herd;
mod pause;
mod relay;
