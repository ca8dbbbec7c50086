//! The subscriptions of one connection: most have one, some have very many.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::DefaultHashBuilder;
use slab::{Id, Index, Slab};

/// Work of making a subscription, in the budget of a turn. Measured: 0.4 to 2 us, the most among a
/// million of them, when nothing is in the cache.
pub(crate) const SUBSCRIBE: usize = 1500;
/// Work of taking a subscription out of the routing table and of freeing its memory. Measured as above.
pub(crate) const UNSUBSCRIBE: usize = 1500;
/// Work of removing a subscription that has left the routing table before.
pub(crate) const REMOVE: usize = 100;

/// Bytes that a subscription takes in the tables of its connection and of the router, besides its names,
/// which are in both.
const TABLES: usize = 160;

/// Longest SID kept beside the counters, in bytes: NATS clients count theirs.
const INLINE: usize = 14;
/// The length of a SID that stands among the names.
const LONG: u8 = u8::MAX;

/// One subscription.
pub(crate) struct Subscription {
    /// Lengths of subject and queue group, then both, and a SID that is too long for `sid`.
    names: Box<[u8]>,
    /// Deliveries after which it ends; 0 for no limit.
    pub(crate) max: u64,
    /// Deliveries since `SUB`.
    pub(crate) delivered: u64,
    /// A delivery needs nothing but the SID: it follows no pointer for it.
    sid: [u8; INLINE],
    /// Length of the SID in `sid`, or [`LONG`].
    sid_len: u8,
    /// Removed by the client, and kept only for messages that other shards have under way.
    pub(crate) leaving: bool,
}

impl Subscription {
    pub(crate) fn new(subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> Self {
        let queue = queue.unwrap_or_default();
        let mut inline = [0; INLINE];
        let (sid_len, long_sid) = match inline.get_mut(..sid.len()) {
            Some(room) => {
                room.copy_from_slice(sid);
                (sid.len() as u8, &[][..])
            }
            None => (LONG, sid),
        };
        let lengths = [subject, queue].map(|name| (name.len() as u32).to_le_bytes());
        let names: [&[u8]; 5] = [&lengths[0], &lengths[1], subject, queue, long_sid];
        Self {
            names: names.concat().into_boxed_slice(),
            max: 0,
            delivered: 0,
            sid: inline,
            sid_len,
            leaving: false,
        }
    }

    /// Return the bytes of memory that the subscription takes, the routing table's included.
    fn bytes(&self) -> usize {
        TABLES + 2 * self.names.len()
    }

    pub(crate) fn subject(&self) -> &[u8] {
        self.split().0
    }

    pub(crate) fn queue(&self) -> Option<&[u8]> {
        Some(self.split().1).filter(|queue| !queue.is_empty())
    }

    #[inline]
    pub(crate) fn sid(&self) -> &[u8] {
        match self.sid.get(..usize::from(self.sid_len)) {
            Some(sid) => sid,
            None => self.split().2,
        }
    }

    /// Return subject, queue group, and the SID if it is long.
    fn split(&self) -> (&[u8], &[u8], &[u8]) {
        let (lengths, names) = self.names.split_at(8);
        let mut lengths = lengths.as_chunks::<4>().0.iter();
        let mut next = || lengths.next().map_or(0, |len| u32::from_le_bytes(*len)) as usize;
        let (subject, rest) = names.split_at(next());
        let (queue, sid) = rest.split_at(next());
        (subject, queue, sid)
    }
}

/// The handle of a subscription: its slot, and the generation that tells it from earlier ones there.
pub(crate) type SubscriptionId = Id<u16>;

/// The slot of the first subscription, which needs no table.
#[derive(Default)]
struct First {
    subscription: Option<Subscription>,
    generation: u16,
}

impl First {
    fn handle(&self) -> SubscriptionId {
        SubscriptionId::new(0, self.generation)
    }
}

/// The subscriptions besides the first one. Slot `n` here is slot `n + 1` of the connection.
#[derive(Default)]
struct More {
    slab: Slab<Subscription, u16>,
    /// Slots by SID, of those that are not leaving.
    by_sid: Index,
    hasher: DefaultHashBuilder,
    /// Sum of [`Subscription::bytes`].
    bytes: usize,
}

impl More {
    fn find(&self, sid: &[u8]) -> Option<SubscriptionId> {
        let slot = self.by_sid.find(self.hasher.hash_one(sid), |slot| {
            let found = self.slab.at(slot);
            found.is_some_and(|(_, one)| one.sid() == sid)
        })?;
        Some(outer(self.slab.at(slot)?.0))
    }

