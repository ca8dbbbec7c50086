//! The connections of the monitor, and which of them gives way to a newcomer.

use std::time::Instant;

use reactor::ConnId;

/// The activity of a caller, ordered: the least active caller gives way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Activity {
    /// Whether it waits for an answer, or reads one.
    pub(crate) is_busy: bool,
    /// Time since which it has been so; `None` for a caller that is being closed.
    pub(crate) since: Option<Instant>,
}

struct Caller {
    id: ConnId,
    /// Whether it has given way, and is not closed yet.
    is_ending: bool,
}

/// The callers, in the order of their coming.
pub(crate) struct Callers {
    all: Vec<Caller>,
    /// Number of descriptors set aside for them.
    room: usize,
}

/// The decision on a newcomer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The caller that gives way to it, and is to be closed.
    pub(crate) instead_of: Option<ConnId>,
    /// Whether it may ask for all pages; otherwise only for health.
    pub(crate) is_served: bool,
}

impl Callers {
    pub(crate) fn new(room: usize) -> Self {
        Self {
            all: Vec::new(),
            room,
        }
    }

    /// Return the number of callers that are served at once.
    pub(crate) fn served(&self) -> usize {
        self.room / 2
    }

    /// Take a newcomer in. When there are enough callers, the one that has been idle for the longest time gives
    /// way. If all are busy, a few more may come, and after that a busy one gives way, so that a newcomer can
    /// always ask for health.
    pub(crate) fn add(
        &mut self,
        id: ConnId,
        activity: impl Fn(ConnId) -> Option<Activity>,
    ) -> Admitted {
        let (served, most) = (self.served(), self.room * 3 / 4);
        let mut count = self.all.iter().filter(|caller| !caller.is_ending).count();
        let mut instead_of = None;
        if count >= served {
            let staying = self.all.iter_mut().filter(|caller| !caller.is_ending);
            let known = staying.filter_map(|caller| Some((activity(caller.id)?, caller)));
            let least = known.min_by_key(|(activity, _)| *activity);
            if let Some((activity, caller)) = least
                && (!activity.is_busy || count >= most)
            {
                caller.is_ending = true;
                instead_of = Some(caller.id);
                count -= 1;
            }
        }
        let caller = Caller {
            id,
            is_ending: false,
        };
        self.all.push(caller);
        Admitted {
            instead_of,
            is_served: count < served,
        }
    }

    /// Forget a caller that is closed.
    pub(crate) fn remove(&mut self, id: ConnId) {
        self.all.retain(|caller| caller.id != id);
    }

    /// Return whether another caller has no descriptor until a caller that has given way is closed.
    pub(crate) fn is_full(&self) -> bool {
        self.all.len() >= self.room
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn id(n: u64) -> ConnId {
        ConnId::from_bits(n)
    }

    /// Return callers 0 to `count`, the first ones of which are busy.
    fn callers(
        room: usize,
        count: u64,
        busy: u64,
    ) -> (Callers, impl Fn(ConnId) -> Option<Activity>) {
        let mut callers = Callers::new(room);
        let start = Instant::now();
        let activity = move |id: ConnId| {
            Some(Activity {
                is_busy: u64::from(id.slot()) < busy,
                since: Some(start + Duration::from_secs(u64::from(id.slot()) / 2)),
            })
        };
        for n in 0..count {
            let admitted = callers.add(id(n), activity);
            assert_eq!(admitted.instead_of, None);
        }
        (callers, activity)
    }

    #[test]
    fn the_longest_idle_one_gives_way() {
        let (mut callers, activity) = callers(16, 8, 2);
        for n in [2, 3, 4] {
            let expected = Admitted {
                instead_of: Some(id(n)),
                is_served: true,
            };
            assert_eq!(callers.add(id(n + 100), &activity), expected);
        }
        callers.remove(id(100));
        callers.remove(id(5));
        let admitted = callers.add(id(110), &activity);
        assert_eq!(admitted.instead_of, None);
        assert!(admitted.is_served, "there is room again");
    }

    #[test]
    fn when_all_are_busy_a_few_more_may_ask_for_health() {
        let (mut callers, activity) = callers(16, 8, 1000);
        for n in 8..12 {
            let admitted = callers.add(id(n), &activity);
            assert_eq!(admitted.instead_of, None);
            assert!(!admitted.is_served);
        }
        for n in 12..16 {
            let admitted = callers.add(id(n), &activity);
            assert_eq!(admitted.instead_of, Some(id(n - 12)), "the oldest");
            assert!(!admitted.is_served);
        }
        assert!(callers.is_full());
        callers.remove(id(0));
        assert!(!callers.is_full());
    }
}
