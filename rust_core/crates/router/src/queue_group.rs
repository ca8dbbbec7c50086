//! Queue groups: of all members of one name, one receives the message.

use crate::dense::Dense;
use crate::name::Name;
use fastrand::Rng;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher};

/// Longest name kept beside the members, in bytes.
const INLINE: usize = 23;

/// The members of one group under one pattern.
pub(crate) struct QueueGroup<S> {
    name: Name<INLINE>,
    pub(crate) members: Dense<S>,
}

impl<S: Copy + Eq + Hash> QueueGroup<S> {
    pub(crate) fn new(name: &[u8], member: S) -> Self {
        Self {
            name: Name::new(name),
            members: Dense::of(member),
        }
    }

    /// Return a random member that `accept` takes, and the number of members examined. Begin at a
    /// random one, and go on to the next one until one is taken.
    fn pick(&self, rng: &mut Rng, accept: &mut impl FnMut(&S) -> bool) -> (Option<S>, usize) {
        let members = self.members.as_slice();
        let start = match members.len() {
            0 | 1 => 0,
            len => rng.usize(..len),
        };
        let (before, after) = members.split_at(start);
        let mut examined = 0;
        let chosen = after.iter().chain(before).find(|s| {
            examined += 1;
            accept(s)
        });
        (chosen.copied(), examined)
    }
}

// A group is found by its name alone, so it is equal and hashes like its name.
impl<S> Borrow<[u8]> for QueueGroup<S> {
    fn borrow(&self) -> &[u8] {
        self.name.as_bytes()
    }
}

impl<S> PartialEq for QueueGroup<S> {
    fn eq(&self, other: &Self) -> bool {
        self.name.as_bytes() == other.name.as_bytes()
    }
}

impl<S> Eq for QueueGroup<S> {}

impl<S> Hash for QueueGroup<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.as_bytes().hash(state);
    }
}

/// Up to this many groups of one match are searched one after the other.
const UNINDEXED: usize = 16;

/// The member chosen so far for each group name that a match met (weighted reservoir sampling:
/// no list of all members is ever built).
#[derive(Debug)]
pub(crate) struct Choices<S> {
    choices: Vec<Choice<S>>,
    /// The names of the groups, one after the other; kept because locks are released between
    /// the tables that one match visits.
    names: Vec<u8>,
    /// Choices by name; in use only beyond [`UNINDEXED`].
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
struct Choice<S> {
    /// Where the name begins and ends in `names`.
    name: (usize, usize),
    member: S,
    /// Number of members met so far.
    weight: u64,
}

impl<S: Copy + Eq + Hash> Choices<S> {
    pub(crate) fn new() -> Self {
        Self {
            choices: Vec::new(),
            names: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.choices.clear();
        self.names.clear();
        self.index.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.choices.len()
    }

    /// Each group's name and chosen member.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], S)> {
        self.choices
            .iter()
            .map(|choice| (name_of(&self.names, choice), choice.member))
    }

    /// Let a group compete, with the weight of its size, with the others of the same name. Return
    /// the number of members examined.
    pub(crate) fn offer(
        &mut self,
        group: &QueueGroup<S>,
        rng: &mut Rng,
        accept: &mut impl FnMut(&S) -> bool,
    ) -> usize {
        let (Some(member), examined) = group.pick(rng, accept) else {
            return group.members.len();
        };
        let name = group.name.as_bytes();
        let weight = group.members.len() as u64;
        match self.position(name).and_then(|at| self.choices.get_mut(at)) {
            Some(choice) => {
                choice.weight += weight;
                if rng.u64(..choice.weight) < weight {
                    choice.member = member;
                }
            }
            None => self.push(name, member, weight),
        }
        examined
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        let is_match = |choice: &Choice<S>| name_of(&self.names, choice) == name;
        if self.choices.len() <= UNINDEXED {
            return self.choices.iter().position(is_match);
        }
        let hash = self.hasher.hash_one(name);
        let found = |&at: &u32| self.choices.get(at as usize).is_some_and(is_match);
        self.index.find(hash, found).map(|&at| at as usize)
    }

    fn push(&mut self, name: &[u8], member: S, weight: u64) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        let name = (start, self.names.len());
        self.choices.push(Choice {
            name,
            member,
            weight,
        });
        let last = self.choices.len() - 1;
        let unindexed = match last.cmp(&UNINDEXED) {
            std::cmp::Ordering::Less => return,
            std::cmp::Ordering::Equal => 0..=last,
            std::cmp::Ordering::Greater => last..=last,
        };
        let Self {
            choices,
            names,
            index,
            hasher,
        } = self;
        let hash_of = |&at: &u32| hasher.hash_one(name_of(names, &choices[at as usize]));
        for at in unindexed {
            let at = at as u32;
            index.insert_unique(hash_of(&at), at, hash_of);
        }
    }
}

fn name_of<'a, S>(names: &'a [u8], choice: &Choice<S>) -> &'a [u8] {
    names.get(choice.name.0..choice.name.1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_groups_keep_one_choice_each() {
        let mut choices = Choices::new();
        let mut rng = Rng::with_seed(1);
        for round in 0..2 {
            for pass in 0..3 {
                for n in 0..100_u32 {
                    let group = QueueGroup::new(format!("q{n}").as_bytes(), n + pass * 100);
                    choices.offer(&group, &mut rng, &mut |_| true);
                }
            }
            assert_eq!(choices.len(), 100, "round {round}");
            for (n, (name, member)) in (0..).zip(choices.iter()) {
                assert_eq!(name, format!("q{n}").as_bytes());
                assert_eq!(member % 100, n);
            }
            choices.clear();
            assert_eq!(choices.len(), 0);
        }
    }

    #[test]
    fn a_refused_member_is_passed_over() {
        let mut group = QueueGroup::new(b"q", 0);
        for n in 1..10 {
            group.members.insert(n);
        }
        let mut rng = Rng::with_seed(2);
        for _ in 0..100 {
            let (chosen, examined) = group.pick(&mut rng, &mut |&n| n == 4);
            assert_eq!(chosen, Some(4));
            assert!((1..=10).contains(&examined));
        }
        assert_eq!(group.pick(&mut rng, &mut |_| true).1, 1);
        assert_eq!(group.pick(&mut rng, &mut |_| false), (None, 10));
    }
}
