//! The listeners of a shard. A file of its own, because listeners are paused from several parts.

use std::time::Instant;

use crate::io::Io;
use crate::transport::ListenerKind;

/// The kinds of a shard's listeners, by the indices that the reactor gives them.
pub(crate) struct Listeners(Vec<ListenerKind>);

impl Listeners {
    /// Return the listeners of these kinds.
    pub(crate) const fn new(kinds: Vec<ListenerKind>) -> Self {
        Self(kinds)
    }

    /// Return the kind of a listener.
    pub(crate) fn kind(&self, listener: usize) -> Option<ListenerKind> {
        self.0.get(listener).copied()
    }

    /// Return all kinds, in the order of their indices.
    pub(crate) fn kinds(&self) -> &[ListenerKind] {
        &self.0
    }

    /// Return whether this shard has the monitor's listener.
    pub(crate) fn has_monitor(&self) -> bool {
        self.0.contains(&ListenerKind::Monitor)
    }

    /// Accept no clients until `until`.
    pub(crate) fn pause_clients(&self, io: &mut Io, until: Instant) {
        for listener in self.clients() {
            io.pause_accepting(listener, until);
        }
    }

    /// Accept no callers of the monitor until `until`.
    pub(crate) fn pause_monitor(&self, io: &mut Io, until: Instant) {
        let monitor = self
            .0
            .iter()
            .position(|kind| *kind == ListenerKind::Monitor);
        if let Some(listener) = monitor {
            io.pause_accepting(listener, until);
        }
    }

    /// Accept no more clients.
    pub(crate) fn close_clients(&self, io: &mut Io) {
        for listener in self.clients() {
            io.close_listener(listener);
        }
    }

    fn clients(&self) -> impl Iterator<Item = usize> {
        let is_for_clients = |kind: &ListenerKind| *kind != ListenerKind::Monitor;
        let all = self.0.iter().enumerate();
        all.filter(move |(_, kind)| is_for_clients(kind))
            .map(|(index, _)| index)
    }
}
