//! The state of a client whose socket has stopped taking bytes.

use reactor::ConnId;

/// A publisher: its shard and its connection.
pub(crate) type Publisher = (u16, ConnId);

/// The state of a client whose socket has stopped taking bytes.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Bytes that the socket had taken when the write deadline was set.
    pub(crate) taken_mark: u32,
    /// Bytes that waited then.
    pub(crate) pending_mark: usize,
    /// The publisher that has filled most of the backlog, by the majority vote of Boyer and Moore (1981)
    /// over the bytes appended, and the bytes by which it leads.
    filler: Option<(Publisher, u64)>,
    /// Stalls caused so far.
    pub(crate) stalls: u8,
}

impl Backlog {
    pub(crate) fn new(taken: u32, pending: usize) -> Self {
        Self {
            taken_mark: taken,
            pending_mark: pending,
            filler: None,
            stalls: 0,
        }
    }

    /// Note that a publisher has appended so many bytes; whether it fills most of the backlog.
    #[inline]
    pub(crate) fn note_appended(&mut self, publisher: Publisher, bytes: usize) -> bool {
        let bytes = bytes as u64;
        match &mut self.filler {
            Some((filler, lead)) if *filler == publisher => *lead += bytes,
            Some((_, lead)) if *lead >= bytes => {
                *lead -= bytes;
                return false;
            }
            other => *other = Some((publisher, bytes)),
        }
        true
    }

    /// Return whether the client takes enough: all that waited when the deadline was set, or the least that it
    /// must take in that time.
    pub(crate) fn keeps_up(&self, taken: u32, least: usize) -> bool {
        let since = taken.wrapping_sub(self.taken_mark) as usize;
        since >= self.pending_mark.min(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publisher(n: u64) -> Publisher {
        (0, ConnId::from_bits(n))
    }

    #[test]
    fn the_publisher_that_fills_most_of_a_backlog_is_found() {
        let mut backlog = Backlog::new(0, 0);
        let (flood, other) = (publisher(1), publisher(2));
        for _ in 0..100 {
            assert!(backlog.note_appended(flood, 1000));
            assert!(!backlog.note_appended(other, 10));
        }
        // The other one becomes the flood.
        let turns = (0..300).take_while(|_| !backlog.note_appended(other, 1000));
        assert!((90..=110).contains(&turns.count()));
        assert!(!backlog.note_appended(flood, 10));
    }

    #[test]
    fn a_client_must_take_what_waited_or_the_least() {
        let backlog = Backlog::new(u32::MAX - 10, 5000);
        assert!(backlog.keeps_up(4989, 1 << 20), "all that waited");
        assert!(!backlog.keeps_up(4988, 1 << 20));
        assert!(backlog.keeps_up(89, 100), "the least");
        assert!(!backlog.keeps_up(88, 100));
    }
}
