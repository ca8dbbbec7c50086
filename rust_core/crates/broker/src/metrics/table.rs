//! The table of metrics, which `/varz`, `/metrics` and `/history` read.
//!
//! Each metric stands here once: its name for Prometheus, its help, its labels, its places in `/varz` and
//! its columns in `/history`. `docs/reference/metrics.md` says the same with more words; a test compares
//! both. Metrics that are one number of each shard are [`Counter`], [`Flow`] and [`Gauge`]; the others are
//! [`Composite`], and `monitor::snapshot` knows their values.

use telemetry::metric::{Column, Metric};

telemetry::keys! {
    /// A count of each shard.
    pub(crate) enum Counter: Metric {
        AcceptFailures = Metric::counter(
            "subjectbus_accept_failures",
            "Attempts to accept a connection that failed because no descriptor or memory was left.",
        )
        .places(&["accept_failures"]),
        Dismissed = Metric::counter(
            "subjectbus_connections_dismissed",
            "Connections closed without a word as soon as they came, because too many were being told why they have no place.",
        )
        .places(&["dismissed_connections"]),
        Subscribed = Metric::counter("subjectbus_subscriptions_added", "Subscriptions made.")
            .places(&["total_subscribed"]),
        Unsubscribed = Metric::counter(
            "subjectbus_subscriptions_removed",
            "Subscriptions removed, by their client or with their connection.",
        )
        .places(&["total_unsubscribed"]),
        WireBytesIn = Metric::counter(
            "subjectbus_wire_received_bytes",
            "Bytes read from connections, frames and operations included.",
        )
        .places(&["wire_bytes_in"]),
        WireBytesOut = Metric::counter(
            "subjectbus_wire_sent_bytes",
            "Bytes that the kernel took, frames and operations included.",
        )
        .places(&["wire_bytes_out"]),
        Writes = Metric::counter("subjectbus_writes", "Writes to connections.").places(&["writes"]),
        NoResponders = Metric::counter(
            "subjectbus_no_responders",
            "Requests to subjects without a subscriber, answered by the no-responders status.",
        )
        .places(&["no_responders"]),
        Stalls = Metric::counter(
            "subjectbus_stalls",
            "Pauses of a publisher because a receiver fell behind.",
        )
        .places(&["stalled_clients"]),
        Errors = Metric::counter("subjectbus_protocol_errors", "Errors (-ERR) sent to clients.")
            .places(&["errors"]),
        HttpRequests = Metric::counter(
            "subjectbus_http_requests",
            "HTTP requests to all listeners, the monitor's included.",
        )
        .places(&["http_requests"]),
        HttpErrors = Metric::counter(
            "subjectbus_http_errors",
            "HTTP answers with an error, also to bytes that could not be read as a request.",
        )
        .places(&["http_errors"]),
        EventStreams = Metric::counter(
            "subjectbus_event_streams",
            "Streams of Server-Sent Events begun.",
        )
        .places(&["event_streams"]),
        GatewayRequests = Metric::counter(
            "subjectbus_gateway_requests",
            "HTTP requests that were published to wait for a reply.",
        )
        .places(&["gateway_requests", "gateway.requests"])
        .columns(&[Column::per_second("gateway_requests_per_s")]),
        GatewayTimeouts = Metric::counter(
            "subjectbus_gateway_timeouts",
            "HTTP requests that were published and got no reply in time.",
        )
        .places(&["gateway_timeouts", "gateway.timeouts"]),
        Matched = Metric::counter(
            "subjectbus_matched_messages",
            "Receivers that the routing table named, summed over all published messages.",
        )
        .places(&["conservation.matched"]),
        Delivered = Metric::counter(
            "subjectbus_delivered_messages",
            "Messages that the kernel has taken to the last byte.",
        )
        .places(&["conservation.delivered"]),
    }
}

