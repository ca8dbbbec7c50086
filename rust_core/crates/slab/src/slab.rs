//! Values under stable ids.

use crate::generation::Generation;
use std::ops::Range;

const CHUNK_BITS: u32 = 8;
/// Slots of a chunk.
const CHUNK: usize = 1 << CHUNK_BITS;
/// The end of a chunk's list of vacant slots.
const NONE: u16 = u16::MAX;

/// The name of one value: its slot, and the generation that tells it from earlier ones there.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id<G = ()> {
    slot: u32,
    generation: G,
}

impl<G: Copy> Id<G> {
    /// Return the id with these parts.
    #[inline]
    #[must_use]
    pub const fn new(slot: u32, generation: G) -> Self {
        Self { slot, generation }
    }

    /// Return the slot's number, dense from 0; it is used again after the value is removed.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// Return the generation.
    #[inline]
    #[must_use]
    pub const fn generation(self) -> G {
        self.generation
    }
}

impl From<u32> for Id {
    #[inline]
    fn from(slot: u32) -> Self {
        Self::new(slot, ())
    }
}

struct Slot<T, G> {
    /// The generation of the value, or of the next one while the slot is vacant.
    generation: G,
    content: Content<T>,
}

enum Content<T> {
    /// The chunk's next vacant slot, or [`NONE`].
    Vacant(u16),
    Taken(T),
}

impl<T> Content<T> {
    #[inline]
    fn value(&self) -> Option<&T> {
        match self {
            Self::Taken(value) => Some(value),
            Self::Vacant(_) => None,
        }
    }
}

struct Chunk<T, G> {
    /// Slots that were taken at least once since the chunk was last empty.
    slots: Vec<Slot<T, G>>,
    /// The first vacant one of them, or [`NONE`].
    vacant: u16,
    /// Number of values.
    len: u16,
    /// The generation that a slot begins with; later than all that slots had before.
    first_generation: G,
}

impl<T, G: Generation> Chunk<T, G> {
    const fn new(first_generation: G) -> Self {
        Self {
            slots: Vec::new(),
            vacant: NONE,
            len: 0,
            first_generation,
        }
    }

    /// The chunk without its slots, none of which holds a value.
    fn emptied(&self) -> Self {
        let generations = self.slots.iter().map(|slot| slot.generation);
        Self::new(latest(self.first_generation, generations))
    }
}

/// The generation that is the most steps ahead of `base`.
fn latest<G: Generation>(base: G, generations: impl Iterator<Item = G>) -> G {
    let latest = generations.max_by_key(|generation| generation.steps_since(base));
    latest.unwrap_or(base)
}

/// Values under ids that stay valid until the value is removed, stored in chunks of 256 slots.
///
/// Inserting, removing and looking up take constant time. Growing copies nothing but the first
/// chunk, which starts small. Of several chunks, one that becomes empty gives its memory back and
/// keeps 32 bytes; when the last value goes, they all do. An id never names a later value all the
/// same.
pub struct Slab<T, G = ()> {
    chunks: Vec<Chunk<T, G>>,
    /// Chunks that are not full, each once; the last one takes the next value.
    open: Vec<u32>,
    len: usize,
    /// The generation that new chunks begin with; later than all that chunks had before.
    first_generation: G,
}

