//! The first of very many, in some order, without keeping or sorting them all.

use std::collections::BinaryHeap;

use reactor::ConnId;

/// A connection, or one of its subscriptions, that may be on a page. Ordered as pages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// Value by which the page is sorted; smaller ones come first.
    pub(crate) rank: u64,
    pub(crate) cid: u64,
    /// The subscription's index among the connection's.
    pub(crate) index: u32,
    pub(crate) shard: u16,
    pub(crate) conn: ConnId,
}

/// The candidates that come first, at most so many, of all that were offered. Each costs about the same,
/// so that a search can stop after any of them.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    keep: usize,
    kept: BinaryHeap<Candidate>,
    /// Number of candidates that were offered.
    pub(crate) total: u64,
}

impl Selection {
    pub(crate) fn new(keep: usize) -> Self {
        Self {
            keep,
            ..Self::default()
        }
    }

    /// Count a candidate, and keep it if it is among the first; return whether it is.
    pub(crate) fn offer(&mut self, candidate: Candidate) -> bool {
        self.total += 1;
        self.insert(candidate)
    }

    /// Count the candidates of another selection, and keep them if there are none yet; otherwise return
    /// them, to be inserted one by one.
    pub(crate) fn absorb(&mut self, mut other: Self) -> Vec<Candidate> {
        self.total += other.total;
        if self.kept.is_empty() {
            std::mem::swap(&mut self.kept, &mut other.kept);
        }
        other.kept.into_vec()
    }

    /// Keep a candidate if it is among the first; return whether it is.
    pub(crate) fn insert(&mut self, candidate: Candidate) -> bool {
        if self.kept.len() < self.keep {
            self.kept.push(candidate);
            return true;
        }
        match self.kept.peek_mut() {
            Some(mut last) if candidate < *last => {
                *last = candidate;
                true
            }
            _ => false,
        }
    }

    /// Take out the candidates from this place of the order on, in their order.
    pub(crate) fn take_page(&mut self, start: usize) -> Vec<Candidate> {
        let count = self.kept.len().saturating_sub(start);
        let mut page: Vec<_> = (0..count).filter_map(|_| self.kept.pop()).collect();
        page.reverse();
        self.kept = BinaryHeap::new();
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(rank: u64, cid: u64) -> Candidate {
        Candidate {
            rank,
            cid,
            index: 0,
            shard: 0,
            conn: ConnId::NONE,
        }
    }

    proptest! {
        #[test]
        fn pages_are_those_of_the_sorted_whole(
            ranks in prop::collection::vec(prop::collection::vec(0_u64..500, 0..4000), 1..4),
            start in 0_usize..3000,
            len in 0_usize..300,
        ) {
            let places = start..start + len;
            let (mut whole, mut merged) = (Vec::new(), Selection::new(places.end));
            for (shard, ranks) in ranks.iter().enumerate() {
                let mut selection = Selection::new(places.end);
                for (n, rank) in ranks.iter().enumerate() {
                    let one = candidate(*rank, (n * 7919 % 4001 + shard * 10_000) as u64);
                    selection.offer(one);
                    whole.push(one);
                    prop_assert!(selection.kept.len() <= places.end);
                }
                for one in merged.absorb(selection) {
                    merged.insert(one);
                }
            }
            whole.sort_unstable();
            prop_assert_eq!(merged.total, whole.len() as u64);
            let end = places.end.min(whole.len());
            prop_assert_eq!(merged.take_page(places.start), &whole[places.start.min(end)..end]);
        }
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_wanted() {
        let mut selection = Selection::new(0);
        assert!((0..10).all(|rank| !selection.offer(candidate(rank, 0))));
        assert_eq!((selection.total, selection.kept.capacity()), (10, 0));
        assert_eq!(selection.take_page(0), []);
    }
}