telemetry::keys! {
    /// A count of each shard that is kept for each transport.
    pub(crate) enum Flow: Metric {
        Opened = Metric::counter(
            "subjectbus_connections_opened",
            "Connections opened, by transport; a connection that is upgraded counts for both.",
        )
        .labels(&["transport"])
        .places(&["transports.*.opened"]),
        Closed = Metric::counter(
            "subjectbus_connections_transport_closed",
            "Connections that ended, by the transport that they spoke last.",
        )
        .labels(&["transport"])
        .places(&["closed_connections", "transports.*.closed"])
        .columns(&[Column::per_second("closed_per_s")]),
        InMsgs = Metric::counter(
            "subjectbus_received_messages",
            "Messages published by clients.",
        )
        .labels(&["transport"])
        .places(&["in_msgs", "transports.*.in_msgs", "conservation.published"])
        .columns(&[Column::per_second("in_msgs_per_s")]),
        InBytes = Metric::counter(
            "subjectbus_received_bytes",
            "Bytes of headers and payloads of messages published by clients.",
        )
        .labels(&["transport"])
        .places(&["in_bytes", "transports.*.in_bytes"])
        .columns(&[Column::per_second("in_bytes_per_s")]),
        OutMsgs = Metric::counter(
            "subjectbus_sent_messages",
            "Messages appended to the output of clients.",
        )
        .labels(&["transport"])
        .places(&["out_msgs", "transports.*.out_msgs"])
        .columns(&[Column::per_second("out_msgs_per_s")]),
        OutBytes = Metric::counter(
            "subjectbus_sent_bytes",
            "Bytes of headers and payloads of messages appended to the output of clients.",
        )
        .labels(&["transport"])
        .places(&["out_bytes", "transports.*.out_bytes"])
        .columns(&[Column::per_second("out_bytes_per_s")]),
    }
}

telemetry::keys! {
    /// A measurement of each shard, taken once a second unless its comment says otherwise.
    pub(crate) enum Gauge: Metric {
        Mailbox = Metric::gauge(
            "subjectbus_mailbox_messages",
            "Most mail from all shards that the shard found waiting at once within the last second.",
        )
        .labels(&["shard"])
        .places(&["shard[].mailbox"]),
        /// Kept at once.
        GatewayInFlight = Metric::gauge(
            "subjectbus_gateway_in_flight",
            "HTTP requests that wait for their replies.",
        )
        .places(&["gateway.in_flight"])
        .columns(&[Column::level("gateway_in_flight")]),
        /// In nanoseconds.
        Cpu = Metric::counter(
            "subjectbus_shard_cpu_seconds",
            "Processor time of the shard's thread.",
        )
        .labels(&["shard"])
        .places(&["shard[].cpu_s"]),
        CpuAt = Metric::internal(
            "Time at which the processor time was measured, in nanoseconds since the broker's start.",
        ),
        HalfOpen = Metric::gauge(
            "subjectbus_connections_half_open",
            "Connections of clients that have not introduced themselves yet, by CONNECT or a request.",
        )
        .places(&["half_open_connections"]),
        Descriptors = Metric::gauge(
            "subjectbus_descriptors",
            "Descriptors taken by connections and listeners of the shard.",
        )
        .labels(&["shard"])
        .places(&["shard[].descriptors.used"]),
        DescriptorLimit = Metric::gauge(
            "subjectbus_descriptors_limit",
            "Descriptors that connections and listeners of the shard may take.",
        )
        .labels(&["shard"])
        .places(&["shard[].descriptors.limit"]),
        ConnectionBytes = Metric::internal("Bytes held for connections."),
        BufferBytes = Metric::internal("Bytes of buffers."),
    }
}

