//! The events, their levels and fields.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use telemetry::log::event::Visit;
use telemetry::log::{Level, Topic as _, Value};

use super::topic::Topic;
use crate::clients::ClientInfo;
use crate::reason::Reason;
use crate::traffic::Traffic;
use crate::transport::TransportKind;

/// The log of one broker.
pub(crate) type Log = telemetry::log::Log<Event>;
/// The thread that writes its lines.
pub(crate) type Writer = telemetry::log::Writer<Event>;

/// The connection that an event is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) cid: u64,
    pub(crate) remote: SocketAddr,
    pub(crate) transport: TransportKind,
}

/// A connection, as far as the log may tell of it.
pub(crate) trait Logged {
    /// Return the connection's identity.
    fn client(&self) -> Client;
    /// Return the client's account of itself.
    fn info(&self) -> Option<Arc<ClientInfo>>;
    /// Return the messages that have passed.
    fn traffic(&self) -> Traffic;
}

/// An event of the broker. Texts that clients have sent are cut to a length, and escaped when they are
/// written; payloads, credentials and headers are in no event.
#[derive(Debug)]
pub(crate) enum Event {
    /// The broker has started, on this backend.
    Driver {
        driver: String,
        /// Obstacle to a better backend.
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
    /// A client has identified itself.
    ClientIdentified {
        client: Client,
        info: Option<Arc<ClientInfo>>,
    },
    /// A connection has ended.
    ClientClosed {
        client: Client,
        reason: Reason,
        traffic: Traffic,
        /// Seconds since the connection was accepted.
        duration: u32,
    },
    /// An HTTP request was answered with an error of the broker's own.
    RequestRefused {
        client: Client,
        status: u16,
        detail: Box<str>,
    },
    /// A publisher is not read from for a moment, because a receiver has fallen behind.
    PublisherStalled(Client),
    /// Connections wait that cannot be accepted.
    AcceptFailed {
        /// Failures since the start.
        failures: u64,
    },
    /// Lame duck mode has begun.
    Draining { reason: String, connections: usize },
    /// Lame duck mode has ended with no client left.
    Drained { duration: Duration },
    /// The broker was told to end at once.
    Stopping { reason: String, connections: usize },
    /// The broker has ended.
    Stopped,
    /// A shard has failed, which ends the broker.
    ShardFailed { shard: usize, detail: String },
}

const UNPROTECTED: &str = "the monitor has no authentication: every host that reaches this address sees all that it shows";
const EXHAUSTED: &str = "no descriptors or memory left: connections wait to be accepted";

impl telemetry::log::Event for Event {
    type Topic = Topic;

    fn kind(&self) -> &'static str {
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
        }
    }

    fn level(&self) -> Level {
        match self {
            Self::ClientConnected(_) => Topic::Connected.level(),
            Self::ClientIdentified { .. } => Topic::Identified.level(),
            Self::ClientClosed { reason, .. } => Topic::Closed(*reason).level(),
            Self::RequestRefused { .. } => Topic::Refused.level(),
            Self::PublisherStalled(_) => Topic::Stalled.level(),
            Self::AcceptFailed { .. } => Topic::AcceptFailed.level(),
            Self::Listening { .. } if self.is_unprotected() => Level::Warning,
            Self::ShardFailed { .. } => Level::Error,
            Self::Driver { .. }
            | Self::Listening { .. }
            | Self::Draining { .. }
            | Self::Drained { .. }
            | Self::Stopping { .. }
            | Self::Stopped => Level::Info,
        }
    }

    fn fields(&self, visit: &mut Visit<'_>) {
        match self.client() {
            Some(client) => self.client_fields(client, visit),
            None => self.broker_fields(visit),
        }
    }
}

impl Event {
    /// Return whether this is a monitor that other machines may reach.
    fn is_unprotected(&self) -> bool {
        matches!(self, Self::Listening { listener: "monitor", address }
            if !address.ip().to_canonical().is_loopback())
    }