impl<T, G: Generation> Slab<T, G> {
    /// Return an empty slab, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            chunks: Vec::new(),
            open: Vec::new(),
            len: 0,
            first_generation: G::default(),
        }
    }

    /// Return the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Return whether the slab holds no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Return the number of bytes allocated, vacant slots included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let slots: usize = self.chunks.iter().map(|chunk| chunk.slots.capacity()).sum();
        slots * size_of::<Slot<T, G>>()
            + self.chunks.capacity() * size_of::<Chunk<T, G>>()
            + self.open.capacity() * size_of::<u32>()
    }

    /// Return one more than the highest slot that may be in use.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.chunks.last().map_or(0, |last| {
            let before = (self.chunks.len() - 1) * CHUNK;
            (before + last.slots.len()) as u32
        })
    }

    /// Store `value` in a vacant slot.
    ///
    /// # Panics
    /// If the slab holds 2^32 values.
    pub fn insert(&mut self, value: T) -> Id<G> {
        let number = self.open_chunk();
        let chunk = &mut self.chunks[number as usize];
        let content = Content::Taken(value);
        let (offset, generation) = match chunk.slots.get_mut(usize::from(chunk.vacant)) {
            Some(slot) => {
                let offset = chunk.vacant;
                if let Content::Vacant(next) = slot.content {
                    chunk.vacant = next;
                }
                slot.content = content;
                (offset, slot.generation)
            }
            None => {
                let generation = chunk.first_generation;
                // The first chunk grows as a vector does: most slabs stay small.
                if number > 0 && chunk.slots.is_empty() {
                    chunk.slots.reserve_exact(CHUNK);
                }
                chunk.slots.push(Slot {
                    generation,
                    content,
                });
                (chunk.slots.len() as u16 - 1, generation)
            }
        };
        chunk.len += 1;
        if usize::from(chunk.len) == CHUNK {
            self.open.pop();
        }
        self.len += 1;
        Id::new(number << CHUNK_BITS | u32::from(offset), generation)
    }

    /// Take the value out; none if it was removed before.
    pub fn remove(&mut self, id: Id<G>) -> Option<T> {
        let number = chunk_of(id.slot);
        let chunk = self.chunks.get_mut(number)?;
        let slot = chunk.slots.get_mut(offset_of(id.slot))?;
        if slot.generation != id.generation || slot.content.value().is_none() {
            return None;
        }
        let removed = std::mem::replace(&mut slot.content, Content::Vacant(chunk.vacant));
        slot.generation = slot.generation.next();
        chunk.vacant = offset_of(id.slot) as u16;
        if usize::from(chunk.len) == CHUNK {
            self.open.push(number as u32);
        }
        chunk.len -= 1;
        let is_empty = chunk.len == 0;
        self.len -= 1;
        // A single chunk keeps its slots: a slab that wavers between no value and one allocates
        // nothing.
        if is_empty && self.chunks.len() > 1 {
            self.chunks[number] = self.chunks[number].emptied();
            if self.len == 0 {
                self.release();
            }
        }
        match removed {
            Content::Taken(value) => Some(value),
            Content::Vacant(_) => None,
        }
    }

    /// Return the value; none if it was removed.
    #[inline]
    #[must_use]
    pub fn value(&self, id: Id<G>) -> Option<&T> {
        let slot = self.slot(id.slot)?;
        if slot.generation == id.generation {
            slot.content.value()
        } else {
            None
        }
    }

    /// Return the value, mutably; none if it was removed.
    #[inline]
    #[must_use]
    pub fn value_mut(&mut self, id: Id<G>) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(chunk_of(id.slot))?;
        let slot = chunk.slots.get_mut(offset_of(id.slot))?;
        match &mut slot.content {
            Content::Taken(value) if slot.generation == id.generation => Some(value),
            _ => None,
        }
    }

    /// Return the value that is in `slot` now, with its id; none if the slot is vacant.
    #[inline]
    #[must_use]
    pub fn at(&self, slot: u32) -> Option<(Id<G>, &T)> {
        let at = self.slot(slot)?;
        let value = at.content.value()?;
        Some((Id::new(slot, at.generation), value))
    }

    /// Return where a slot is in memory, and its size, for an owner that prefetches it; none if
    /// the slot was never taken.
    #[inline]
    #[must_use]
    pub fn location(&self, slot: u32) -> Option<(*const u8, usize)> {
        let at: *const Slot<T, G> = self.slot(slot)?;
        Some((at.cast(), size_of::<Slot<T, G>>()))
    }

    /// Visit every value with its id, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (Id<G>, &T)> {
        self.iter_in(0..u32::MAX)
    }

    /// Visit the values in a range of slots with their ids, in the order of the slots. An empty
    /// chunk takes one step.
    pub fn iter_in(&self, slots: Range<u32>) -> impl Iterator<Item = (Id<G>, &T)> {
        let end = (slots.end as usize).min(self.chunks.len() * CHUNK);
        let start = (slots.start as usize).min(end);
        let chunks = start / CHUNK..end.div_ceil(CHUNK);
        chunks.flat_map(move |number| {
            let slots = &self.chunks[number].slots;
            let first = number * CHUNK;
            let to = (end - first).min(slots.len());
            let from = start.saturating_sub(first).min(to);
            (first + from..)
                .zip(&slots[from..to])
                .filter_map(|(slot, at)| {
                    let value = at.content.value()?;
                    Some((Id::new(slot as u32, at.generation), value))
                })
        })
    }

    #[inline]
    fn slot(&self, slot: u32) -> Option<&Slot<T, G>> {
        self.chunks.get(chunk_of(slot))?.slots.get(offset_of(slot))
    }

    /// The number of a chunk that has room.
    fn open_chunk(&mut self) -> u32 {
        if let Some(&open) = self.open.last() {
            return open;
        }
        // 2^32 values of any type kept here are beyond the memory of one machine.
        let number = u32::try_from(self.chunks.len())
            .ok()
            .filter(|number| *number < u32::MAX >> CHUNK_BITS)
            .expect("a slab holds fewer than 2^32 values");
        self.chunks.push(Chunk::new(self.first_generation));
        self.open.push(number);
        number
    }

    /// Free all memory; the slab holds no value.
    fn release(&mut self) {
        let chunks = self.chunks.iter();
        let generations = chunks.map(|chunk| chunk.emptied().first_generation);
        self.first_generation = latest(self.first_generation, generations);
        self.chunks = Vec::new();
        self.open = Vec::new();
    }
}

