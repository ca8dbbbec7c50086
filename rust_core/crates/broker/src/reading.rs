//! The connections of a shard that are being read, or wait to be read.

use std::collections::VecDeque;

use reactor::ConnId;

/// The connection whose bytes are being read, and the connections that are read on in later turns.
#[derive(Default)]
pub(crate) struct Reading {
    /// The connection whose operations are being read; `None` once it has ended.
    current: Option<ConnId>,
    /// Whether that connection is not to be read further for now.
    is_stalled: bool,
    /// Connections with received bytes that wait for a turn with budget, the next one first.
    waiting: VecDeque<ConnId>,
}

impl Reading {
    /// Begin to read a connection.
    #[inline]
    pub(crate) fn begin(&mut self, id: ConnId) {
        self.current = Some(id);
        self.is_stalled = false;
    }

    /// Return whether the connection that is being read has not ended.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        self.current.is_some()
    }

    /// Return whether this connection is being read.
    pub(crate) fn is_current(&self, id: ConnId) -> bool {
        self.current == Some(id)
    }

    /// Return whether the connection that is being read must not be read further for now.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// End reading; return whether the connection has not ended meanwhile.
    #[inline]
    pub(crate) fn end(&mut self) -> bool {
        self.current.take().is_some()
    }

    /// Note that a connection has ended, so that no more of it is read.
    pub(crate) fn note_ended(&mut self, id: ConnId) {
        if self.is_current(id) {
            self.current = None;
        }
    }

    /// Note that a connection is not to be read further for now.
    pub(crate) fn note_stalled(&mut self, id: ConnId) {
        self.is_stalled |= self.is_current(id);
    }

    /// Have a connection wait for a turn with budget.
    pub(crate) fn put_off(&mut self, id: ConnId) {
        self.waiting.push_back(id);
    }

    /// Take the connection that has waited longest.
    pub(crate) fn next_waiting(&mut self) -> Option<ConnId> {
        self.waiting.pop_front()
    }

    /// Return the number of connections that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ends_with_its_connection_alone() {
        let (one, other) = (ConnId::from_bits(1), ConnId::from_bits(2));
        let mut reading = Reading::default();
        reading.begin(one);
        reading.note_ended(other);
        reading.note_stalled(other);
        assert!(reading.goes_on() && !reading.is_stalled());
        reading.note_stalled(one);
        assert!(reading.is_stalled());
        reading.note_ended(one);
        assert!(!reading.goes_on() && !reading.end());
        reading.begin(other);
        assert!(!reading.is_stalled(), "each connection for itself");
        assert!(reading.end());
    }

    #[test]
    fn connections_wait_in_turn() {
        let mut reading = Reading::default();
        for n in 1..=2 {
            reading.put_off(ConnId::from_bits(n));
        }
        assert_eq!(reading.waiting(), 2);
        assert_eq!(reading.next_waiting(), Some(ConnId::from_bits(1)));
        assert_eq!(reading.next_waiting(), Some(ConnId::from_bits(2)));
        assert_eq!(reading.next_waiting(), None);
    }
}
