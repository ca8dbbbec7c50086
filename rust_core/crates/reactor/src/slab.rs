//! Storage for connections: stable slots in fixed-size chunks, addressed by generation-checked ids.

use std::fmt;

/// Slots per chunk. Chunks never move, so a million connections grow without copying and without
/// the slack of a doubling vector.
const CHUNK: usize = 256;

/// Bits of a generation. Slot and generation together leave 8 bits of a 64-bit token for what a driver
/// marks its operations with. An id is forgotten long before its slot has been reused 2^24 times.
const GENERATION_BITS: u32 = 24;
const GENERATIONS: u32 = (1 << GENERATION_BITS) - 1;

/// The name of one connection of one shard. It never names a later connection in the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    slot: u32,
    generation: u32,
}

impl ConnId {
    /// The id of no connection, for timers that belong to the shard itself.
    pub const NONE: Self = Self {
        slot: u32::MAX,
        generation: GENERATIONS,
    };

    /// The slot's index, dense from 0; reused after a connection ends.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// The id as one integer below 2^56, for tokens that the kernel carries.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        ((self.generation as u64) << 32) | self.slot as u64
    }

    /// The inverse of [`ConnId::to_bits`]; bits from the 56th on are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            slot: bits as u32,
            generation: (bits >> 32) as u32 & GENERATIONS,
        }
    }
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values addressed by [`ConnId`]. Insertion, removal and look-up take constant time.
pub struct Slab<T> {
    chunks: Vec<Box<[Slot<T>]>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Slab<T> {
    /// Values stored now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated for values, free slots included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Slot<T>>() + self.free.capacity() * size_of::<u32>()
    }

    /// Ids of what is stored in `slots`, in slot order.
    pub fn ids_in(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = ConnId> + '_ {
        let end = slots.end.min(self.slots());
        (slots.start..end).filter_map(|slot| self.id_at(slot))
    }

    /// One more than the highest slot that may be taken.
    #[must_use]
    pub fn slots(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores `value` in a free slot.
    pub fn insert(&mut self, value: T) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let entry = &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK];
        entry.value = Some(value);
        self.len += 1;
        ConnId {
            slot,
            generation: entry.generation,
        }
    }

    /// Takes the value out; the id is void from then on.
    pub fn remove(&mut self, id: ConnId) -> Option<T> {
        let entry = self.entry_mut(id)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1) & GENERATIONS;
        self.free.push(id.slot);
        self.len -= 1;
        Some(value)
    }

    /// The value named by `id`, unless it has been removed.
    #[inline]
    #[must_use]
    pub fn value(&self, id: ConnId) -> Option<&T> {
        let entry = self
            .chunks
            .get(id.slot as usize / CHUNK)?
            .get(id.slot as usize % CHUNK)?;
        if entry.generation == id.generation {
            entry.value.as_ref()
        } else {
            None
        }
    }

    /// Like [`Slab::value`], mutably.
    #[inline]
    #[must_use]
    pub fn value_mut(&mut self, id: ConnId) -> Option<&mut T> {
        let entry = self.entry_mut(id)?;
        entry.value.as_mut()
    }

    /// The id of what is stored in a slot now.
    fn id_at(&self, slot: u32) -> Option<ConnId> {
        let entry = self
            .chunks
            .get(slot as usize / CHUNK)?
            .get(slot as usize % CHUNK)?;
        entry.value.is_some().then_some(ConnId {
            slot,
            generation: entry.generation,
        })
    }

    /// Begins to fetch a slot into the cache that will be looked at soon: with a million connections
    /// none of them is there.
    #[inline]
    pub(crate) fn prefetch(&self, id: ConnId) {
        let slot = id.slot;
        #[cfg(target_arch = "x86_64")]
        if let Some(chunk) = self.chunks.get(slot as usize / CHUNK) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let entry = (&raw const chunk[slot as usize % CHUNK]).cast::<i8>();
            for line in (0..size_of::<Slot<T>>()).step_by(64) {
                // SAFETY: a prefetch reads nothing, and the address lies within the slot.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(entry.add(line)) };
            }
        }
    }

    /// Ids of everything stored, in slot order.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.chunks
            .iter()
            .flatten()
            .enumerate()
            .filter(|(_, entry)| entry.value.is_some())
            .map(|(slot, entry)| ConnId {
                slot: slot as u32,
                generation: entry.generation,
            })
    }

    #[inline]
    fn entry_mut(&mut self, id: ConnId) -> Option<&mut Slot<T>> {
        let entry = self
            .chunks
            .get_mut(id.slot as usize / CHUNK)?
            .get_mut(id.slot as usize % CHUNK)?;
        if entry.generation == id.generation {
            Some(entry)
        } else {
            None
        }
    }

    fn grow(&mut self) -> u32 {
        let first = (self.chunks.len() * CHUNK) as u32;
        self.chunks.push(
            (0..CHUNK)
                .map(|_| Slot {
                    generation: 0,
                    value: None,
                })
                .collect(),
        );
        // Lowest slots are handed out first.
        self.free.extend((first + 1..first + CHUNK as u32).rev());
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_names_a_later_value() {
        let mut slab = Slab::default();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(second.slot(), first.slot());
        assert_eq!(slab.value(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.value(second), Some(&"second"));
        assert_eq!(slab.value(ConnId::NONE), None);
    }

    #[test]
    fn grows_by_chunks_and_reuses_slots() {
        let mut slab = Slab::default();
        let ids: Vec<_> = (0..1000).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.len(), 1000);
        assert!(
            ids.iter()
                .enumerate()
                .all(|(n, id)| id.slot() as usize == n)
        );
        for id in &ids[100..200] {
            slab.remove(*id);
        }
        let again: Vec<_> = (0..100).map(|n| slab.insert(n).slot()).collect();
        assert!(again.iter().all(|slot| (100..200).contains(slot)));
        assert_eq!(slab.ids().count(), 1000);
    }

    #[test]
    fn bits_round_trip() {
        let mut slab = Slab::default();
        let id = slab.insert(());
        slab.remove(id);
        let id = slab.insert(());
        assert_eq!(ConnId::from_bits(id.to_bits()), id);
        assert_eq!(ConnId::from_bits(id.to_bits() | 0xff << 56), id);
        assert!(ConnId::NONE.to_bits() < 1 << 56);
        assert_eq!(ConnId::from_bits(ConnId::NONE.to_bits()), ConnId::NONE);
    }

    #[test]
    fn ids_of_a_range_of_slots() {
        let mut slab = Slab::default();
        let ids: Vec<_> = (0..600).map(|n| slab.insert(n)).collect();
        slab.remove(ids[300]);
        assert_eq!(slab.slots(), 768);
        let part: Vec<_> = slab.ids_in(299..302).collect();
        assert_eq!(part, [ids[299], ids[301]]);
        assert_eq!(slab.ids_in(0..u32::MAX).count(), 599);
        assert_eq!(slab.ids_in(5000..6000).count(), 0);
        assert!(slab.bytes() >= 768 * size_of::<i32>());
    }
}