impl<T, G: Generation> Default for Slab<T, G> {
    fn default() -> Self {
        Self::new()
    }
}

const fn chunk_of(slot: u32) -> usize {
    (slot >> CHUNK_BITS) as usize
}

const fn offset_of(slot: u32) -> usize {
    slot as usize & (CHUNK - 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_id_never_names_a_later_value() {
        let mut slab = Slab::<_, u32>::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.slot(), first.slot());
        assert_eq!(slab.value(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.value(second), Some(&"second"));
        assert_eq!(slab.at(second.slot()), Some((second, &"second")));
        assert_eq!(slab.at(second.slot() + 1), None);
        assert_eq!(slab.value(Id::new(u32::MAX, 0)), None);
    }

    #[test]
    fn generations_outlive_the_memory() {
        let mut slab = Slab::<_, u16>::new();
        let mut ids = Vec::new();
        for round in 0..5 {
            let now: Vec<_> = (0..600).map(|n| slab.insert(n)).collect();
            assert!(ids.iter().all(|id| slab.value(*id).is_none()), "{round}");
            // One slot is used more often than the others.
            ids.extend(&now);
            let mut last = now[7];
            for _ in 0..round {
                slab.remove(last);
                last = slab.insert(7);
                ids.push(last);
            }
            for id in &ids {
                slab.remove(*id);
            }
            assert!(slab.is_empty());
            assert_eq!(slab.bytes(), 0);
        }
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), all), (3010, 3010));
    }

    #[test]
    fn an_empty_chunk_gives_its_memory_back() {
        let mut slab = Slab::<u64, u16>::new();
        let ids: Vec<_> = (0..1000).map(|n| slab.insert(n)).collect();
        let full = slab.bytes();
        for id in &ids[256..768] {
            slab.remove(*id);
        }
        assert!(slab.bytes() < full * 6 / 10, "{} of {full}", slab.bytes());
        assert_eq!(slab.iter().count(), 488);
        let again: Vec<_> = (0..600).map(|n| slab.insert(n)).collect();
        assert!(again.iter().all(|id| !ids.contains(id)));
        assert!(ids[256..768].iter().all(|id| slab.value(*id).is_none()));
    }

    #[test]
    fn a_single_chunk_keeps_its_memory() {
        let mut slab = Slab::<u64, ()>::new();
        let id = slab.insert(1);
        let bytes = slab.bytes();
        slab.remove(id);
        assert_eq!(slab.bytes(), bytes);
    }

    #[test]
    fn a_generation_wraps() {
        let mut slab = Slab::<_, u16>::new();
        let kept = slab.insert(0);
        let mut last = slab.insert(1);
        for _ in 0..70_000 {
            assert_eq!(slab.remove(last), Some(1));
            let next = slab.insert(1);
            assert_ne!(next, last);
            last = next;
        }
        assert_eq!((slab.value(kept), slab.value(last)), (Some(&0), Some(&1)));
    }

    #[test]
    fn grows_by_chunks_and_takes_vacant_slots_first() {
        let mut slab = Slab::<_>::new();
        let ids: Vec<_> = (0..1000).map(|n| slab.insert(n)).collect();
        assert!((0..).zip(&ids).all(|(n, id)| id.slot() == n));
        for id in &ids[100..200] {
            assert!(slab.remove(*id).is_some());
            assert_eq!(slab.remove(*id), None);
        }
        assert_eq!((slab.len(), slab.slots()), (900, 1000));
        let again: Vec<_> = (0..100).map(|n| slab.insert(n).slot()).collect();
        assert!(again.iter().all(|slot| (100..200).contains(slot)));
        assert!(slab.bytes() >= 1000 * size_of::<i32>());
    }

    #[test]
    fn a_part_is_visited_in_order() {
        let mut slab = Slab::<_, u32>::new();
        let ids: Vec<_> = (0..600).map(|n| slab.insert(n)).collect();
        slab.remove(ids[300]);
        let part: Vec<_> = slab.iter_in(299..302).collect();
        assert_eq!(part, [(ids[299], &299), (ids[301], &301)]);
        assert_eq!(slab.iter_in(250..520).count(), 269);
        assert_eq!(slab.iter().count(), 599);
        let empty = Range { start: 7, end: 3 };
        assert_eq!(
            slab.iter_in(5000..6000).chain(slab.iter_in(empty)).next(),
            None
        );
    }

    #[test]
    fn a_slot_has_a_location() {
        let mut slab = Slab::<u64, u32>::new();
        let ids = [slab.insert(1), slab.insert(2)];
        let [first, second] = ids.map(|id| slab.location(id.slot()).unwrap());
        assert_eq!(first.1, 24);
        assert_eq!(second.0 as usize - first.0 as usize, first.1);
        assert_eq!(slab.location(2), None);
    }

    #[test]
    fn a_slot_without_generation_takes_no_more_than_an_option() {
        assert_eq!(size_of::<Slot<Box<[u8]>, ()>>(), 16);
        assert_eq!(size_of::<Chunk<u64, u32>>(), 32);
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(ops in prop::collection::vec((0..3_u8, any::<prop::sample::Index>()), 0..2000)) {
            let mut slab = Slab::<u32, u16>::new();
            let mut model = BTreeMap::new();
            let mut gone = Vec::new();
            for (n, (op, at)) in (0..).zip(ops) {
                // Phases of growing and of shrinking, so that chunks fill and empty.
                let grows = op > 0 || n % 700 < 350 && n % 2 == 0;
                if grows || model.is_empty() {
                    let id = slab.insert(n);
                    prop_assert!(model.insert(id, n).is_none());
                    prop_assert!(!gone.contains(&id));
                } else {
                    let id = *model.keys().nth(at.index(model.len())).unwrap();
                    prop_assert_eq!(slab.remove(id), model.remove(&id));
                    gone.push(id);
                }
                prop_assert_eq!(slab.len(), model.len());
            }
            for id in &gone {
                prop_assert_eq!(slab.value(*id), None);
            }
            prop_assert!(slab.iter().eq(model.iter().map(|(id, n)| (*id, n))));
            for (id, mut n) in model {
                prop_assert_eq!(slab.value_mut(id), Some(&mut n));
                prop_assert_eq!(slab.remove(id), Some(n));
            }
            prop_assert!(slab.is_empty());
            prop_assert!(slab.chunks.len() < 2);
        }
    }
}