    fn insert(&mut self, subscription: Subscription) -> SubscriptionId {
        self.bytes += subscription.bytes();
        let id = self.slab.insert(subscription);
        let hash_of = |slot| hash_at(&self.slab, &self.hasher, slot);
        self.by_sid.insert(hash_of(id.slot()), id.slot(), hash_of);
        outer(id)
    }

    fn remove(&mut self, id: SubscriptionId) -> Option<Subscription> {
        let removed = self.slab.remove(id)?;
        self.bytes -= removed.bytes();
        Some(removed)
    }

    fn forget_sid(&mut self, slot: u32) {
        let hash_of = |slot| hash_at(&self.slab, &self.hasher, slot);
        self.by_sid.remove(hash_of(slot), slot, hash_of);
    }
}

fn hash_at(slab: &Slab<Subscription, u16>, hasher: &DefaultHashBuilder, slot: u32) -> u64 {
    let found = slab.at(slot);
    found.map_or(0, |(_, one)| hasher.hash_one(one.sid()))
}

/// Return the connection's handle for a handle in the table.
const fn outer(id: SubscriptionId) -> SubscriptionId {
    SubscriptionId::new(id.slot() + 1, id.generation())
}

/// Return the table's handle for a handle of the connection; `None` for the first subscription.
fn inner(handle: SubscriptionId) -> Option<SubscriptionId> {
    let slot = handle.slot().checked_sub(1)?;
    Some(SubscriptionId::new(slot, handle.generation()))
}

/// Subscriptions by handle and by SID.
#[derive(Default)]
pub(crate) struct Subscriptions {
    first: First,
    /// Allocated with the second subscription, and kept: a handle never names a later subscription.
    more: Option<Box<More>>,
}

impl Subscriptions {
    /// Return the number of active ones.
    pub(crate) fn len(&self) -> usize {
        let first = &self.first.subscription;
        let first = first.as_ref().is_some_and(|first| !first.leaving);
        usize::from(first) + self.more.as_ref().map_or(0, |more| more.by_sid.len())
    }

    /// Return the bytes of memory that all of them take, the routing table's included.
    pub(crate) fn bytes(&self) -> usize {
        let first = self.first.subscription.as_ref();
        let first = first.map_or(0, Subscription::bytes);
        first + self.more.as_ref().map_or(0, |more| more.bytes)
    }

    /// Return the active subscription that the client calls `sid`.
    pub(crate) fn find(&self, sid: &[u8]) -> Option<SubscriptionId> {
        match &self.first.subscription {
            Some(first) if !first.leaving && first.sid() == sid => Some(self.first.handle()),
            _ => self.more.as_deref()?.find(sid),
        }
    }

    /// Add a subscription whose SID is not in use.
    pub(crate) fn insert(&mut self, subscription: Subscription) -> SubscriptionId {
        if self.first.subscription.is_none() {
            self.first.subscription = Some(subscription);
            return self.first.handle();
        }
        self.more.get_or_insert_default().insert(subscription)
    }

    #[inline]
    pub(crate) fn value(&self, handle: SubscriptionId) -> Option<&Subscription> {
        match inner(handle) {
            None if handle == self.first.handle() => self.first.subscription.as_ref(),
            None => None,
            Some(id) => self.more.as_deref()?.slab.value(id),
        }
    }

