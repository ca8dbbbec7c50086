//! The broker: NATS clients over TCP and WebSocket, on shards that share one routing table.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | settings, their defaults and checks |
//! | [`server`], `capacity` | the process's view: start, drain, stop, counters; what the limits allow |
//! | `handler` | what the reactor tells a shard: connections, bytes, timers, mail, turns |
//! | `shard`, `shared` | one thread's state, and what all share; how connections begin and end |
//! | `drain`, `jobs` | lame duck mode; work that takes several turns |
//! | `backpressure` | clients that do not keep up |
//! | `session`, `subscriptions`, `traffic` | the state of one connection |
//! | `transport`, `reason` | the kinds of connections, and the reasons of their ends |
//! | `http`, `websocket` | from received bytes to the NATS stream |
//! | `hosts`, `origins` | which names the broker is called by over HTTP, and which pages may call |
//! | `info` | the greeting |
//! | `nats` | operations of a client |
//! | `delivery` | from a published message to its receivers |
//! | `outbound` | what is appended to a connection's output |
//! | `replies` | replies that wait for messages under way |
//! | `random` | numbers that cannot be foretold |
//! | `metrics` | the table of all metrics, the numbers of the shards, and the conservation rule |
//! | `monitor` | the pages made of all this: for tools, metrics, history, the console |
//! | `clients` | the accounts that clients give of themselves |
//! | `sample` | the measurements that a shard takes of itself |
//! | `log` | the events that are logged |

mod backpressure;
mod capacity;
mod clients;
pub mod config;
mod delivery;
mod drain;
mod error;
mod handler;
mod hosts;
mod http;
mod info;
mod jobs;
mod log;
mod mail;
mod metrics;
mod monitor;
mod nats;
mod origins;
mod outbound;
mod random;
mod reason;
mod replies;
mod sample;
pub mod server;
mod session;
mod shard;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
mod subscriptions;
mod traffic;
mod transport;
mod websocket;

pub use config::{Config, ConfigError};
pub use error::StartError;
pub use server::Broker;
