//! The reasons of ends. A file of its own, because counters, log and sessions know them.

use telemetry::key::Key;

telemetry::keys! {
    /// The reason why a connection ended.
    pub(crate) enum Reason: &'static str {
        /// The client closed it, or sent its last byte.
        ClientClosed = "client_closed",
        /// The connection was reset, timed out, or its peer was unreachable.
        ConnectionFailed = "connection_failed",
        /// The client did not take its messages in time.
        SlowConsumer = "slow_consumer",
        /// Pings went unanswered.
        Stale = "stale",
        /// An operation, frame or request was malformed.
        ProtocolError = "protocol_error",
        /// A text was not UTF-8.
        InvalidText = "invalid_text",
        /// A message was beyond the limit.
        PayloadTooLarge = "payload_too_large",
        /// A control line was beyond the limit.
        ControlLineTooLong = "control_line_too_long",
        /// No more clients were allowed.
        TooManyConnections = "too_many_connections",
        /// No more connections of its address were allowed.
        TooManyFromAddress = "too_many_from_address",
        /// A newcomer got its place, because it had not introduced itself.
        Evicted = "evicted",
        /// The broker's memory was used up, and the connection held most of all, or was new.
        NoMemory = "no_memory",
        /// No handshake, request or `CONNECT` came in time.
        HandshakeTimeout = "handshake_timeout",
        /// An HTTP request was answered, or refused.
        HttpAnswered = "http_answered",
        /// `CONNECT` asked for a feature that a server must refuse.
        Refused = "refused",
        /// The broker was shutting down.
        Shutdown = "shutdown",
    }
}

impl Reason {
    /// Return the name that pages and log lines have.
    pub(crate) fn name(self) -> &'static str {
        self.about()
    }
}
