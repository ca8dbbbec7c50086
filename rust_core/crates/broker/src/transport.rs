//! The kinds of connections. A file of its own, because counters, log and sessions know them.

use telemetry::key::Key;

/// The kinds of listeners, by the protocol of their connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    Tcp,
    Http,
    Monitor,
}

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
