//! Errors of configurations and of the engines' calls, and the phases on which calls depend.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Key at fault; empty if the fault is not in a single key.
    pub key: Cow<'static, str>,
    /// Description of the fault.
    pub what: String,
}

impl ConfigError {
    pub(crate) fn new(key: impl Into<Cow<'static, str>>, what: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            what: what.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            f.write_str(&self.what)
        } else {
            write!(f, "{}: {}", self.key, self.what)
        }
    }
}

impl std::error::Error for ConfigError {}

/// Phase of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Before `connect`.
    Idle,
    /// Connections are being established.
    Connecting,
    /// All connections are ready.
    Connected,
    /// Each user makes one request.
    Sweep,
    /// All requests of the sweep have ended; the warm-up waits for its start.
    Swept,
    /// Requests are sent that are not measured.
    Warmup,
    /// Requests are sent and measured.
    Measuring,
    /// Sending has ended; replies are awaited.
    Draining,
    /// The run has ended in order, and the result can be read.
    Done,
    /// The run cannot go on; the error has the reason.
    Failed,
}

/// Reason why a call of an engine failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineError {
    /// Call that is not possible in the engine's phase.
    State {
        /// The call.
        call: &'static str,
        /// The phase that the engine is in.
        phase: Phase,
        /// Reason of the failure, if the engine has failed.
        error: Option<String>,
    },
    /// RLIMIT_NOFILE is too low.
    Descriptors {
        /// Descriptors that one table, usually that of one thread, needs.
        needed: u64,
        /// Descriptors that the table may have.
        allowed: u64,
    },
    /// The source addresses have too few ports for all connections to the server.
    Addresses {
        /// Source addresses that the connections need.
        needed: u32,
        /// Source addresses that there are.
        given: u32,
        /// Ephemeral ports of each.
        ports: u32,
    },
    /// The operating system refused a thread or a wake-up descriptor.
    System(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { call, phase, error } => {
                write!(f, "{call}: not possible in phase {phase:?}")?;
                error
                    .as_ref()
                    .map_or(Ok(()), |error| write!(f, ": {error}"))
            }
            Self::Descriptors { needed, allowed } => write!(
                f,
                "{needed} descriptors are needed and RLIMIT_NOFILE allows {allowed}: raise the limit, or \
                 use more threads where each may have a table of its own"
            ),
            Self::Addresses {
                needed,
                given,
                ports,
            } => write!(
                f,
                "ephemeral ports: so many connections to one address need {needed} source addresses with \
                 {ports} ports each (net.ipv4.ip_local_port_range), there are {given}: name addresses \
                 of this host in `sources`"
            ),
            Self::System(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for EngineError {}
