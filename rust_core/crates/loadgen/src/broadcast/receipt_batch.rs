//! Receipts of one thread that the shared window does not have yet.

/// Messages that are kept apart; one more than that makes room by ending another.
const SLOTS: usize = 64;

/// Receipts of one message by some users. Times are nanoseconds of the run's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageReceipts {
    pub(crate) number: u64,
    /// Time when it was due.
    pub(crate) planned: u64,
    pub(crate) count: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Receipts of a turn, summed by message.
#[derive(Debug)]
pub(crate) struct ReceiptBatch {
    /// Sums by the low bits of the number; a slot with a count of 0 is free.
    slots: Box<[MessageReceipts; SLOTS]>,
    ended: Vec<MessageReceipts>,
    is_empty: bool,
}

impl ReceiptBatch {
    pub(crate) fn new() -> Self {
        Self {
            slots: Box::new([MessageReceipts::default(); SLOTS]),
            ended: Vec::new(),
            is_empty: true,
        }
    }

    /// Count a receipt at `now`, which never goes back.
    #[inline]
    pub(crate) fn note(&mut self, number: u64, planned: u64, now: u64) {
        let slot = &mut self.slots[number as usize % SLOTS];
        if slot.number != number || slot.count == 0 {
            if slot.count > 0 {
                self.ended.push(*slot);
            }
            *slot = MessageReceipts {
                number,
                planned,
                count: 0,
                first: now,
                last: now,
            };
            self.is_empty = false;
        }
        slot.count += 1;
        slot.last = now;
    }

    /// Return whether nothing was counted since the last [`drain`](Self::drain).
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Pass every sum to `take` and remove it.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(MessageReceipts)) {
        self.ended.drain(..).for_each(&mut take);
        for slot in &mut *self.slots {
            if slot.count > 0 {
                take(*slot);
                slot.count = 0;
            }
        }
        self.is_empty = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn nothing_is_lost_however_numbers_share_slots(
            numbers in prop::collection::vec(0u64..200, 0..500),
            cut in 0usize..500,
        ) {
            let (mut parts, mut sums) = (ReceiptBatch::new(), BTreeMap::<u64, (u32, u64, u64)>::new());
            let mut expected = BTreeMap::<u64, (u32, u64, u64)>::new();
            let add = |sums: &mut BTreeMap<u64, (u32, u64, u64)>, number, count, first, last| {
                let sum = sums.entry(number).or_insert((0, u64::MAX, 0));
                *sum = (sum.0 + count, sum.1.min(first), sum.2.max(last));
            };
            for (now, number) in numbers.iter().enumerate() {
                parts.note(*number, *number + 1, now as u64);
                add(&mut expected, *number, 1, now as u64, now as u64);
                if now == cut {
                    parts.drain(|part| add(&mut sums, part.number, part.count, part.first, part.last));
                    assert!(parts.is_empty());
                }
            }
            parts.drain(|part| {
                assert_eq!(part.planned, part.number + 1);
                add(&mut sums, part.number, part.count, part.first, part.last);
            });
            parts.drain(|part| panic!("{part:?}"));
            prop_assert_eq!(sums, expected);
        }
    }
}
