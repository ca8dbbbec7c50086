//! Simulation of the whole system: the broker, and the load test's engines beside it, on one
//! virtual network and clock. The program `simulate` and the tests share this crate.

pub mod load;
pub mod results;
