//! The broker: NATS clients over TCP and WebSocket, on shards that share one routing table.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | settings, their defaults and checks |
//! | [`server`] | the process's view: start, drain, stop, totals |
//! | `shard` | one thread: the reactor's handler; turns, timers, mail, lame duck |
//! | `session`, `subscriptions` | the state of one connection |
//! | `http`, `websocket` | from received bytes to the NATS stream |
//! | `info` | the greeting |
//! | `nats` | operations of a client |
//! | `delivery` | from a published message to its receivers |
//! | `outbound` | what is appended to a connection's output |
//! | `monitor` | `/healthz` and `/varz` |
//! | [`counters`] | what has happened, and the conservation rule |

pub mod config;
pub mod counters;
mod delivery;
mod http;
mod info;
mod mail;
mod monitor;
mod nats;
mod outbound;
pub mod server;
mod session;
mod shard;
mod subscriptions;
mod websocket;

pub use config::{Config, ConfigError};
pub use counters::Totals;
pub use server::{Broker, StartError};
