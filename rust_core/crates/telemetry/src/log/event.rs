//! Interface between a program's events and its log.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::key::Key;

/// Severity of an event, or lowest severity that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Beginning and end of every connection, and every refused request.
    Debug,
    /// Events of the program as a whole.
    Info,
    /// Events that an operator may have to look at.
    Warning,
    /// Failures.
    Error,
}

impl Level {
    /// Return the level's name in lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Value of a field.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// Text, which is escaped when it is written.
    Text(&'a str),
    /// Whole number.
    Number(u64),
    /// Address with its port.
    Address(SocketAddr),
    /// Length of time, written in seconds.
    Time(Duration),
}

/// Visitor of fields, which takes a name and its value.
pub type Visit<'v> = dyn FnMut(&'static str, Value<'_>) + 'v;

/// Topic of events that share a rate: one kind, or a part of one, so that a flood of one topic does
/// not hide the others.
pub trait Topic: Key {
    /// Return the kind of the topic's events.
    fn kind(self) -> &'static str;

    /// Return the level of the topic's events.
    fn level(self) -> Level;

    /// Visit the fields that distinguish the topics of one kind.
    fn fields(self, _visit: &mut Visit<'_>) {}
}

/// Event that can be logged.
pub trait Event: Send + 'static {
    /// Topics that have rates.
    type Topic: Topic;

    /// Return the kind, which names the event in the log.
    fn kind(&self) -> &'static str;

    /// Return the level.
    fn level(&self) -> Level;

    /// Visit the fields, in the order of writing.
    fn fields(&self, visit: &mut Visit<'_>);
}
