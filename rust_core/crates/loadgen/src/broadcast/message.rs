//! Messages: a number and a time, then bytes that follow from both.

use crate::rng::mix;

/// The number, the time, and at least one word that follows from them.
pub(crate) const MIN_MESSAGE: usize = STAMP_LEN + 8;

const STAMP_LEN: usize = 16;
const SALT: u64 = 0xa409_3822_299f_31d0;
/// Intact messages that are kept to compare others with, and the bytes that they may take.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 256 << 10;

/// First bytes of a message, both numbers in little-endian order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) number: u64,
    /// Time when it was due, in nanoseconds of the run's clock.
    pub(crate) planned: u64,
}

impl Stamp {
    #[inline]
    fn parse(message: &[u8]) -> Option<Self> {
        let (number, rest) = message.split_first_chunk()?;
        Some(Self {
            number: u64::from_le_bytes(*number),
            planned: u64::from_le_bytes(*rest.first_chunk()?),
        })
    }

    /// Return the words that follow it in the run with this seed.
    #[inline]
    fn words(self, seed: u64) -> impl Iterator<Item = [u8; 8]> {
        let mut state = mix(self.number ^ mix(self.planned ^ mix(seed ^ SALT)));
        std::iter::repeat_with(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state).to_le_bytes()
        })
    }

    /// Fill `message` with the stamp and the bytes that follow from it.
    #[inline]
    pub(crate) fn fill(self, message: &mut [u8], seed: u64) {
        let head = [self.number.to_le_bytes(), self.planned.to_le_bytes()];
        let words = head.into_iter().chain(self.words(seed));
        for (bytes, word) in message.chunks_mut(8).zip(words) {
            let len = bytes.len();
            bytes.copy_from_slice(&word[..len]);
        }
    }
}

/// Checker of intact messages. A message usually arrives many times, once for each user: only its
/// first copy is computed, and the others are compared with it.
#[derive(Debug)]
pub(crate) struct Checker {
    seed: u64,
    len: usize,
    kept: Box<[u8]>,
    mask: usize,
}

impl Checker {
    /// Make a checker for messages of `len` bytes in the run with this seed.
    pub(crate) fn new(len: usize, seed: u64) -> Self {
        let room = (KEPT_BYTES / len).clamp(1, KEPT);
        let places = 1 << room.ilog2();
        let mut kept = vec![0; places * len].into_boxed_slice();
        for place in kept.chunks_mut(len) {
            // A message of zeros would be taken as intact.
            let (number, planned) = (0, 0);
            Stamp { number, planned }.fill(place, seed);
        }
        Self {
            seed,
            len,
            kept,
            mask: places - 1,
        }
    }

    /// Return the stamp of an intact message; `None` for any other.
    #[inline]
    pub(crate) fn check(&mut self, message: &[u8]) -> Option<Stamp> {
        let stamp = Stamp::parse(message)?;
        let place = (stamp.number as usize & self.mask) * self.len;
        let kept = self.kept.get_mut(place..place + self.len)?;
        if kept != message {
            if kept.len() != message.len() {
                return None;
            }
            stamp.fill(kept, self.seed);
            if kept != message {
                return None;
            }
        }
        Some(stamp)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips_and_notices_every_changed_byte(
            number: u64,
            planned: u64,
            seed: u64,
            len in MIN_MESSAGE..300,
            at: prop::sample::Index,
            flip in 1u8..,
        ) {
            let stamp = Stamp { number, planned };
            let mut message = vec![0; len];
            stamp.fill(&mut message, seed);
            let mut checker = Checker::new(len, seed);
            let at = at.index(len);
            for _ in 0..2 {
                prop_assert_eq!(checker.check(&message), Some(stamp));
                message[at] ^= flip;
                prop_assert_eq!(checker.check(&message), None);
                message[at] ^= flip;
            }
            prop_assert_eq!(checker.check(&message[..len - 1]), None);
            prop_assert_eq!(checker.check(&[&message[..], b"x"].concat()), None);
            prop_assert_eq!(Checker::new(len, seed ^ 1).check(&message), None);
        }

        #[test]
        fn many_messages_share_the_places(len in MIN_MESSAGE..10_000, numbers: [u8; 32]) {
            let mut checker = Checker::new(len, 3);
            prop_assert!(checker.kept.len() <= KEPT_BYTES.max(len));
            let mut message = vec![0; len];
            for number in numbers.into_iter().map(u64::from) {
                let stamp = Stamp { number, planned: number / 3 };
                stamp.fill(&mut message, 3);
                prop_assert_eq!(checker.check(&message), Some(stamp));
            }
        }
    }

    #[test]
    fn short_messages_have_no_stamp() {
        let mut checker = Checker::new(MIN_MESSAGE, 1);
        for len in 0..MIN_MESSAGE {
            assert_eq!(checker.check(&vec![0; len]), None);
        }
        assert_eq!(checker.check(&[0; MIN_MESSAGE]), None);
    }
}
