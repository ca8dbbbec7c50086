//! Values under stable `u32` ids.

/// No value: the id that a slab never gives out.
pub(crate) const NONE: u32 = u32::MAX;

const CHUNK_BITS: u32 = 8;
const CHUNK: usize = 1 << CHUNK_BITS;

enum Slot<T> {
    /// The id of the next vacant slot, or [`NONE`].
    Vacant(u32),
    Occupied(T),
}

/// A slab in chunks: growing copies no more than one chunk, and ids stay valid until removal.
/// Vacant slots are reused; all memory is released when the last value goes.
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    vacant: u32,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            vacant: NONE,
            len: 0,
        }
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self.chunks.iter().map(Vec::capacity).sum();
        slots * size_of::<Slot<T>>()
    }

    /// Whether more than one chunk is allocated.
    pub(crate) fn is_large(&self) -> bool {
        self.chunks.len() > 1
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        match self.chunks.get(chunk(id))?.get(offset(id))? {
            Slot::Occupied(value) => Some(value),
            Slot::Vacant(_) => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        match self.chunks.get_mut(chunk(id))?.get_mut(offset(id))? {
            Slot::Occupied(value) => Some(value),
            Slot::Vacant(_) => None,
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        let id = self.vacant;
        if let Some(slot) = self
            .chunks
            .get_mut(chunk(id))
            .and_then(|chunk| chunk.get_mut(offset(id)))
            && let Slot::Vacant(next) = *slot
        {
            self.vacant = next;
            *slot = Slot::Occupied(value);
            return id;
        }
        self.push(value)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let slot = self.chunks.get_mut(chunk(id))?.get_mut(offset(id))?;
        if matches!(slot, Slot::Vacant(_)) {
            return None;
        }
        let removed = std::mem::replace(slot, Slot::Vacant(self.vacant));
        self.vacant = id;
        self.len -= 1;
        if self.len == 0 && self.is_large() {
            *self = Self::new();
        }
        match removed {
            Slot::Occupied(value) => Some(value),
            Slot::Vacant(_) => None,
        }
    }

    /// Every id with its value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.chunks.iter().flatten();
        (0..NONE).zip(slots).filter_map(|(id, slot)| match slot {
            Slot::Occupied(value) => Some((id, value)),
            Slot::Vacant(_) => None,
        })
    }

    /// Adds a value behind all slots. Every chunk but the last is full.
    fn push(&mut self, value: T) -> u32 {
        let full = self.chunks.last().is_none_or(|last| last.len() == CHUNK);
        if full {
            // The first chunk grows from nothing: most slabs stay small.
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let last = self.chunks.len() - 1;
        let id = last * CHUNK + self.chunks[last].len();
        self.chunks[last].push(Slot::Occupied(value));
        // 2^32 values of any type kept here are beyond 100 GB.
        u32::try_from(id).expect("a slab holds fewer than 2^32 values")
    }
}

const fn chunk(id: u32) -> usize {
    (id >> CHUNK_BITS) as usize
}

const fn offset(id: u32) -> usize {
    id as usize & (CHUNK - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_and_reused() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..1000).map(|n| slab.insert(n)).collect();
        assert!((0..1000).zip(&ids).all(|(n, &id)| slab.get(id) == Some(&n)));
        for &id in ids.iter().step_by(2) {
            assert!(slab.remove(id).is_some());
            assert_eq!(slab.remove(id), None);
            assert_eq!(slab.get(id), None);
        }
        assert_eq!(slab.len(), 500);
        assert_eq!(slab.iter().count(), 500);
        let again: Vec<u32> = (0..500).map(|n| slab.insert(n)).collect();
        assert!(again.iter().all(|id| *id < 1000));
        assert_eq!(slab.insert(0), 1000);
    }

    #[test]
    fn the_last_removal_releases_the_chunks() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..1000).map(|n| slab.insert(n)).collect();
        for id in ids {
            assert!(slab.remove(id).is_some());
        }
        assert!(slab.chunks.is_empty());
        assert_eq!(slab.insert(1), 0);
        assert_eq!(slab.remove(NONE), None);
        assert_eq!(slab.get_mut(NONE), None);
    }
}
