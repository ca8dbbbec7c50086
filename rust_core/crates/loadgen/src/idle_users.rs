//! Users without a request in flight.

use crate::rng::Rng;

/// A set of users that gives a random one in constant time.
#[derive(Debug)]
pub(crate) struct IdleUsers {
    users: Vec<u32>,
    /// Index of each user in `users`; [`ABSENT`] for the other users.
    places: Box<[u32]>,
}

const ABSENT: u32 = u32::MAX;

impl IdleUsers {
    /// Return all of `users` users.
    pub(crate) fn all(users: u32) -> Self {
        Self {
            users: (0..users).collect(),
            places: (0..users).collect(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Return whether a user is not in the set.
    #[inline]
    pub(crate) fn is_busy(&self, user: u32) -> bool {
        self.places.get(user as usize) == Some(&ABSENT)
    }

    /// Return a random user, who stays in the set.
    #[inline]
    pub(crate) fn choose(&self, choices: &mut Rng) -> Option<u32> {
        if self.users.is_empty() {
            return None;
        }
        let place = choices.below(self.users.len() as u32);
        self.users.get(place as usize).copied()
    }

    #[inline]
    pub(crate) fn insert(&mut self, user: u32) {
        if let Some(place) = self.places.get_mut(user as usize)
            && *place == ABSENT
        {
            *place = self.users.len() as u32;
            self.users.push(user);
        }
    }

    /// Take a user out; false when they were not in it.
    #[inline]
    pub(crate) fn remove(&mut self, user: u32) -> bool {
        let Some(place) = self.places.get_mut(user as usize) else {
            return false;
        };
        let place = std::mem::replace(place, ABSENT);
        if place == ABSENT {
            return false;
        }
        self.users.swap_remove(place as usize);
        if let Some(moved) = self.users.get(place as usize) {
            self.places[*moved as usize] = place;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((0u32..12, any::<bool>()), 0..200)) {
            let (mut free, mut model) = (IdleUsers::all(10), (0..10).collect::<BTreeSet<u32>>());
            let mut choices = Rng::new(3);
            for (user, is_insertion) in steps {
                if is_insertion {
                    free.insert(user);
                    model.extend((user < 10).then_some(user));
                } else {
                    prop_assert_eq!(free.remove(user), model.remove(&user));
                }
                prop_assert_eq!(free.is_empty(), model.is_empty());
                prop_assert!((0..10).all(|user| free.is_busy(user) != model.contains(&user)));
                let chosen = free.choose(&mut choices);
                prop_assert_eq!(chosen.is_some(), !model.is_empty());
                prop_assert!(chosen.is_none_or(|user| model.contains(&user)));
                prop_assert_eq!(free.users.iter().copied().collect::<BTreeSet<_>>(), model.clone());
            }
        }
    }
}