telemetry::keys! {
    /// A metric with a number for each value of a label, one that follows from others, or one that is
    /// measured when a page is read.
    pub(crate) enum Composite: Metric {
        Connections = Metric::gauge("subjectbus_connections", "Connections of clients that are open.")
            .labels(&["transport"])
            .places(&["connections", "transports.*.connections"])
            .columns(&[Column::level("connections"), Column::level("connections_*")]),
        MaxConnections = Metric::gauge(
            "subjectbus_max_connections",
            "Connections of clients beyond which new ones are refused.",
        )
        .places(&["max_connections"]),
        ConnectionsOpened = Metric::internal("Connections opened, each once, whether upgraded or not.")
            .places(&["total_connections"])
            .columns(&[Column::per_second("opened_per_s")]),
        WebSocketsOpened = Metric::internal("Connections that were upgraded to WebSocket.")
            .places(&["total_websockets"]),
        ConnectionsClosed = Metric::counter(
            "subjectbus_connections_closed",
            "Connections that ended, by reason.",
        )
        .labels(&["reason"])
        .places(&["closed.*"]),
        SlowConsumers = Metric::internal("Connections that ended as slow consumers, by the name of NATS.")
            .places(&["slow_consumers"]),
        StaleConnections = Metric::internal("Connections that ended as stale, by the name of NATS.")
            .places(&["stale_connections"]),
        Subscriptions = Metric::gauge("subjectbus_subscriptions", "Subscriptions that exist.")
            .places(&["subscriptions"])
            .columns(&[Column::level("subscriptions")]),
        Subjects = Metric::gauge(
            "subjectbus_subjects",
            "Different subjects that are subscribed to.",
        )
        .places(&["subjects"]),
        DroppedMessages = Metric::counter(
            "subjectbus_dropped_messages",
            "Messages that will never reach a receiver, by reason.",
        )
        .labels(&["reason"])
        .places(&["conservation.dropped.*"])
        .columns(&[Column::per_second("dropped_per_s")]),
        PendingMessages = Metric::gauge(
            "subjectbus_pending_messages",
            "Messages that wait for a receiver, by place: in outputs, or in mail between shards.",
        )
        .labels(&["place"])
        .places(&["conservation.pending"]),
        PendingBytes = Metric::gauge(
            "subjectbus_pending_bytes",
            "Bytes of output that wait for clients to read.",
        )
        .places(&["pending_bytes", "shard[].pending_bytes"])
        .columns(&[Column::level("pending_bytes")]),
        HeldMemory = Metric::gauge(
            "subjectbus_held_memory_bytes",
            "Bytes that connections hold: state, output, kept input, subscriptions, and buffers.",
        )
        .places(&["held_memory"])
        .columns(&[Column::level("mem_held_bytes")]),
        MaxMemory = Metric::gauge(
            "subjectbus_max_memory_bytes",
            "Bytes that connections may hold; above, those that hold most are ended.",
        )
        .places(&["max_memory"]),
        // The history has what is pending as `pending_bytes`, and the rest follows from `mem_bytes`.
        Memory = Metric::gauge("subjectbus_memory_bytes", "Resident memory, by purpose.")
            .labels(&["purpose"])
            .places(&["memory.*"])
            .columns(&[Column::level("mem_*_bytes").only(&["connections", "routing", "buffers"])]),
        ResidentMemory = Metric::gauge(
            "process_resident_memory_bytes",
            "Resident memory of the process.",
        )
        .places(&["mem"])
        .columns(&[Column::level("mem_bytes")]),
        ProcessCpu = Metric::counter(
            "process_cpu_seconds",
            "Processor time of all threads of the process.",
        ),
        CpuPercent = Metric::internal("Processor time of late, in percent of one core.")
            .places(&["cpu", "shard[].cpu_percent"])
            .columns(&[Column::level("cpu_percent"), Column::level("cpu_percent_shard_*")]),
        ShardIndex = Metric::internal("Number of the shard.").places(&["shard[].index"]),
        ShardConnections = Metric::internal("Connections of clients on the shard.")
            .places(&["shard[].connections"]),
        ShardTurns = Metric::counter(
            "subjectbus_shard_turns",
            "Turns of the shard that had something to do.",
        )
        .labels(&["shard"])
        .places(&["shard[].turns"]),
        ShardCalls = Metric::counter("subjectbus_shard_calls", "System calls of the shard, by call.")
            .labels(&["shard", "call"])
            .places(&["shard[].calls.*"]),
        AcceptQueue = Metric::gauge(
            "subjectbus_accept_queue",
            "Connections that the kernel has established and the shard has not accepted.",
        )
        .labels(&["shard", "listener"])
        .places(&["shard[].accept_queue.*"]),
        TurnDuration = Metric::histogram(
            "subjectbus_turn_duration_seconds",
            "Duration of turns that had something to do.",
        ),
        TurnBatch = Metric::histogram(
            "subjectbus_turn_received_batch",
            "Reads that brought something in a turn, of turns that had any.",
        ),
        GatewayDuration = Metric::histogram(
            "subjectbus_gateway_request_duration_seconds",
            "Time from the publishing of an HTTP request to its reply.",
        )
        .places(&["gateway.duration_us"])
        .columns(&[
            Column::quantile("gateway_p50_us", 0.5),
            Column::quantile("gateway_p99_us", 0.99),
        ]),
        LogSuppressed = Metric::counter(
            "subjectbus_log_suppressed",
            "Lines left out of the log because there were too many of their kind.",
        )
        .labels(&["kind"])
        .places(&["log.suppressed.*"]),
        LogLost = Metric::counter(
            "subjectbus_log_lost",
            "Lines of the log that standard error did not take in time.",
        )
        .places(&["log.lost"]),
        Ready = Metric::gauge(
            "subjectbus_ready",
            "Whether new connections are welcome: 1, or 0 while the broker drains.",
        ),
        Build = Metric::info("subjectbus_build", "Version and driver of the broker; always 1.")
            .labels(&["version", "driver"]),
        StartTime = Metric::gauge(
            "subjectbus_start_time_seconds",
            "Unix time at which the broker started.",
        ),
        ProcessStartTime = Metric::gauge(
            "process_start_time_seconds",
            "Unix time at which the broker started, by the name that client libraries use.",
        ),
    }
}