    #[inline]
    pub(crate) fn value_mut(&mut self, handle: SubscriptionId) -> Option<&mut Subscription> {
        match inner(handle) {
            None if handle == self.first.handle() => self.first.subscription.as_mut(),
            None => None,
            Some(id) => self.more.as_deref_mut()?.slab.value_mut(id),
        }
    }

    /// Free the SID, and keep the subscription until it is removed.
    pub(crate) fn mark_leaving(&mut self, handle: SubscriptionId) {
        let Some(subscription) = self.value_mut(handle) else {
            return;
        };
        let was_leaving = std::mem::replace(&mut subscription.leaving, true);
        if !was_leaving && let (Some(id), Some(more)) = (inner(handle), &mut self.more) {
            more.forget_sid(id.slot());
        }
    }

    pub(crate) fn remove(&mut self, handle: SubscriptionId) -> Option<Subscription> {
        let is_active = !self.value(handle)?.leaving;
        let Some(id) = inner(handle) else {
            self.first.generation = self.first.generation.wrapping_add(1);
            return self.first.subscription.take();
        };
        let more = self.more.as_deref_mut()?;
        if is_active {
            more.forget_sid(id.slot());
        }
        more.remove(id)
    }

    /// Return the number of slots, taken or not.
    pub(crate) fn slots(&self) -> u32 {
        self.more.as_ref().map_or(0, |more| more.slab.slots()) + 1
    }

    /// Return the subscriptions in `slots`, also those that are leaving. Empty slots cost nearly nothing.
    pub(crate) fn iter_in(
        &self,
        slots: Range<u32>,
    ) -> impl Iterator<Item = (SubscriptionId, &Subscription)> {
        let first = Some(&self.first).filter(|_| slots.contains(&0));
        let first = first.and_then(|first| Some((first.handle(), first.subscription.as_ref()?)));
        let inner = slots.start.saturating_sub(1)..slots.end.saturating_sub(1);
        let more = self.more.iter().flat_map(move |more| {
            let found = more.slab.iter_in(inner.clone());
            found.map(|(id, one)| (outer(id), one))
        });
        first.into_iter().chain(more)
    }

