//! The subscriptions of one connection: most have one, some have very many.

use std::collections::HashMap;
use std::ops::Range;

/// One subscription.
pub(crate) struct Subscription {
    /// Subject, queue group and SID, one after the other.
    names: Box<[u8]>,
    subject: u32,
    queue: u32,
    /// Deliveries after which it ends; 0 for no limit.
    pub(crate) max: u64,
    /// Deliveries since `SUB`.
    pub(crate) delivered: u64,
    /// Removed by the client, and kept only for messages that other shards have under way.
    pub(crate) leaving: bool,
}

impl Subscription {
    pub(crate) fn new(subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> Self {
        let queue = queue.unwrap_or_default();
        Self {
            names: [subject, queue, sid].concat().into_boxed_slice(),
            subject: subject.len() as u32,
            queue: queue.len() as u32,
            max: 0,
            delivered: 0,
            leaving: false,
        }
    }

    pub(crate) fn subject(&self) -> &[u8] {
        &self.names[..self.subject as usize]
    }

    pub(crate) fn queue(&self) -> Option<&[u8]> {
        let queue = &self.names[self.subject as usize..][..self.queue as usize];
        (!queue.is_empty()).then_some(queue)
    }

    #[inline]
    pub(crate) fn sid(&self) -> &[u8] {
        &self.names[(self.subject + self.queue) as usize..]
    }
}

/// Where a subscription is: its index and the generation of that place.
pub(crate) type Place = (u32, u16);

#[derive(Default)]
struct Slot {
    subscription: Option<Subscription>,
    generation: u16,
}

#[derive(Default)]
struct More {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_sid: HashMap<Box<[u8]>, u32>,
}

/// Subscriptions by place and by SID. The first needs no table.
#[derive(Default)]
pub(crate) struct Subscriptions {
    first: Slot,
    more: Option<Box<More>>,
}

impl Subscriptions {
    /// Number of active ones.
    pub(crate) fn len(&self) -> usize {
        let first = self
            .first
            .subscription
            .as_ref()
            .is_some_and(|first| !first.leaving);
        usize::from(first) + self.more.as_ref().map_or(0, |more| more.by_sid.len())
    }

    /// The active subscription that the client calls `sid`.
    pub(crate) fn find(&self, sid: &[u8]) -> Option<Place> {
        if let Some(first) = &self.first.subscription
            && !first.leaving
            && first.sid() == sid
        {
            return Some((0, self.first.generation));
        }
        let more = self.more.as_deref()?;
        let index = *more.by_sid.get(sid)?;
        Some((index + 1, more.slots[index as usize].generation))
    }

    /// Adds a subscription whose SID is not in use.
    pub(crate) fn insert(&mut self, subscription: Subscription) -> Place {
        if self.first.subscription.is_none() {
            self.first.subscription = Some(subscription);
            return (0, self.first.generation);
        }
        let more = self.more.get_or_insert_default();
        let index = more.free.pop().unwrap_or_else(|| {
            more.slots.push(Slot::default());
            more.slots.len() as u32 - 1
        });
        more.by_sid.insert(subscription.sid().into(), index);
        let slot = &mut more.slots[index as usize];
        slot.subscription = Some(subscription);
        (index + 1, slot.generation)
    }

    #[inline]
    pub(crate) fn value(&self, place: Place) -> Option<&Subscription> {
        let slot = match (place.0, self.more.as_deref()) {
            (0, _) => &self.first,
            (index, Some(more)) => more.slots.get(index as usize - 1)?,
            _ => return None,
        };
        if slot.generation == place.1 {
            slot.subscription.as_ref()
        } else {
            None
        }
    }

    #[inline]
    pub(crate) fn value_mut(&mut self, place: Place) -> Option<&mut Subscription> {
        let slot = self.slot_mut(place)?;
        slot.subscription.as_mut()
    }

    /// Frees the SID, and keeps the subscription until it is removed.
    pub(crate) fn mark_leaving(&mut self, place: Place) {
        if let Some(subscription) = self.value_mut(place) {
            subscription.leaving = true;
        }
        self.forget_sid(place);
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<Subscription> {
        self.forget_sid(place);
        let slot = self.slot_mut(place)?;
        let subscription = slot.subscription.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        if place.0 > 0
            && let Some(more) = &mut self.more
        {
            more.free.push(place.0 - 1);
        }
        Some(subscription)
    }

    /// All of them, those that are leaving included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place, &Subscription)> {
        self.iter_in(0..u32::MAX)
    }

    /// Places, taken or not.
    pub(crate) fn places(&self) -> u32 {
        self.more
            .as_ref()
            .map_or(1, |more| more.slots.len() as u32 + 1)
    }

