//! What the monitor's listener serves.

#![allow(dead_code)]

mod exposition;
mod history;
mod hot;
mod query;
mod time;
mod varz;
