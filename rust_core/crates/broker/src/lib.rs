//! The broker: NATS clients over TCP and WebSocket, on shards that share one routing table.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | settings, their defaults and checks |
//! | [`server`], `capacity` | the process's view: start, drain, stop, totals; what the limits allow |
//! | `handler` | what the reactor tells a shard: connections, bytes, timers, mail, turns |
//! | `shard`, `shared` | one thread's state, and what all share; how connections begin and end |
//! | `drain` | lame duck mode |
//! | `session`, `subscriptions` | the state of one connection |
//! | `http`, `websocket` | from received bytes to the NATS stream |
//! | `hosts`, `origins` | which names the broker is called by over HTTP, and which pages may call |
//! | `info` | the greeting |
//! | `nats` | operations of a client |
//! | `delivery` | from a published message to its receivers |
//! | `outbound` | what is appended to a connection's output |
//! | `replies` | replies that wait for messages under way |
//! | `monitor` | what is served of all this: pages for tools, metrics, history, the console |
//! | `clients` | what clients say of themselves |
//! | `histogram` | distributions of what is measured |
//! | `random` | numbers that cannot be foretold |
//! | `sample` | what a shard measures of itself |
//! | `log` | what is logged, and how |
//! | [`counters`] | what has happened, and the conservation rule |

mod capacity;
mod clients;
pub mod config;
pub mod counters;
mod delivery;
mod drain;
mod error;
mod handler;
mod histogram;
mod hosts;
mod http;
mod info;
mod log;
mod mail;
mod monitor;
mod nats;
mod origins;
mod outbound;
mod random;
mod replies;
mod sample;
pub mod server;
mod session;
mod shard;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
mod subscriptions;
mod websocket;

pub use config::{Config, ConfigError};
pub use counters::Totals;
pub use error::StartError;
pub use server::Broker;