    /// Take out the subscriptions in `slots`, also those that are leaving. All SIDs are forgotten: this is
    /// for a connection that has ended.
    pub(crate) fn drain_in(
        &mut self,
        slots: Range<u32>,
        mut visit: impl FnMut(SubscriptionId, Subscription),
    ) {
        if slots.contains(&0)
            && let Some(first) = self.first.subscription.take()
        {
            visit(self.first.handle(), first);
        }
        let Some(more) = &mut self.more else {
            return;
        };
        more.by_sid = Index::default();
        for slot in slots.start.saturating_sub(1)..slots.end.saturating_sub(1) {
            if let Some((id, _)) = more.slab.at(slot)
                && let Some(one) = more.remove(id)
            {
                visit(outer(id), one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all(subscriptions: &Subscriptions) -> Vec<(SubscriptionId, &Subscription)> {
        subscriptions.iter_in(0..u32::MAX).collect()
    }

    fn numbered(n: u32) -> Subscription {
        Subscription::new(format!("s.{n}").as_bytes(), None, n.to_string().as_bytes())
    }

    #[test]
    fn names_are_kept_apart() {
        for len in (0..40).chain([254, 255, 256, 4000]) {
            let sid = vec![b'7'; len];
            for queue in [None, Some(&b"q"[..])] {
                let one = Subscription::new(b"a.b", queue, &sid);
                let names = (one.subject(), one.queue(), one.sid());
                assert_eq!(names, (&b"a.b"[..], queue, &sid[..]));
            }
        }
    }

    #[test]
    fn a_subscription_stays_small() {
        assert_eq!(size_of::<Option<Subscription>>(), 48);
        assert_eq!(size_of::<Subscriptions>(), 64);
    }

    #[test]
    fn memory_comes_back_after_a_peak() {
        let mut subscriptions = Subscriptions::default();
        let bytes = |subscriptions: &Subscriptions| {
            let more = subscriptions.more.as_deref();
            more.map_or(0, |more| more.slab.bytes() + more.by_sid.bytes())
        };
        let places: Vec<_> = (0..100_000)
            .map(|n| subscriptions.insert(numbered(n)))
            .collect();
        assert!(bytes(&subscriptions) > 56 * 100_000);
        for handle in &places {
            assert!(subscriptions.remove(*handle).is_some());
        }
        assert!(bytes(&subscriptions) < 5000, "{}", bytes(&subscriptions));
        assert_eq!((subscriptions.len(), all(&subscriptions).len()), (0, 0));
        let again = subscriptions.insert(numbered(0));
        assert!(!places.contains(&again));
    }

    #[test]
    fn one_and_many_behave_alike() {
        let mut subscriptions = Subscriptions::default();
        let places: Vec<_> = (0..100)
            .map(|n| subscriptions.insert(numbered(n)))
            .collect();
        assert_eq!(subscriptions.len(), 100);
        for (n, handle) in places.iter().enumerate() {
            assert_eq!(subscriptions.find(n.to_string().as_bytes()), Some(*handle));
        }
        for handle in &places[..50] {
            assert!(subscriptions.remove(*handle).is_some());
            assert!(subscriptions.remove(*handle).is_none());
            assert!(subscriptions.value(*handle).is_none());
        }
        assert_eq!(subscriptions.len(), 50);
        let again = subscriptions.insert(numbered(0));
        assert_eq!(again.slot(), 0);
        assert_ne!(again, places[0]);
        assert_eq!(subscriptions.find(b"0"), Some(again));
    }

    #[test]
    fn places_can_be_visited_in_parts() {
        let mut subscriptions = Subscriptions::default();
        assert_eq!((subscriptions.slots(), all(&subscriptions).len()), (1, 0));
        for n in 0..10 {
            subscriptions.insert(numbered(n));
        }
        subscriptions.remove(SubscriptionId::new(4, 0));
        let indexes = |range| -> Vec<u32> {
            let part = subscriptions.iter_in(range);
            part.map(|(handle, _)| handle.slot()).collect()
        };
        assert_eq!(subscriptions.slots(), 10);
        assert_eq!(indexes(0..3), [0, 1, 2]);
        assert_eq!(indexes(3..6), [3, 5]);
        assert_eq!(indexes(0..1), [0]);
        assert_eq!(indexes(9..100), [9]);
        assert_eq!(indexes(10..100), [0_u32; 0]);
    }

    #[test]
    fn all_can_be_taken_out_in_parts() {
        let mut subscriptions = Subscriptions::default();
        let mut left: Vec<_> = (0..1000)
            .map(|n| subscriptions.insert(numbered(n)))
            .collect();
        subscriptions.mark_leaving(left[3]);
        subscriptions.remove(left.remove(500));
        let mut taken = Vec::new();
        let places = subscriptions.slots();
        for start in (0..places).step_by(100) {
            subscriptions.drain_in(start..start + 100, |handle, one| {
                assert_eq!(one.leaving, handle == left[3]);
                taken.push(handle);
            });
        }
        taken.sort_unstable();
        assert_eq!(taken, left);
        assert_eq!((subscriptions.len(), all(&subscriptions).len()), (0, 0));
    }

    #[test]
    fn a_leaving_subscription_frees_its_sid() {
        let mut subscriptions = Subscriptions::default();
        for _ in 0..2 {
            let handle = subscriptions.insert(numbered(5));
            subscriptions.mark_leaving(handle);
            assert_eq!(subscriptions.find(b"5"), None);
            assert!(subscriptions.value(handle).is_some());
        }
        let handle = subscriptions.insert(numbered(5));
        assert_eq!(subscriptions.find(b"5"), Some(handle));
        let leaving: Vec<_> = all(&subscriptions)
            .into_iter()
            .filter(|(_, one)| one.leaving)
            .map(|(handle, _)| handle)
            .collect();
        assert_eq!(leaving.len(), 2);
        leaving
            .into_iter()
            .for_each(|handle| assert!(subscriptions.remove(handle).is_some()));
        assert_eq!(subscriptions.find(b"5"), Some(handle));
    }
}