    /// Visit the fields of an event that is about a client.
    fn client_fields(&self, client: &Client, visit: &mut Visit<'_>) {
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

    /// Visit the fields of an event that is about the broker.
    fn broker_fields(&self, visit: &mut Visit<'_>) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, pipe};
    use std::time::UNIX_EPOCH;

    use telemetry::log::{Event as _, Format};

    use super::*;

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
            assert_eq!(level("monitor", address), Level::Info, "{address}");
        }
        for address in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "[2001:db8::1]:1"] {
            assert_eq!(level("monitor", address), Level::Warning, "{address}");
            assert_eq!(level("http", address), Level::Info, "{address}");
        }
    }

    /// Write events of the broker as a whole and return the text.
    fn written(format: Format, events: impl IntoIterator<Item = Event>) -> String {
        let (mut reader, writer) = pipe().unwrap();
        let log = Arc::new(Log::new(Level::Debug, 1));
        let writer = Writer::start_on(&log, format, Box::new(writer)).unwrap();
        let time = UNIX_EPOCH + Duration::from_millis(1_790_000_000_042);
        events.into_iter().for_each(|event| log.write(time, event));
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    fn client() -> Client {
        Client {
            cid: 7,
            remote: "[::ffff:127.0.0.1]:4222".parse().unwrap(),
            transport: TransportKind::WebSocket,
        }
    }

    fn closed() -> Event {
        Event::ClientClosed {
            client: client(),
            reason: Reason::SlowConsumer,
            traffic: Traffic {
                in_bytes: 5,
                ..Traffic::default()
            },
            duration: 60,
        }
    }

    #[test]
    fn lines_of_clients() {
        assert_eq!(
            written(Format::Text, [closed()]),
            "time=2026-09-21T14:13:20.042Z level=warning kind=client_closed cid=7 \
             remote=127.0.0.1:4222 transport=websocket reason=slow_consumer duration_s=60 \
             in_msgs=0 in_bytes=5 out_msgs=0 out_bytes=0\n"
        );
        assert_eq!(
            written(Format::Json, [closed()]),
            "{\"time\":\"2026-09-21T14:13:20.042Z\",\"level\":\"warning\",\"kind\":\"client_closed\",\
             \"cid\":7,\"remote\":\"127.0.0.1:4222\",\"transport\":\"websocket\",\
             \"reason\":\"slow_consumer\",\"duration_s\":60,\"in_msgs\":0,\"in_bytes\":5,\
             \"out_msgs\":0,\"out_bytes\":0}\n"
        );
        let identified = Event::ClientIdentified {
            client: client(),
            info: Some(Arc::new(ClientInfo {
                name: "a b".into(),
                lang: "".into(),
                version: "1.2".into(),
            })),
        };
        assert!(
            written(Format::Text, [identified])
                .ends_with(" transport=websocket name=\"a b\" lang=\"\" version=1.2\n")
        );
    }

    #[test]
    fn lines_of_the_broker() {
        let drained = Event::Drained {
            duration: Duration::from_micros(1_234_567),
        };
        let draining = Event::Draining {
            reason: String::new(),
            connections: 2,
        };
        let text = written(Format::Text, [draining, drained, Event::Stopped]);
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_once(" kind=").unwrap().1)
            .collect();
        assert_eq!(
            lines,
            [
                "draining connections=2",
                "drained duration_s=1.235",
                "stopped"
            ]
        );
    }

    #[test]
    fn a_suppressed_close_names_its_reason() {
        let mut fields = Vec::new();
        let topic = Topic::Closed(Reason::Stale);
        topic.fields(&mut |name, value| {
            if let Value::Text(text) = value {
                fields.push((name, text.to_owned()));
            }
        });
        assert_eq!(fields, [("reason", "stale".to_owned())]);
        assert_eq!(
            (topic.kind(), topic.level()),
            ("client_closed", Level::Warning)
        );
    }
}