    /// Those in `places`, those that are leaving included.
    pub(crate) fn iter_in(
        &self,
        places: Range<u32>,
    ) -> impl Iterator<Item = (Place, &Subscription)> {
        let first = places.contains(&0).then_some(&self.first);
        let more = self.more.as_deref().map_or(&[][..], |more| &more.slots);
        let end = (places.end.saturating_sub(1) as usize).min(more.len());
        let start = (places.start.saturating_sub(1) as usize).min(end);
        (places.start..)
            .zip(first.into_iter().chain(&more[start..end]))
            .filter_map(|(index, slot)| {
                let subscription = slot.subscription.as_ref()?;
                Some(((index, slot.generation), subscription))
            })
    }

    fn forget_sid(&mut self, place: Place) {
        let (Some(index), Some(more)) = (place.0.checked_sub(1), &mut self.more) else {
            return;
        };
        if let Some(slot) = more.slots.get(index as usize)
            && let Some(subscription) = &slot.subscription
            && more.by_sid.get(subscription.sid()) == Some(&index)
        {
            more.by_sid.remove(subscription.sid());
        }
    }

    #[inline]
    fn slot_mut(&mut self, place: Place) -> Option<&mut Slot> {
        let slot = match (place.0, self.more.as_deref_mut()) {
            (0, _) => &mut self.first,
            (index, Some(more)) => more.slots.get_mut(index as usize - 1)?,
            _ => return None,
        };
        if slot.generation == place.1 {
            Some(slot)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn numbered(n: u32) -> Subscription {
        Subscription::new(format!("s.{n}").as_bytes(), None, n.to_string().as_bytes())
    }

    #[test]
    fn names_are_kept_apart() {
        let plain = Subscription::new(b"a.b", None, b"7");
        assert_eq!(
            (plain.subject(), plain.queue(), plain.sid()),
            (&b"a.b"[..], None, &b"7"[..])
        );
        let queued = Subscription::new(b"a.b", Some(b"q"), b"77");
        assert_eq!(queued.queue(), Some(&b"q"[..]));
        assert_eq!(queued.sid(), b"77");
    }

    #[test]
    fn one_and_many_behave_alike() {
        let mut subscriptions = Subscriptions::default();
        let places: Vec<_> = (0..100)
            .map(|n| subscriptions.insert(numbered(n)))
            .collect();
        assert_eq!(subscriptions.len(), 100);
        for (n, place) in places.iter().enumerate() {
            assert_eq!(subscriptions.find(n.to_string().as_bytes()), Some(*place));
        }
        for place in &places[..50] {
            assert!(subscriptions.remove(*place).is_some());
            assert!(subscriptions.remove(*place).is_none());
            assert!(subscriptions.value(*place).is_none());
        }
        assert_eq!(subscriptions.len(), 50);
        let again = subscriptions.insert(numbered(0));
        assert_eq!(again.0, 0);
        assert_ne!(again, places[0]);
        assert_eq!(subscriptions.find(b"0"), Some(again));
    }

    #[test]
    fn places_can_be_visited_in_parts() {
        let mut subscriptions = Subscriptions::default();
        assert_eq!(
            (subscriptions.places(), subscriptions.iter().count()),
            (1, 0)
        );
        for n in 0..10 {
            subscriptions.insert(numbered(n));
        }
        subscriptions.remove((4, 0));
        let indexes = |range| -> Vec<u32> {
            let part = subscriptions.iter_in(range);
            part.map(|(place, _)| place.0).collect()
        };
        assert_eq!(subscriptions.places(), 10);
        assert_eq!(indexes(0..3), [0, 1, 2]);
        assert_eq!(indexes(3..6), [3, 5]);
        assert_eq!(indexes(0..1), [0]);
        assert_eq!(indexes(9..100), [9]);
        assert_eq!(indexes(10..100), [0_u32; 0]);
    }

    #[test]
    fn a_leaving_subscription_frees_its_sid() {
        let mut subscriptions = Subscriptions::default();
        for _ in 0..2 {
            let place = subscriptions.insert(numbered(5));
            subscriptions.mark_leaving(place);
            assert_eq!(subscriptions.find(b"5"), None);
            assert!(subscriptions.value(place).is_some());
        }
        let place = subscriptions.insert(numbered(5));
        assert_eq!(subscriptions.find(b"5"), Some(place));
        let leaving: Vec<_> = subscriptions
            .iter()
            .filter(|(_, one)| one.leaving)
            .map(|(place, _)| place)
            .collect();
        assert_eq!(leaving.len(), 2);
        leaving
            .into_iter()
            .for_each(|place| assert!(subscriptions.remove(place).is_some()));
        assert_eq!(subscriptions.find(b"5"), Some(place));
    }
}
