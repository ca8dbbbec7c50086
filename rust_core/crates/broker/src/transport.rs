//! The kinds of connections. A file of its own, which counters, log and sessions can all know.

use telemetry::key::Key;

telemetry::keys! {
    /// The protocol of a connection, as counters and log name it.
    pub(crate) enum TransportKind: &'static str {
        /// NATS over plain TCP.
        Tcp = "tcp",
        /// NATS over WebSocket, or the echo.
        WebSocket = "websocket",
        /// Requests to the gateway, and streams of events.
        Http = "http",
    }
}

impl TransportKind {
    /// Return the name that pages and log lines have.
    pub(crate) fn name(self) -> &'static str {
        self.about()
    }
}
