//! The permission to publish to the reply subjects of received messages.

use crate::permissions::ResponseLimits;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// The most reply subjects that one client may have open. The oldest goes first, as if it had expired.
const MOST: usize = 4096;

/// The reply subjects that a client may publish to, for a while.
///
/// Times are since any fixed moment, and never go back.
#[derive(Debug, Default)]
pub struct Replies {
    open: HashMap<Box<[u8]>, Open>,
    /// Subjects by the time of their receipt. A subject that was received again stands here twice.
    order: VecDeque<(Duration, Box<[u8]>)>,
}

#[derive(Debug)]
struct Open {
    since: Duration,
    used: u32,
}

impl Replies {
    /// Permit replies to the message that the client received at `now` with this reply subject.
    pub fn permit(&mut self, limits: &ResponseLimits, now: Duration, reply: &[u8]) {
        self.forget_expired(limits, now);
        if self.order.len() == MOST {
            self.forget_oldest();
        }
        let open = Open {
            since: now,
            used: 0,
        };
        self.open.insert(reply.into(), open);
        self.order.push_back((now, reply.into()));
    }

    /// Use the permission to publish to `subject` at `now` once; return whether there was one.
    pub fn take(&mut self, limits: &ResponseLimits, now: Duration, subject: &[u8]) -> bool {
        self.forget_expired(limits, now);
        let Some(open) = self.open.get_mut(subject) else {
            return false;
        };
        open.used += 1;
        if open.used == limits.max {
            self.open.remove(subject);
        } else {
            open.used = open.used.min(u32::MAX - 1);
        }
        true
    }

    /// Return the number of subjects that are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Return whether no subject is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn forget_expired(&mut self, limits: &ResponseLimits, now: Duration) {
        let Some(expires) = limits.expires() else {
            return;
        };
        while self
            .order
            .front()
            .is_some_and(|(since, _)| now.saturating_sub(*since) > expires)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((since, subject)) = self.order.pop_front() else {
            return;
        };
        if self
            .open
            .get(&subject)
            .is_some_and(|open| open.since == since)
        {
            self.open.remove(&subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_reply_subject_has_its_number_of_messages() {
        let limits = ResponseLimits {
            max: 2,
            expires_s: 0.0,
        };
        let mut replies = Replies::default();
        assert!(!replies.take(&limits, SECOND, b"r"));
        replies.permit(&limits, SECOND, b"r");
        assert!(replies.take(&limits, 1000 * SECOND, b"r"));
        assert!(!replies.take(&limits, 1000 * SECOND, b"s"));
        assert!(replies.take(&limits, 1000 * SECOND, b"r"));
        assert!(!replies.take(&limits, 1000 * SECOND, b"r"));
        replies.permit(&limits, 1001 * SECOND, b"r");
        assert!(replies.take(&limits, 1001 * SECOND, b"r"));
        let any = ResponseLimits {
            max: 0,
            expires_s: 0.0,
        };
        replies.permit(&any, SECOND, b"t");
        assert!((0..1000).all(|_| replies.take(&any, SECOND, b"t")));
    }

    #[test]
    fn a_permission_ends_with_its_time() {
        let limits = ResponseLimits {
            max: 0,
            expires_s: 2.0,
        };
        let mut replies = Replies::default();
        replies.permit(&limits, SECOND, b"r");
        replies.permit(&limits, 2 * SECOND, b"s");
        assert!(replies.take(&limits, 3 * SECOND, b"r"));
        let later = 3 * SECOND + Duration::from_nanos(1);
        assert!(!replies.take(&limits, later, b"r"));
        assert!(replies.take(&limits, later, b"s"));
        // Received again, it has its whole time again.
        replies.permit(&limits, 4 * SECOND, b"s");
        assert!(replies.take(&limits, 6 * SECOND, b"s"));
        assert_eq!(replies.len(), 1);
    }

    #[test]
    fn open_subjects_are_bounded() {
        let limits = ResponseLimits {
            max: 1,
            expires_s: 0.0,
        };
        let mut replies = Replies::default();
        for number in 0..3 * MOST {
            replies.permit(&limits, SECOND, number.to_string().as_bytes());
        }
        assert_eq!((replies.len(), replies.order.len()), (MOST, MOST));
        assert!(!replies.take(&limits, SECOND, b"0"));
        assert!(replies.take(&limits, SECOND, (3 * MOST - 1).to_string().as_bytes()));
    }
}
