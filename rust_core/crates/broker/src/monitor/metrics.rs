//! `/metrics`: everything that is counted or measured, for Prometheus.

use super::Monitor;
use super::exposition::{Format, Kind, Metric, Number};
use super::families::{About, Families};
use super::time::unix;
use super::varz::calls;
use super::watch::waits;
use crate::counters::{Counter, Flow, Gauge};
use crate::histogram::Distribution;
use crate::session::TransportKind;
use crate::shared::Shared;

/// What is counted for each transport.
const FLOWS: &[(About, Flow)] = &[
    (
        About(
            "connections_opened",
            "",
            "Connections that began to speak it.",
        ),
        Flow::Opened,
    ),
    (
        About(
            "connections_transport_closed",
            "",
            "Connections that ended while they spoke it.",
        ),
        Flow::Closed,
    ),
    (
        About("received_messages", "", "Messages published by clients."),
        Flow::InMsgs,
    ),
    (
        About("received_bytes", "bytes", "Their headers and payloads."),
        Flow::InBytes,
    ),
    (
        About("sent_messages", "", "Messages appended to clients' output."),
        Flow::OutMsgs,
    ),
    (
        About("sent_bytes", "bytes", "Their headers and payloads."),
        Flow::OutBytes,
    ),
];

/// What is counted for the whole broker.
const COUNTERS: &[(About, Counter)] = &[
    (
        About(
            "accept_failures",
            "",
            "Connections not accepted for want of descriptors.",
        ),
        Counter::AcceptFailures,
    ),
    (
        About("protocol_errors", "", "Errors sent to clients."),
        Counter::Errors,
    ),
    (
        About(
            "http_requests",
            "",
            "Requests of HTTP, the monitor's included.",
        ),
        Counter::HttpRequests,
    ),
    (
        About("http_errors", "", "Requests of HTTP answered by an error."),
        Counter::HttpErrors,
    ),
    (
        About("event_streams", "", "Streams of events begun."),
        Counter::EventStreams,
    ),
    (
        About("subscriptions_added", "", "Subscriptions made."),
        Counter::Subscribed,
    ),
    (
        About("subscriptions_removed", "", "Subscriptions removed."),
        Counter::Unsubscribed,
    ),
    (
        About(
            "wire_received_bytes",
            "bytes",
            "Received, frames and operations included.",
        ),
        Counter::WireBytesIn,
    ),
    (
        About(
            "wire_sent_bytes",
            "bytes",
            "Taken by the kernel, frames and operations included.",
        ),
        Counter::WireBytesOut,
    ),
    (
        About("writes", "", "Writes that sent them."),
        Counter::Writes,
    ),
    (
        About(
            "matched_messages",
            "",
            "Receivers named by the routing table.",
        ),
        Counter::Matched,
    ),
    (
        About(
            "delivered_messages",
            "",
            "Messages wholly taken by the kernel.",
        ),
        Counter::Delivered,
    ),
    (
        About(
            "no_responders",
            "",
            "Requests that nobody had subscribed to.",
        ),
        Counter::NoResponders,
    ),
    (
        About(
            "stalls",
            "",
            "Publishers paused because a receiver fell behind.",
        ),
        Counter::Stalls,
    ),
    (
        About(
            "gateway_requests",
            "",
            "Requests of HTTP published to wait for a reply.",
        ),
        Counter::GatewayRequests,
    ),
    (
        About("gateway_timeouts", "", "Of these, without a reply in time."),
        Counter::GatewayTimeouts,
    ),
];

/// What each shard measures of itself.
const SHARD_GAUGES: &[(About, Gauge)] = &[
    (
        About("mailbox_messages", "", "Mail that waits for the shard."),
        Gauge::Mailbox,
    ),
    (
        About(
            "descriptors",
            "",
            "Descriptors of connections and listeners.",
        ),
        Gauge::Descriptors,
    ),
    (
        About("descriptors_limit", "", "Descriptors that there may be."),
        Gauge::DescriptorLimit,
    ),
];

