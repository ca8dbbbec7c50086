//! The contract between a program's events and its log.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::key::Key;

/// The gravity of an event; also the least grave one that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every connection's beginning and end, and every refused request.
    Debug,
    /// Events of the program as a whole.
    Info,
    /// Events that an operator may have to look at.
    Warning,
    /// Failures.
    Error,
}

impl Level {
    /// Return the name that lines have.
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

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// A text, which is escaped when it is written.
    Text(&'a str),
    /// A whole number.
    Number(u64),
    /// An address with its port.
    Address(SocketAddr),
    /// A length of time, written in seconds.
    Time(Duration),
}

/// A visitor of fields: takes a name and its value.
pub type Visit<'v> = dyn FnMut(&'static str, Value<'_>) + 'v;

/// Events that share a rate: one kind, or a part of one, so that a flood of one topic hides no other.
pub trait Topic: Key {
    /// Return the kind of the topic's events.
    fn kind(self) -> &'static str;

    /// Return the level of the topic's events.
    fn level(self) -> Level;

    /// Visit the fields that tell the topics of one kind apart.
    fn fields(self, _visit: &mut Visit<'_>) {}
}

/// An event that can be logged.
pub trait Event: Send + 'static {
    /// The topics that have rates.
    type Topic: Topic;

    /// Return the kind, which names the event to readers of the log.
    fn kind(&self) -> &'static str;

    /// Return the level.
    fn level(&self) -> Level;

    /// Visit the fields, in the order in which they are written.
    fn fields(&self, visit: &mut Visit<'_>);
}
