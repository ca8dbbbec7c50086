//! The first of very many, in some order, without keeping or sorting them all.

use std::ops::Range;

use reactor::ConnId;

/// A connection, or one of its subscriptions, that may be on a page. Ordered as pages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// What the page is sorted by; smaller values come first.
    pub(crate) rank: u64,
    pub(crate) cid: u64,
    /// The subscription's index among the connection's.
    pub(crate) index: u32,
    pub(crate) shard: u16,
    pub(crate) conn: ConnId,
}

/// The candidates that come first, at most so many, of all that were offered.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    keep: usize,
    kept: Vec<Candidate>,
    /// What is not before it is not kept.
    bound: Option<Candidate>,
    /// How many were offered.
    pub(crate) total: u64,
}

impl Selection {
    /// Candidates that are held beyond those kept, so that they need not be pruned one by one.
    const SLACK: usize = 1024;

    pub(crate) fn new(keep: usize) -> Self {
        Self {
            keep,
            ..Self::default()
        }
    }

    /// Counts a candidate, and keeps it if it is among the first.
    pub(crate) fn offer(&mut self, candidate: Candidate) {
        self.total += 1;
        self.insert(candidate);
    }

    /// Adds what was selected elsewhere.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.total += other.total;
        for candidate in other.kept {
            self.insert(candidate);
        }
    }

    /// The candidates in these places of the order.
    pub(crate) fn page(mut self, places: Range<usize>) -> Vec<Candidate> {
        let end = places.end.min(self.kept.len());
        if places.start >= end {
            return Vec::new();
        }
        if end < self.kept.len() {
            self.kept.select_nth_unstable(end);
            self.kept.truncate(end);
        }
        if places.start > 0 {
            self.kept.select_nth_unstable(places.start);
        }
        let mut page = self.kept.split_off(places.start);
        page.sort_unstable();
        page
    }

    fn insert(&mut self, candidate: Candidate) {
        if self.keep == 0 || self.bound.is_some_and(|bound| candidate >= bound) {
            return;
        }
        self.kept.push(candidate);
        if self.kept.len() >= self.keep.saturating_mul(2).max(self.keep + Self::SLACK) {
            let (_, last, _) = self.kept.select_nth_unstable(self.keep - 1);
            self.bound = Some(*last);
            self.kept.truncate(self.keep);
        }
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
                    let most = (2 * places.end).max(places.end + Selection::SLACK);
                    prop_assert!(selection.kept.len() <= most);
                }
                merged.absorb(selection);
            }
            whole.sort_unstable();
            prop_assert_eq!(merged.total, whole.len() as u64);
            let end = places.end.min(whole.len());
            prop_assert_eq!(merged.page(places.clone()), &whole[places.start.min(end)..end]);
        }
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_wanted() {
        let mut selection = Selection::new(0);
        (0..10).for_each(|rank| selection.offer(candidate(rank, 0)));
        assert_eq!((selection.total, selection.kept.capacity()), (10, 0));
        assert_eq!(selection.page(0..0), []);
    }
}