impl Monitor {
    pub(crate) fn metrics(&self, shared: &Shared, format: Format, is_ready: bool) -> String {
        let mut families = Families::new(shared, format);
        for (about, flow) in FLOWS {
            families.flow(*about, *flow);
        }
        for (about, counter) in COUNTERS {
            families.counter(*about, *counter);
        }
        reasons(&mut families);
        self.levels(&mut families, is_ready);
        shards(&mut families);
        durations(&mut families);
        log(&mut families);
        let driver = shared.driver.to_string();
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("driver", &driver)];
        families.info(About("build", "", "The broker's build."), &labels);
        process(&mut families, self.watch.memory(shared).resident);
        families.finish()
    }

    /// What there is now, and the most that there may be.
    fn levels(&self, families: &mut Families<'_>, is_ready: bool) {
        let shared = families.shared;
        let connections =
            TransportKind::ALL.map(|kind| (kind.name(), families.totals.connections_over(kind)));
        let about = About("connections", "", "Clients connected now.");
        families.by(Kind::Gauge, about, "transport", connections);
        let memory = self.watch.memory(shared).by_purpose();
        let about = About(
            "memory_bytes",
            "bytes",
            "Resident memory by what it is for.",
        );
        families.by(Kind::Gauge, about, "purpose", memory);
        let subscriptions = families.totals.subscriptions();
        let started = unix(shared.start);
        let limits = &shared.limits;
        let levels: [(About, Number); 8] = [
            (
                About("max_connections", "", "Clients that may be connected."),
                limits.max_connections.into(),
            ),
            (
                About("subscriptions", "", "Subscriptions that exist now."),
                subscriptions.into(),
            ),
            (
                About("subjects", "", "Different subjects that are subscribed to."),
                self.watch.extent().subjects.into(),
            ),
            (
                About("pending_bytes", "bytes", "Output that clients do not take."),
                shared.backlog().into(),
            ),
            (
                About(
                    "max_pending_total_bytes",
                    "bytes",
                    "Output above which no more clients are accepted.",
                ),
                limits.max_pending_total.into(),
            ),
            (
                About(
                    "gateway_in_flight",
                    "",
                    "Requests that wait for their replies.",
                ),
                shared.gauge(Gauge::GatewayInFlight).into(),
            ),
            (
                About("ready", "", "Whether clients should come."),
                u64::from(is_ready).into(),
            ),
            (
                About(
                    "start_time_seconds",
                    "seconds",
                    "When the broker started, in Unix time.",
                ),
                started.into(),
            ),
        ];
        for (about, value) in levels {
            families.gauge(about, value);
        }
    }
}

/// Why connections ended, and why messages never reach a receiver.
fn reasons(families: &mut Families<'_>) {
    let closed: Vec<_> = families.totals.closed_by_reason().collect();
    let about = About("connections_closed", "", "Connections that ended.");
    families.by(Kind::Counter, about, "reason", closed);
    let dropped: Vec<_> = families.totals.dropped_by_reason().collect();
    let about = About(
        "dropped_messages",
        "",
        "Messages that will never reach a receiver.",
    );
    families.by(Kind::Counter, about, "reason", dropped);
}

fn shards(families: &mut Families<'_>) {
    let about = About("shard_turns", "", "Turns in which something came.");
    families.by_shard(Kind::Counter, about, |shard| shard.turns.count().into());
    let about = About(
        "shard_cpu_seconds",
        "seconds",
        "Processor time of the shard's thread.",
    );
    families.by_shard(Kind::Counter, about, |shard| {
        (shard.gauge(Gauge::Cpu) as f64 / 1e9).into()
    });
    let about = About("shard_calls", "", "System calls of the shard.");
    families.by_shard_and(Kind::Counter, about, "call", calls);
    for (about, gauge) in SHARD_GAUGES {
        families.by_shard(Kind::Gauge, *about, |shard| shard.gauge(*gauge).into());
    }
    let about = About("accept_queue", "", "Connections that wait to be accepted.");
    families.by_shard_and(Kind::Gauge, about, "listener", |shard| {
        [
            ("tcp", shard.gauge(Gauge::AcceptQueueTcp)),
            ("http", shard.gauge(Gauge::AcceptQueueHttp)),
        ]
    });
}

fn durations(families: &mut Families<'_>) {
    let shards = &families.shared.published;
    let turns = Distribution::sum(shards.iter().map(|shard| &shard.turns));
    let batches = Distribution::sum(shards.iter().map(|shard| &shard.batches));
    let waits = waits(families.shared);
    let about = About(
        "turn_duration_seconds",
        "seconds",
        "How long turns took in which something came.",
    );
    families.seconds(about, &turns);
    let about = About(
        "turn_received_batch",
        "",
        "Connections from which something came in a turn.",
    );
    families.counts(about, &batches);
    let about = About(
        "gateway_request_duration_seconds",
        "seconds",
        "How long callers waited for replies.",
    );
    families.seconds(about, &waits);
}

/// What the log has left out.
fn log(families: &mut Families<'_>) {
    let log = &families.shared.log;
    let about = About(
        "log_suppressed",
        "",
        "Lines left out of the log for their number.",
    );
    families.by(Kind::Counter, about, "kind", log.suppressed());
    let about = About("log_lost", "", "Lines of the log that nobody took in time.");
    families.total(about, log.lost());
}

/// What client libraries of Prometheus say of any process.
fn process(families: &mut Families<'_>, resident: u64) {
    let started = unix(families.shared.start);
    let memory = Metric {
        name: "process_resident_memory_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Resident memory.",
    };
    let cpu = Metric {
        name: "process_cpu_seconds",
        kind: Kind::Counter,
        unit: "seconds",
        help: "Processor time of all threads.",
    };
    let start = Metric {
        name: "process_start_time_seconds",
        kind: Kind::Gauge,
        unit: "seconds",
        help: "When the broker started, in Unix time.",
    };
    families.foreign(memory, resident);
    families.foreign(cpu, reactor::process_cpu_time().as_secs_f64());
    families.foreign(start, started);
}
