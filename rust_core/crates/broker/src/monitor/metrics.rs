//! `/metrics`: everything that is counted or measured, for Prometheus.

use super::Monitor;
use super::exposition::{Buckets, Exposition, Format, Kind, Labels, Metric, Number};
use super::time::{Clock, unix};
use super::varz::calls;
use super::watch::waits;
use crate::counters::{Counter, Flow, Gauge, Published, Totals};
use crate::histogram::Distribution;
use crate::session::TransportKind;
use crate::shared::Shared;

/// Powers of two in nanoseconds that are told apart: from 1 us to 17 s.
const NANOS: (u32, u32) = (10, 34);
/// Powers of two of the connections of a turn.
const BATCHES: (u32, u32) = (1, 16);

/// The metrics as they are put together.
struct Metrics<'a> {
    shared: &'a Shared,
    totals: Totals,
    out: Exposition,
}

impl Monitor {
    pub(crate) fn metrics(&self, shared: &Shared, format: Format, is_ready: bool) -> String {
        let mut metrics = Metrics {
            shared,
            totals: shared.totals(),
            out: Exposition::new(format),
        };
        metrics.connections();
        metrics.messages();
        metrics.gateway();
        metrics.shards();
        metrics.gauge(
            "subjects",
            "",
            "Different subjects that are subscribed to.",
            self.watch.extent().subjects,
        );
        let memory = self.watch.memory(shared);
        metrics.samples(
            Kind::Gauge,
            "memory_bytes",
            "bytes",
            "Resident memory by what it is for.",
            "purpose",
            memory.by_purpose(),
        );
        metrics.log();
        metrics.process(memory.resident, is_ready);
        metrics.out.finish()
    }
}

