//! What is logged, at which level, with which fields.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::LogLevel;
use crate::clients::ClientInfo;
use crate::counters::Reason;
use crate::session::{Traffic, TransportKind};

/// Who an event is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) cid: u64,
    pub(crate) remote: SocketAddr,
    pub(crate) transport: TransportKind,
}

/// Everything that is ever logged. Texts that clients have sent are cut to a length and escaped when they
/// are written; payloads, credentials and headers are in none of these.
#[derive(Debug)]
pub(crate) enum Event {
    /// The backend, and why it is not the best one.
    Driver {
        driver: String,
        reason: Option<String>,
        shards: usize,
        max_connections: usize,
    },
    /// A listener accepts.
    Listening {
        listener: &'static str,
        address: SocketAddr,
    },
    /// A connection was accepted.
    ClientConnected(Client),
    /// A client has said who it is.
    ClientIdentified {
        client: Client,
        info: Option<Arc<ClientInfo>>,
    },
    /// A connection has ended.
    ClientClosed {
        client: Client,
        reason: Reason,
        traffic: Traffic,
        /// Seconds.
        duration: u32,
    },
    /// A request of HTTP was answered by an error of the broker's own.
    RequestRefused {
        client: Client,
        status: u16,
        detail: Box<str>,
    },
    /// A publisher is not read from for a moment, because a receiver has fallen behind.
    PublisherStalled(Client),
    /// Connections wait that cannot be accepted; how often that was so since the start.
    AcceptFailed { failures: u64 },
    /// Lame duck mode has begun.
    Draining { reason: String, connections: usize },
    /// It has ended with no client left.
    Drained { duration: Duration },
    /// The broker was told to end at once.
    Stopping { reason: String, connections: usize },
    /// It has ended.
    Stopped,
    /// A shard has failed, which ends the broker.
    ShardFailed { shard: usize, detail: String },
    /// Lines that nobody took in time.
    LinesLost { lost: u64 },
    /// Lines that were left out because there were too many of their kind.
    LinesSuppressed { of: Topic, suppressed: u64 },
}

/// A field's value.
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Address(SocketAddr),
    /// Written in seconds.
    Time(Duration),
}

const UNPROTECTED: &str =
    "the monitor has no authentication: whoever reaches this address sees everything it shows";
const EXHAUSTED: &str = "no descriptors or memory left: connections wait to be accepted";

impl Event {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Driver { .. } => "driver",
            Self::Listening { .. } => "listening",
            Self::ClientConnected(_) => Topic::Connected.kind(),
            Self::ClientIdentified { .. } => Topic::Identified.kind(),
            Self::ClientClosed { reason, .. } => Topic::Closed(*reason).kind(),
            Self::RequestRefused { .. } => Topic::Refused.kind(),
            Self::PublisherStalled(_) => Topic::Stalled.kind(),
            Self::AcceptFailed { .. } => Topic::AcceptFailed.kind(),
            Self::Draining { .. } => "draining",
            Self::Drained { .. } => "drained",
            Self::Stopping { .. } => "stopping",
            Self::Stopped => "stopped",
            Self::ShardFailed { .. } => "shard_failed",
            Self::LinesLost { .. } => "lines_lost",
            Self::LinesSuppressed { .. } => "lines_suppressed",
        }
    }

    pub(super) fn level(&self) -> LogLevel {
        match self {
            Self::ClientConnected(_) => Topic::Connected.level(),
            Self::ClientIdentified { .. } => Topic::Identified.level(),
            Self::ClientClosed { reason, .. } => Topic::Closed(*reason).level(),
            Self::RequestRefused { .. } => Topic::Refused.level(),
            Self::PublisherStalled(_) => Topic::Stalled.level(),
            Self::AcceptFailed { .. } => Topic::AcceptFailed.level(),
            Self::LinesSuppressed { of, .. } => of.level(),
            Self::Listening { .. } if self.is_unprotected() => LogLevel::Warning,
            Self::LinesLost { .. } => LogLevel::Warning,
            Self::ShardFailed { .. } => LogLevel::Error,
            Self::Driver { .. }
            | Self::Listening { .. }
            | Self::Draining { .. }
            | Self::Drained { .. }
            | Self::Stopping { .. }
            | Self::Stopped => LogLevel::Info,
        }
    }

    /// Whether this is a monitor that other machines may reach.
    fn is_unprotected(&self) -> bool {
        matches!(self, Self::Listening { listener: "monitor", address }
            if !address.ip().to_canonical().is_loopback())
    }

    /// Hands each field to `visit`, in the order in which they are written.
    pub(super) fn fields<'a>(&'a self, mut visit: impl FnMut(&'static str, Value<'a>)) {
        match self.client() {
            Some(client) => self.client_fields(client, &mut visit),
            None => self.broker_fields(&mut visit),
        }
    }

    /// The fields of an event that is about a client.
    fn client_fields<'a>(
        &'a self,
        client: &'a Client,
        visit: &mut impl FnMut(&'static str, Value<'a>),
    ) {
        use Value::{Address, Number, Text};
        visit("cid", Number(client.cid));
        visit("remote", Address(client.remote));
        visit("transport", Text(client.transport.name()));
        match self {
            Self::ClientIdentified {
                info: Some(info), ..
            } => {
                visit("name", Text(&info.name));
                visit("lang", Text(&info.lang));
                visit("version", Text(&info.version));
            }
            Self::ClientClosed {
                reason,
                traffic,
                duration,
                ..
            } => {
                visit("reason", Text(reason.name()));
                visit("duration_s", Number(u64::from(*duration)));
                visit("in_msgs", Number(traffic.in_msgs));
                visit("in_bytes", Number(traffic.in_bytes));
                visit("out_msgs", Number(traffic.out_msgs));
                visit("out_bytes", Number(traffic.out_bytes));
            }
            Self::RequestRefused { status, detail, .. } => {
                visit("status", Number(u64::from(*status)));
                visit("reason", Text(detail));
            }
            _ => {}
        }
    }

    /// The fields of an event that is about the broker.
    fn broker_fields<'a>(&'a self, visit: &mut impl FnMut(&'static str, Value<'a>)) {
        use Value::{Address, Number, Text, Time};
        match self {
            Self::Driver {
                driver,
                reason,
                shards,
                max_connections,
            } => {
                visit("driver", Text(driver));
                visit("shards", Number(*shards as u64));
                visit("max_connections", Number(*max_connections as u64));
                visit("version", Text(env!("CARGO_PKG_VERSION")));
                if let Some(reason) = reason {
                    visit("reason", Text(reason));
                }
            }
            Self::Listening { listener, address } => {
                visit("listener", Text(listener));
                visit("address", Address(*address));
                if self.is_unprotected() {
                    visit("detail", Text(UNPROTECTED));
                }
            }
            Self::AcceptFailed { failures } => {
                visit("failures", Number(*failures));
                visit("detail", Text(EXHAUSTED));
            }
            Self::Draining {
                reason,
                connections,
            }
            | Self::Stopping {
                reason,
                connections,
            } => {
                if !reason.is_empty() {
                    visit("reason", Text(reason));
                }
                visit("connections", Number(*connections as u64));
            }
            Self::Drained { duration } => visit("duration_s", Time(*duration)),
            Self::ShardFailed { shard, detail } => {
                visit("failed_shard", Number(*shard as u64));
                visit("reason", Text(detail));
            }
            Self::LinesLost { lost } => visit("lost", Number(*lost)),
            Self::LinesSuppressed { of, suppressed } => {
                visit("of", Text(of.kind()));
                if let Topic::Closed(reason) = of {
                    visit("reason", Text(reason.name()));
                }
                visit("suppressed", Number(*suppressed));
            }
            _ => {}
        }
    }

    fn client(&self) -> Option<&Client> {
        match self {
            Self::ClientConnected(client)
            | Self::PublisherStalled(client)
            | Self::ClientIdentified { client, .. }
            | Self::ClientClosed { client, .. }
            | Self::RequestRefused { client, .. } => Some(client),
            _ => None,
        }
    }
}

