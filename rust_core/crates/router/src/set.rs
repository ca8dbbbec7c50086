//! The subscribers of one pattern.

use crate::dense::Dense;
use crate::matches::Found;
use crate::queue_group::QueueGroup;
use fastrand::Rng;
use std::hash::Hash;

/// A non-empty set of subscribers. One plain subscriber, by far the commonest case, is kept in
/// place; queue groups cost nothing where there are none.
pub(crate) enum Set<S> {
    One(S),
    Many(Box<Dense<S>>),
    Grouped(Box<Grouped<S>>),
}

/// Subscribers with at least one queue group.
pub(crate) struct Grouped<S> {
    plain: Dense<S>,
    groups: Dense<QueueGroup<S>>,
}

/// What became of a set that a subscriber was to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The subscriber was not in the set.
    Absent,
    /// Others remain.
    Removed,
    /// It was the last one: the set is to be dropped.
    Emptied,
}

impl<S: Copy + Eq + Hash> Set<S> {
    pub(crate) fn new(queue: Option<&[u8]>, subscriber: S) -> Self {
        match queue {
            None => Self::One(subscriber),
            Some(name) => {
                let plain = Dense::new();
                let groups = Dense::of(QueueGroup::new(name, subscriber));
                Self::Grouped(Box::new(Grouped { plain, groups }))
            }
        }
    }

    /// Adds a subscriber; false if it is there already (in that queue group).
    pub(crate) fn insert(&mut self, queue: Option<&[u8]>, subscriber: S) -> bool {
        match queue {
            None => self.insert_plain(subscriber),
            Some(name) => self.insert_member(name, subscriber),
        }
    }

    pub(crate) fn remove(&mut self, queue: Option<&[u8]>, subscriber: &S) -> Removal {
        match queue {
            None => self.remove_plain(subscriber),
            Some(name) => self.remove_member(name, subscriber),
        }
    }

    /// Add to `found` every plain subscriber and one member per group, if `accept` takes them.
    // The commonest case is short, and a call would cost more than it.
    #[inline(always)]
    pub(crate) fn collect(
        &self,
        found: &mut Found<S>,
        rng: &mut Rng,
        accept: &mut impl FnMut(&S) -> bool,
    ) {
        match self {
            Self::One(subscriber) => {
                if accept(subscriber) {
                    found.plain.push(*subscriber);
                } else {
                    found.work.members += 1;
                }
            }
            Self::Many(plain) => collect_plain(plain, found, accept),
            Self::Grouped(set) => set.collect(found, rng, accept),
        }
    }

    /// Number of subscriptions.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(plain) => plain.len(),
            Self::Grouped(set) => {
                let members = set
                    .groups
                    .as_slice()
                    .iter()
                    .map(|group| group.members.len());
                set.plain.len() + members.sum::<usize>()
            }
        }
    }

    fn insert_plain(&mut self, subscriber: S) -> bool {
        match self {
            Self::One(only) if *only == subscriber => false,
            Self::One(only) => {
                let mut plain = Dense::of(*only);
                plain.insert(subscriber);
                *self = Self::Many(Box::new(plain));
                true
            }
            Self::Many(plain) => plain.insert(subscriber),
            Self::Grouped(set) => set.plain.insert(subscriber),
        }
    }

    fn insert_member(&mut self, name: &[u8], subscriber: S) -> bool {
        let plain = match self {
            Self::One(only) => Dense::of(*only),
            Self::Many(plain) => std::mem::replace(&mut **plain, Dense::new()),
            Self::Grouped(set) => return set.insert_member(name, subscriber),
        };
        let groups = Dense::of(QueueGroup::new(name, subscriber));
        *self = Self::Grouped(Box::new(Grouped { plain, groups }));
        true
    }

    fn remove_plain(&mut self, subscriber: &S) -> Removal {
        let plain = match self {
            Self::One(only) if only == subscriber => return Removal::Emptied,
            Self::One(_) => return Removal::Absent,
            Self::Many(plain) => &mut **plain,
            Self::Grouped(set) => &mut set.plain,
        };
        let Some(at) = plain.position(subscriber) else {
            return Removal::Absent;
        };
        plain.swap_remove(at);
        self.simplify()
    }

    fn remove_member(&mut self, name: &[u8], subscriber: &S) -> Removal {
        let Self::Grouped(set) = self else {
            return Removal::Absent;
        };
        let Some(at) = set.groups.position(name) else {
            return Removal::Absent;
        };
        let Some(group) = set.groups.get_mut(at) else {
            return Removal::Absent;
        };
        let Some(member) = group.members.position(subscriber) else {
            return Removal::Absent;
        };
        group.members.swap_remove(member);
        if group.members.is_empty() {
            set.groups.swap_remove(at);
        }
        self.simplify()
    }

    /// Returns to the smallest form that holds what is left after a removal.
    fn simplify(&mut self) -> Removal {
        if let Self::Grouped(set) = self
            && set.groups.is_empty()
        {
            let plain = std::mem::replace(&mut set.plain, Dense::new());
            *self = Self::Many(Box::new(plain));
        }
        if let Self::Many(plain) = self {
            match plain.as_slice() {
                [] => return Removal::Emptied,
                [only] => *self = Self::One(*only),
                _ => {}
            }
        }
        Removal::Removed
    }
}