impl Metrics<'_> {
    fn connections(&mut self) {
        self.flow(
            "connections_opened",
            "",
            "Connections that began to speak it.",
            Flow::Opened,
        );
        self.flow(
            "connections_transport_closed",
            "",
            "Connections that ended while they spoke it.",
            Flow::Closed,
        );
        let closed: Vec<_> = self.totals.closed_by_reason().collect();
        let help = "Connections that ended.";
        self.samples(
            Kind::Counter,
            "connections_closed",
            "",
            help,
            "reason",
            closed,
        );
        let open = TransportKind::ALL.map(|kind| (kind.name(), self.totals.connections_over(kind)));
        self.samples(
            Kind::Gauge,
            "connections",
            "",
            "Clients connected now.",
            "transport",
            open,
        );
        let max = self.shared.limits.max_connections;
        self.gauge("max_connections", "", "Clients that may be connected.", max);
        for (name, help, counter) in [
            (
                "accept_failures",
                "Connections that could not be accepted for want of descriptors.",
                Counter::AcceptFailures,
            ),
            (
                "protocol_errors",
                "Errors sent to clients.",
                Counter::Errors,
            ),
            (
                "http_requests",
                "Requests of HTTP, the monitor's included.",
                Counter::HttpRequests,
            ),
            (
                "http_errors",
                "Requests of HTTP that were answered by an error.",
                Counter::HttpErrors,
            ),
            (
                "event_streams",
                "Streams of events begun.",
                Counter::EventStreams,
            ),
        ] {
            self.counter(name, "", help, counter);
        }
    }

    fn messages(&mut self) {
        for (name, unit, help, flow) in [
            (
                "received_messages",
                "",
                "Messages published by clients.",
                Flow::InMsgs,
            ),
            (
                "received_bytes",
                "bytes",
                "Their headers and payloads.",
                Flow::InBytes,
            ),
            (
                "sent_messages",
                "",
                "Messages appended to clients' output.",
                Flow::OutMsgs,
            ),
            (
                "sent_bytes",
                "bytes",
                "Their headers and payloads.",
                Flow::OutBytes,
            ),
        ] {
            self.flow(name, unit, help, flow);
        }
        for (name, unit, help, counter) in [
            (
                "subscriptions_added",
                "",
                "Subscriptions made.",
                Counter::Subscribed,
            ),
            (
                "subscriptions_removed",
                "",
                "Subscriptions removed.",
                Counter::Unsubscribed,
            ),
            (
                "wire_received_bytes",
                "bytes",
                "Received, frames and operations included.",
                Counter::WireBytesIn,
            ),
            (
                "wire_sent_bytes",
                "bytes",
                "Taken by the kernel, frames and operations included.",
                Counter::WireBytesOut,
            ),
            ("writes", "", "Writes that sent them.", Counter::Writes),
            (
                "matched_messages",
                "",
                "Receivers named by the routing table.",
                Counter::Matched,
            ),
            (
                "delivered_messages",
                "",
                "Messages wholly taken by the kernel.",
                Counter::Delivered,
            ),
            (
                "no_responders",
                "",
                "Requests that nobody had subscribed to.",
                Counter::NoResponders,
            ),
            (
                "stalls",
                "",
                "Publishers paused because a receiver fell behind.",
                Counter::Stalls,
            ),
        ] {
            self.counter(name, unit, help, counter);
        }
        let dropped: Vec<_> = self.totals.dropped_by_reason().collect();
        let help = "Messages that will never reach a receiver.";
        self.samples(
            Kind::Counter,
            "dropped_messages",
            "",
            help,
            "reason",
            dropped,
        );
        let subscriptions = self.totals.subscriptions();
        self.gauge(
            "subscriptions",
            "",
            "Subscriptions that exist now.",
            subscriptions,
        );
        let pending = self.shared.backlog();
        self.gauge(
            "pending_bytes",
            "bytes",
            "Output that clients do not take.",
            pending,
        );
        let most = self.shared.limits.max_pending_total;
        self.gauge(
            "max_pending_total_bytes",
            "bytes",
            "Output above which no more clients are accepted.",
            most,
        );
    }

    fn gateway(&mut self) {
        let help = "Requests of HTTP that were published to wait for a reply.";
        self.counter("gateway_requests", "", help, Counter::GatewayRequests);
        let help = "Of these, without a reply in time.";
        self.counter("gateway_timeouts", "", help, Counter::GatewayTimeouts);
        let in_flight = self.shared.gauge(Gauge::GatewayInFlight);
        self.gauge(
            "gateway_in_flight",
            "",
            "Requests that wait for their replies.",
            in_flight,
        );
        let waits = waits(self.shared);
        let name = "gateway_request_duration_seconds";
        self.seconds(name, "How long callers waited for replies.", &waits);
    }

    fn shards(&mut self) {
        let all = &self.shared.published;
        let turns = Distribution::sum(all.iter().map(|shard| &shard.turns));
        self.seconds(
            "turn_duration_seconds",
            "How long turns took in which something came.",
            &turns,
        );
        let batches = Distribution::sum(all.iter().map(|shard| &shard.batches));
        // Whole numbers: not above a bound is below the next one.
        let cumulative: Vec<_> = batches
            .cumulative(BATCHES.0, BATCHES.1)
            .map(|(bound, count)| ((bound - 1) as f64, count))
            .collect();
        let buckets = Buckets {
            cumulative: &cumulative,
            count: batches.count(),
            sum: batches.total() as f64,
        };
        let help = "Connections from which something came in a turn.";
        self.family(Kind::Histogram, "turn_received_batch", "", help, |family| {
            family.histogram(&[], buckets);
        });
        self.by_shard(
            Kind::Counter,
            "shard_turns",
            "",
            "Turns in which something came.",
            |shard| shard.turns.count().into(),
        );
        let help = "Processor time of the shard's thread.";
        self.by_shard(
            Kind::Counter,
            "shard_cpu_seconds",
            "seconds",
            help,
            |shard| (shard.gauge(Gauge::Cpu) as f64 / 1e9).into(),
        );
        for (name, help, gauge) in [
            (
                "mailbox_messages",
                "Mail that waits for the shard.",
                Gauge::Mailbox,
            ),
            (
                "descriptors",
                "Descriptors of connections and listeners.",
                Gauge::Descriptors,
            ),
            (
                "descriptors_limit",
                "Descriptors that there may be.",
                Gauge::DescriptorLimit,
            ),
        ] {
            self.by_shard(Kind::Gauge, name, "", help, |shard| {
                shard.gauge(gauge).into()
            });
        }
        let help = "System calls of the shard.";
        self.by_shard_and(Kind::Counter, "shard_calls", help, "call", |shard| {
            calls(shard).to_vec()
        });
        let help = "Connections that wait to be accepted.";
        self.by_shard_and(Kind::Gauge, "accept_queue", help, "listener", |shard| {
            vec![
                ("tcp", shard.gauge(Gauge::AcceptQueueTcp)),
                ("http", shard.gauge(Gauge::AcceptQueueHttp)),
            ]
        });
    }

    fn log(&mut self) {
        let log = &self.shared.log;
        let help = "Lines left out of the log for their number.";
        self.family(Kind::Counter, "log_suppressed", "", help, |family| {
            for (kind, count) in log.suppressed() {
                family.sample(&[("kind", kind)], count);
            }
        });
        let help = "Lines of the log that nobody took in time.";
        self.single(Kind::Counter, "log_lost", "", help, log.lost().into());
    }

    fn process(&mut self, resident: u64, is_ready: bool) {
        self.gauge(
            "ready",
            "",
            "Whether clients should come.",
            u64::from(is_ready),
        );
        let started = unix(Clock::new(self.shared.started.elapsed()).at(0));
        let help = "When the broker started, in Unix time.";
        self.gauge("start_time_seconds", "seconds", help, started);
        let driver = self.shared.driver.to_string();
        self.family(Kind::Info, "build", "", "The broker's build.", |family| {
            let version = env!("CARGO_PKG_VERSION");
            family.sample(&[("version", version), ("driver", &driver)], 1_u64);
        });
        let cpu = reactor::process_cpu_time().as_secs_f64();
        for (name, kind, unit, help, value) in [
            (
                "process_resident_memory_bytes",
                Kind::Gauge,
                "bytes",
                "Resident memory.",
                Number::from(resident),
            ),
            (
                "process_cpu_seconds",
                Kind::Counter,
                "seconds",
                "Processor time of all threads.",
                cpu.into(),
            ),
            (
                "process_start_time_seconds",
                Kind::Gauge,
                "seconds",
                "When the process started serving, in Unix time.",
                started.into(),
            ),
        ] {
            let metric = Metric {
                name,
                kind,
                unit,
                help,
            };
            self.out.family(metric).sample(&[], value);
        }
    }

    /// A family whose name begins as all of ours.
    fn family(
        &mut self,
        kind: Kind,
        name: &str,
        unit: &str,
        help: &str,
        write: impl FnOnce(&mut super::exposition::Family<'_>),
    ) {
        let name = format!("subjectbus_{name}");
        let metric = Metric {
            name: &name,
            kind,
            unit,
            help,
        };
        write(&mut self.out.family(metric));
    }

    /// A family with one sample.
    fn single(&mut self, kind: Kind, name: &str, unit: &str, help: &str, value: Number) {
        self.family(kind, name, unit, help, |family| {
            family.sample(&[], value);
        });
    }

    fn gauge(&mut self, name: &str, unit: &str, help: &str, value: impl Into<Number>) {
        self.single(Kind::Gauge, name, unit, help, value.into());
    }

    fn counter(&mut self, name: &str, unit: &str, help: &str, counter: Counter) {
        let value = self.totals.value(counter);
        self.single(Kind::Counter, name, unit, help, value.into());
    }

    /// A family with a sample for each value of one label.
    fn samples(
        &mut self,
        kind: Kind,
        name: &str,
        unit: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        self.family(kind, name, unit, help, |family| {
            for (text, value) in values {
                family.sample(&[(label, text)], value);
            }
        });
    }

    fn flow(&mut self, name: &str, unit: &str, help: &str, flow: Flow) {
        let values = TransportKind::ALL.map(|kind| (kind.name(), self.totals.flow(kind, flow)));
        self.samples(Kind::Counter, name, unit, help, "transport", values);
    }

    fn by_shard(
        &mut self,
        kind: Kind,
        name: &str,
        unit: &str,
        help: &str,
        value: impl Fn(&Published) -> Number,
    ) {
        let shared = self.shared;
        self.family(kind, name, unit, help, |family| {
            for (index, shard) in shared.published.iter().enumerate() {
                family.sample(&[("shard", &index.to_string())], value(shard));
            }
        });
    }

    /// A family with a sample for each shard and each value of another label.
    fn by_shard_and(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        label: &str,
        values: impl Fn(&Published) -> Vec<(&'static str, u64)>,
    ) {
        let shared = self.shared;
        self.family(kind, name, "", help, |family| {
            for (index, shard) in shared.published.iter().enumerate() {
                for (text, value) in values(shard) {
                    let labels: Labels<'_> = &[("shard", &index.to_string()), (label, text)];
                    family.sample(labels, value);
                }
            }
        });
    }

    /// A histogram of lengths of time in nanoseconds.
    fn seconds(&mut self, name: &str, help: &str, times: &Distribution) {
        let cumulative: Vec<_> = times
            .cumulative(NANOS.0, NANOS.1)
            .map(|(bound, count)| (bound as f64 / 1e9, count))
            .collect();
        let buckets = Buckets {
            cumulative: &cumulative,
            count: times.count(),
            sum: times.total() as f64 / 1e9,
        };
        self.family(Kind::Histogram, name, "seconds", help, |family| {
            family.histogram(&[], buckets);
        });
    }
}
