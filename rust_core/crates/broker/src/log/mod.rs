//! The broker's events: the closed list of all that is ever logged.
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | the events, their levels and fields |
//! | [`topic`] | the kinds of events that share a rate |
//! | [`shard`] | the calls by which a shard logs them |
//!
//! Rates, queue, formats and the writer's thread are `telemetry::log`'s.

mod event;
mod shard;
mod topic;

pub(crate) use event::{Client, Event, Log, Logged, Writer};
pub(crate) use shard::ShardLog;