impl<S: Copy + Eq + Hash> Grouped<S> {
    #[inline(never)]
    fn collect(&self, found: &mut Found<S>, rng: &mut Rng, accept: &mut impl FnMut(&S) -> bool) {
        collect_plain(&self.plain, found, accept);
        let groups = self.groups.as_slice();
        found.work.lookups += groups.len() as u32;
        for group in groups {
            found.work.members += found.choices.offer(group, rng, accept) as u32;
        }
    }

    fn insert_member(&mut self, name: &[u8], subscriber: S) -> bool {
        match self.groups.position(name) {
            Some(at) => self
                .groups
                .get_mut(at)
                .is_some_and(|group| group.members.insert(subscriber)),
            None => self.groups.insert(QueueGroup::new(name, subscriber)),
        }
    }
}

#[inline(never)]
fn collect_plain<S: Copy + Eq + Hash>(
    plain: &Dense<S>,
    found: &mut Found<S>,
    accept: &mut impl FnMut(&S) -> bool,
) {
    let before = found.plain.len();
    let accepted = plain.as_slice().iter().filter(|s| accept(s));
    found.plain.extend(accepted);
    found.work.members += (plain.len() - (found.plain.len() - before)) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subscriber_takes_24_bytes() {
        assert!(size_of::<Set<[u64; 2]>>() <= 24);
        assert!(size_of::<Set<[u32; 4]>>() <= 24);
    }

    #[test]
    fn the_form_follows_the_content() {
        let mut set = Set::new(None, 1);
        assert!(!set.insert(None, 1));
        assert!(set.insert(None, 2));
        assert!(matches!(set, Set::Many(_)));
        assert!(set.insert(Some(b"q"), 1));
        assert!(!set.insert(Some(b"q"), 1));
        assert!(set.insert(Some(b"r"), 1));
        assert!(matches!(set, Set::Grouped(_)));
        assert_eq!(set.len(), 4);
        assert_eq!(set.remove(Some(b"x"), &1), Removal::Absent);
        assert_eq!(set.remove(Some(b"q"), &2), Removal::Absent);
        assert_eq!(set.remove(Some(b"q"), &1), Removal::Removed);
        assert_eq!(set.remove(Some(b"r"), &1), Removal::Removed);
        assert!(matches!(set, Set::Many(_)));
        assert_eq!(set.remove(None, &3), Removal::Absent);
        assert_eq!(set.remove(None, &1), Removal::Removed);
        assert!(matches!(set, Set::One(2)));
        assert_eq!(set.remove(None, &1), Removal::Absent);
        assert_eq!(set.remove(Some(b"q"), &2), Removal::Absent);
        assert_eq!(set.remove(None, &2), Removal::Emptied);
    }

    #[test]
    fn a_set_of_one_group_only_is_emptied() {
        let mut set = Set::new(Some(b"q"), 1);
        assert_eq!(set.remove(None, &1), Removal::Absent);
        assert!(set.insert(None, 5));
        assert_eq!(set.remove(Some(b"q"), &1), Removal::Removed);
        assert!(matches!(set, Set::One(5)));
        let mut set = Set::new(Some(b"q"), 1);
        assert_eq!(set.remove(Some(b"q"), &1), Removal::Emptied);
    }
}