/// What has a rate of its own: the kinds that clients bring about, and of closes each reason, so that a
/// flood of one hides no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    Connected,
    Identified,
    Refused,
    Stalled,
    AcceptFailed,
    Closed(Reason),
}

impl Topic {
    const PLAIN: [Self; 5] = [
        Self::Connected,
        Self::Identified,
        Self::Refused,
        Self::Stalled,
        Self::AcceptFailed,
    ];
    pub(super) const COUNT: usize = Self::PLAIN.len() + Reason::ALL.len();

    pub(super) fn all() -> impl Iterator<Item = Self> {
        let closed = Reason::ALL.iter().map(|reason| Self::Closed(*reason));
        Self::PLAIN.into_iter().chain(closed)
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Connected => 0,
            Self::Identified => 1,
            Self::Refused => 2,
            Self::Stalled => 3,
            Self::AcceptFailed => 4,
            Self::Closed(reason) => Self::PLAIN.len() + reason as usize,
        }
    }

    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Connected => "client_connected",
            Self::Identified => "client_identified",
            Self::Refused => "request_refused",
            Self::Stalled => "publisher_stalled",
            Self::AcceptFailed => "accept_failed",
            Self::Closed(_) => "client_closed",
        }
    }

    #[inline]
    pub(super) const fn level(self) -> LogLevel {
        match self {
            Self::Connected | Self::Identified | Self::Refused => LogLevel::Debug,
            Self::Stalled => LogLevel::Debug,
            Self::AcceptFailed => LogLevel::Warning,
            Self::Closed(reason) => level_of_close(reason),
        }
    }
}

/// Ends that every client may have in good order, or for which the network is to blame, are of no
/// concern one by one.
const fn level_of_close(reason: Reason) -> LogLevel {
    match reason {
        Reason::ClientClosed
        | Reason::ConnectionFailed
        | Reason::HttpAnswered
        | Reason::Shutdown => LogLevel::Debug,
        Reason::SlowConsumer
        | Reason::Stale
        | Reason::ProtocolError
        | Reason::InvalidText
        | Reason::PayloadTooLarge
        | Reason::ControlLineTooLong
        | Reason::TooManyConnections
        | Reason::NoMemory
        | Reason::HandshakeTimeout
        | Reason::Refused => LogLevel::Warning,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_topic_has_a_place_of_its_own() {
        let indexes: Vec<_> = Topic::all().map(Topic::index).collect();
        assert_eq!(indexes, (0..Topic::COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn a_monitor_is_warned_about_where_others_reach_it() {
        let level = |listener, address: &str| {
            let address = address.parse().unwrap();
            Event::Listening { listener, address }.level()
        };
        for address in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert_eq!(level("monitor", address), LogLevel::Info, "{address}");
        }
        for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[2001:db8::1]:1"] {
            assert_eq!(level("monitor", address), LogLevel::Warning, "{address}");
            assert_eq!(level("http", address), LogLevel::Info, "{address}");
        }
    }
}
