//! The budget of work of one turn.
//!
//! Bytes alone do not tell how long a shard's thread is busy: a connection that opens costs as much as
//! kilobytes, and so does a write. Everything that takes time is therefore counted as work, in units
//! of about a nanosecond of a 3 GHz core. The unit is an estimate and not a clock, so that a simulated
//! shard does exactly what a real one does.

/// Work of taking one event with received bytes, besides the bytes: a system call or a completion.
pub const RECEIVE: usize = 1_000;
/// Work of the first append to a connection in a turn: the write that follows.
pub const WRITE: usize = 2_500;
/// Work of accepting a connection.
pub const ACCEPT: usize = 20_000;
/// Work of establishing a connection.
pub const CONNECT: usize = 15_000;
/// Work of ending one's own side of a connection, whose peer then ends the other.
pub const END_SENDING: usize = 10_000;
/// Work of closing a connection.
pub const CLOSE: usize = 20_000;
/// Work of telling that a timer has fired.
pub const TIMER: usize = 200;
/// Work of handing out one piece of mail.
pub const MAIL: usize = 200;

/// The budget of a turn that keeps every wait for it short, for [`ShardSpec`](crate::ShardSpec).
pub const TURN: usize = 8_000_000;

/// Parts of a turn, in their order, that have a share of its budget each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Mail,
    Received,
    /// Connections that come and go.
    Changes,
    Timers,
    /// Work that the handler has put off.
    PutOff,
}

/// Eighths of the budget for each part.
const SHARES: [usize; 5] = [2, 2, 1, 1, 2];
/// Times a turn's budget that mail may take when no traffic waits: the more messages to very many
/// connections leave with one write each, the less each message costs. Not in turns that are shorter
/// than [`TURN`], whose receivers could not hold as much.
const MAIL_ALONE: usize = 4;
/// Parts of the budget that one connection's bytes may take before the others have their turn.
const SLICES: usize = 16;

/// Bytes that one read may bring however many connections wait: less would cost more to read than to
/// hand out.
const LEAST_READ: usize = 8 * 1024;

/// The work of the current turn and its bounds.
///
/// A part may use the shares that the parts before it have left, and has its own share whatever they
/// have used.
#[derive(Debug)]
pub(crate) struct Budget {
    turn: usize,
    spent: usize,
    part_end: usize,
    slice_end: usize,
}

impl Budget {
    pub(crate) fn new(turn: usize) -> Self {
        Self {
            turn: turn.max(SLICES),
            spent: 0,
            part_end: usize::MAX,
            slice_end: usize::MAX,
        }
    }

    pub(crate) fn turn(&self) -> usize {
        self.turn
    }

    pub(crate) fn begin_turn(&mut self) {
        self.spent = 0;
    }

    pub(crate) fn begin(&mut self, part: Part) {
        let share = |eighths: usize| self.turn / 8 * eighths;
        let upto = SHARES[..=part as usize].iter().sum();
        let own = self.spent + share(SHARES[part as usize]);
        self.part_end = own.max(share(upto));
        self.slice_end = usize::MAX;
    }

    /// Begin the mail of a turn that has nothing else to hand out.
    pub(crate) fn begin_mail_alone(&mut self) {
        self.begin(Part::Mail);
        if self.turn >= TURN {
            self.part_end = self.spent + self.turn * MAIL_ALONE;
        }
    }

    /// Return how many bytes one read may bring while `others` wait for theirs, so that all of them are read
    /// within one turn.
    #[inline]
    pub(crate) fn read_limit(&self, others: usize) -> usize {
        let shared = self.turn / 8 * SHARES[Part::Received as usize] / 4 * 3;
        (shared / (others + 1))
            .saturating_sub(RECEIVE)
            .max(LEAST_READ)
    }

    /// Begin the bytes of one connection.
    #[inline]
    pub(crate) fn begin_slice(&mut self) {
        self.slice_end = self.spent + self.turn / SLICES;
    }

    #[inline]
    pub(crate) fn end_slice(&mut self) {
        self.slice_end = usize::MAX;
    }

    #[inline]
    pub(crate) fn spend(&mut self, work: usize) {
        self.spent += work;
    }

    /// Return the work of this turn so far.
    #[cfg(feature = "sim")]
    pub(crate) fn spent(&self) -> usize {
        self.spent
    }

    /// Return whether the part, or the connection whose bytes are handed out, has used its share.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.spent >= self.part_end.min(self.slice_end)
    }

    /// Return whether the part has used its share.
    #[inline]
    pub(crate) fn is_part_spent(&self) -> bool {
        self.spent >= self.part_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [Part; 5] = [
        Part::Mail,
        Part::Received,
        Part::Changes,
        Part::Timers,
        Part::PutOff,
    ];

    /// Return the work that each part does when it does as much as it may.
    fn greedy(parts: &[Part]) -> Vec<usize> {
        let mut budget = Budget::new(800);
        budget.begin_turn();
        let mut work = |part| {
            budget.begin(part);
            let before = budget.spent;
            while !budget.is_spent() {
                budget.spend(1);
            }
            budget.spent - before
        };
        parts.iter().map(|part| work(*part)).collect()
    }

    #[test]
    fn every_part_has_its_share_and_what_others_leave() {
        assert_eq!(greedy(&PARTS), [200, 200, 100, 100, 200]);
        assert_eq!(greedy(&[Part::PutOff]), [800]);
        assert_eq!(greedy(&[Part::Received, Part::PutOff]), [400, 400]);
    }

    #[test]
    fn a_part_that_overspends_takes_nothing_from_the_next() {
        let mut budget = Budget::new(800);
        budget.begin(Part::Mail);
        budget.spend(5000);
        budget.begin(Part::Received);
        assert!(!budget.is_spent());
        budget.spend(200);
        assert!(budget.is_spent());
    }

    #[test]
    fn one_connection_has_a_slice() {
        let mut budget = Budget::new(800);
        budget.begin(Part::Received);
        budget.begin_slice();
        budget.spend(50);
        assert!(budget.is_spent() && !budget.is_part_spent());
        budget.end_slice();
        assert!(!budget.is_spent());
    }
}
