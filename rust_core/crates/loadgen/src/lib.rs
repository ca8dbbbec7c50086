//! The load engine: [`Requestor`] and [`Provider`] drive the benchmark workload against any server
//! that speaks the NATS client protocol, over WebSocket or TCP; [`Broadcaster`] drives the broadcast
//! workload, in which every message goes to all users of its subject (see `broadcast`).
//!
//! User N is a connection subscribed to `/c/N`, provider K one subscribed to `/s/K`. At its planned
//! time a request goes from a random user to a random provider, with the user's subject as reply
//! subject; the provider replies at once. Request and reply open with the same id, and the rest of
//! each follows from that id, so that every reply is matched and verified.
//!
//! # What is measured
//!
//! * In an open loop, with a `rate`, the plan is fixed before the start: a request that cannot be
//!   sent in time is sent late, and never left out.
//! * *Latency* runs from the planned time to the receipt of the reply, so it shows every delay of
//!   engine and server; *service time* runs from the actual sending.
//! * In a closed loop, with a number `outstanding`, each reply lets the next request out. There is no
//!   planned time, and latency is service time: a server that stalls delays requests that are
//!   therefore never counted as slow (coordinated omission). It measures cost and capacity, not
//!   what users would see.
//! * Each request ends as exactly one of received, timed out and error. Duplicate, late, corrupt and
//!   unmatched replies are counted.
//! * Percentiles come from histograms that are added, never from percentiles that are averaged;
//!   mean, standard deviation, minimum and maximum from exact sums over every value.
//!
//! # Structure
//!
//! An engine has a `crew` of threads, each with a shard of the reactor and its share of the
//! connections; they share nothing but counters and, in a broadcaster, the messages under way. `link`
//! is one connection without I/O, `client` puts many of them on a shard, `dialer` decides when each is
//! established. `run` keeps the books of a requestor's thread: `schedule` plans, `inflight` remembers,
//! `recorder` measures; `churn` says whose connection is closed and established again. `lifecycle` is
//! what all engines have in common towards their owner, `intervals` what their threads measure, on its
//! way to the result. Configuration, progress and result are JSON.

mod backlog;
mod broadcast;
mod churn;
mod client;
mod clock;
mod config;
mod connection;
mod course;
mod crew;
mod dialer;
mod engine;
mod free;
mod http;
mod inflight;
mod intervals;
mod lifecycle;
mod link;
mod outbox;
mod payload;
mod profile;
mod provider;
mod recorder;
mod report;
mod requestor;
mod rng;
mod run;
mod schedule;
mod shared;
mod sources;
mod subject;
mod workload;

pub use broadcast::{Broadcaster, BroadcasterConfig};
pub use config::{Arrivals, ConfigError, ProviderConfig, RequestorConfig, Target, Transport};
pub use crew::EngineError;
pub use engine::{Provider, Requestor};
pub use profile::Segment;
pub use report::Phase;
