//! The load engine: generators of load for any server that speaks the NATS client protocol.
//!
//! [`Requestor`] and [`Provider`] drive the request/reply workload over WebSocket or TCP, and a
//! requestor also over HTTP. [`Broadcaster`] drives the broadcast workload, in which every message
//! goes to all users of its subject (see `broadcast`).
//!
//! User N is a connection subscribed to `/c/N`, provider K one subscribed to `/s/K`. At its planned
//! send time a request goes from a random user to a random provider, with the user's subject as
//! reply subject. The provider replies at once. Request and reply begin with the same id, and the
//! remaining bytes follow from that id, so that every reply is matched and verified.
//!
//! # Measurement
//!
//! * In an open loop, with a `rate`, the planned send times are fixed before the start. A request
//!   that cannot be sent in time is sent late, and never left out.
//! * *Latency* runs from the planned send time to the receipt of the reply, so it includes every
//!   delay of engine and server. *Service time* runs from the actual sending.
//! * In a closed loop, with a number `outstanding`, each reply releases the next request. Planned
//!   times do not exist there, and latency is service time. A server that stalls delays requests
//!   that are never counted as slow (coordinated omission). A closed loop measures cost and
//!   capacity, not the latency of users.
//! * Each request ends as exactly one of received, timed out and error. Duplicate, late, corrupt
//!   and unmatched replies are counted.
//! * Percentiles come from added histograms, never from averaged percentiles. Mean, standard
//!   deviation, minimum and maximum come from exact sums over every value.
//!
//! # Structure
//!
//! An engine has `shards` of the reactor, each with a part of the connections. They share only
//! counters and, in a broadcaster, the messages in flight. A `runtime` runs the shards: in
//! `threads`, or with the feature `sim` in a simulation, whose clock is virtual. All time is read
//! from the runtime's clock. `clock` converts that time to the run's clock, on which several
//! machines agree.
//!
//! `link` is one connection without I/O, `client` puts many of them on a shard, `dialer` decides
//! when each is established. `run` accounts for the requests of a requestor's thread: `schedule`
//! plans, `inflight` remembers, `recorder` measures; `churn` chooses connections to close and
//! establish again. `lifecycle` holds the phases that all engines have in common, `intervals`
//! merges the measurements of the threads. Configuration, progress and result are JSON.

mod broadcast;
mod churn;
mod client;
mod clock;
mod config;
mod connection;
mod dialer;
mod engine;
mod error;
mod fields;
mod http;
mod idle_users;
mod inflight;
mod intervals;
mod lifecycle;
mod link;
mod payload;
mod profile;
mod provider;
mod recorder;
mod reply_queue;
mod report;
mod requestor;
mod rng;
mod run;
mod run_state;
mod runtime;
mod schedule;
mod session;
mod shards;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
mod sources;
mod subject;
mod target;
mod threads;
mod workload;

pub use broadcast::{Broadcaster, BroadcasterConfig};
pub use config::{Arrivals, ProviderConfig, RequestorConfig};
pub use engine::{Provider, Requestor};
pub use error::{ConfigError, EngineError, Phase};
pub use profile::Segment;
pub use target::{Target, Transport};