telemetry::keys! {
    /// The reason why a message will never reach a receiver.
    pub(crate) enum Dropped: &'static str {
        /// The receiver did not keep up.
        SlowConsumer = "slow_consumer",
        /// The receiver was gone, or left before the bytes were taken.
        Closed = "closed",
        /// The receiver had unsubscribed meanwhile, or had its maximum.
        Unsubscribed = "unsubscribed",
        /// The broker's memory was used up, and the receiver held most of all.
        NoMemory = "no_memory",
        /// The broker ended.
        Shutdown = "shutdown",
    }
}

telemetry::keys! {
    /// A place where messages wait.
    pub(crate) enum PendingPlace: &'static str {
        /// Outputs of clients, until the kernel has taken the last byte.
        Output = "output",
        /// Mail from shard to shard. The sender adds and the addressee subtracts, each on its own cell.
        Mail = "mail",
    }
}

telemetry::keys! {
    /// A system call.
    pub(crate) enum SystemCall: &'static str {
        /// io_uring_enter(2).
        Enter = "enter",
        /// epoll_wait(2).
        Wait = "wait",
        /// recv(2).
        Receive = "receive",
        /// accept(2).
        Accept = "accept",
    }
}

telemetry::keys! {
    /// A listener whose connections may have to wait.
    pub(crate) enum ClientListener: &'static str {
        Tcp = "tcp",
        Http = "http",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use telemetry::key::Key;

    use super::*;

    fn all() -> Vec<&'static Metric> {
        let counters = Counter::ALL.iter().map(|key| key.about());
        let flows = Flow::ALL.iter().map(|key| key.about());
        let gauges = Gauge::ALL.iter().map(|key| key.about());
        let composites = Composite::ALL.iter().map(|key| key.about());
        counters
            .chain(flows)
            .chain(gauges)
            .chain(composites)
            .collect()
    }

    fn assert_unique<'a>(names: impl Iterator<Item = &'a str>) {
        let mut seen = HashSet::new();
        names.for_each(|name| assert!(seen.insert(name), "{name} stands twice"));
    }

    #[test]
    fn every_name_stands_once() {
        let metrics = all();
        let names = metrics.iter().map(|metric| metric.name);
        assert_unique(names.filter(|name| !name.is_empty()));
        assert_unique(metrics.iter().flat_map(|metric| metric.places).copied());
        let columns = metrics.iter().flat_map(|metric| metric.columns);
        assert_unique(columns.map(|column| column.name));
    }

    #[test]
    fn every_help_is_a_sentence_that_stands_alone() {
        for metric in all() {
            let help = metric.help;
            assert!(help.ends_with('.') && help.len() > 10, "{help}");
            assert!(
                help.starts_with(|first: char| first.is_ascii_uppercase()),
                "{help}"
            );
            for word in ["Of ", "Those ", "Their ", "They ", "What ", "None "] {
                assert!(!help.starts_with(word), "{help}");
            }
        }
    }

    #[test]
    fn names_are_those_of_prometheus() {
        for metric in all() {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(metric.name.bytes().all(is_plain), "{}", metric.name);
            assert!(!metric.name.ends_with("_total"), "{}", metric.name);
        }
    }
}
