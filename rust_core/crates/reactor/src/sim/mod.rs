//! Simulation: shards on a virtual network and a virtual clock, many of them in one thread.
//!
//! A [`Simulation`] runs one shard's turn at a time. Which one, how long bytes take, how many of them
//! one read brings and one write takes, follows from a seed alone, so that every run can be repeated.
//! Handlers cannot tell the difference: turn, timers, budget and mailboxes are the real ones.

mod driver;
mod network;
mod state;
mod world;

pub use network::{Endpoint, Network, Received};
pub use world::{Hosted, Simulation, Step};
