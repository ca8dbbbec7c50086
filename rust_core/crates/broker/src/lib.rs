//! The broker: NATS clients over TCP and WebSocket, and callers of HTTP, on shards that share one routing
//! table.
//!
//! A shard is a composition of parts. Each owns its state and its methods, and knows only lower parts:
//! `docs/explanation/architecture.md` has the picture. Data that sessions and mail hold knows nothing of the reactor's
//! side of a shard.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | settings, their defaults and checks |
//! | [`server`], `shared`, `capacity` | the process's view: start, drain, stop; the state of all shards; the limits |
//! | `session`, `protocols` | the state of one connection, and of its protocol |
//! | `subscriptions`, `replies`, `backlog`, `clients`, `traffic` | more of its state |
//! | `transport`, `reason` | the kinds of connections, and the reasons of their ends |
//! | `subscriber`, `message`, `mail` | receivers, messages, and the mail between shards |
//! | `io` | the reactor's side of a shard, as the parts see it |
//! | `outbound` | appending to the output of a connection |
//! | `memory`, `admission`, `listeners`, `jobs`, `reading` | memory held; places; listeners; long work; connections that are read |
//! | `sessions` | how connections begin and end, and the state that every other part needs |
//! | `backpressure`, `delivery`, `publishing` | clients that do not keep up; one delivery; from a message to its receivers |
//! | `fence` | replies that wait for messages under way |
//! | `nats`, `websocket`, `pattern`, `info` | operations of NATS clients, over TCP and WebSocket; limits of subjects; the greeting |
//! | `http`, `hosts`, `origins` | requests over HTTP, and the gateway; names of the broker, and pages that may call |
//! | `monitor` | pages about all this: for tools, metrics, history, the console |
//! | `drain`, `sample` | lame duck mode; the measurements that a shard takes of itself |
//! | `shard` | the composition, and the reactor's events |
//! | `metrics`, `log` | the table of all metrics, and the conservation rule; the events that are logged |
//! | `random` | numbers that cannot be predicted |

mod admission;
mod backlog;
mod backpressure;
mod capacity;
mod clients;
pub mod config;
mod delivery;
mod drain;
mod error;
mod fence;
mod hosts;
mod http;
mod info;
mod io;
mod jobs;
mod listeners;
mod log;
mod mail;
mod memory;
mod message;
mod metrics;
mod monitor;
mod nats;
mod origins;
mod outbound;
mod pattern;
mod protocols;
mod publishing;
mod random;
mod reading;
mod reason;
mod replies;
mod sample;
pub mod server;
mod session;
mod sessions;
mod shard;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
mod subscriber;
mod subscriptions;
mod traffic;
mod transport;
mod websocket;

pub use config::{Config, ConfigError};
pub use error::StartError;
pub use server::Broker;
