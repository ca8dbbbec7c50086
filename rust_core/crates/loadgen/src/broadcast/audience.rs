//! The users of a process and their subjects: user N is subscribed to subject N mod S.

/// The users of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Audience {
    first_user: u32,
    users: u32,
    subjects: u32,
}

impl Audience {
    /// Return the users from number `first_user` on, with `subjects` subjects in all.
    pub(crate) fn new(first_user: u32, users: u32, subjects: u32) -> Self {
        Self {
            first_user,
            users,
            subjects,
        }
    }

    /// Return the subject of a message.
    #[inline]
    pub(crate) fn subject_of(self, number: u64) -> u32 {
        (number % u64::from(self.subjects)) as u32
    }

    /// Return how many of the users are subscribed to a subject.
    #[inline]
    pub(crate) fn subscribers(self, subject: u32) -> u32 {
        self.count_below(self.first_user + self.users, subject)
            - self.count_below(self.first_user, subject)
    }

    /// Return how many of the messages from number `from` to before `to` are on the subject of
    /// `from`.
    #[inline]
    pub(crate) fn messages(self, from: u64, to: u64) -> u64 {
        to.saturating_sub(from).div_ceil(u64::from(self.subjects))
    }

    /// Return the distance from a message to the next one on the same subject.
    #[inline]
    pub(crate) fn step(self) -> u64 {
        u64::from(self.subjects)
    }

    /// Return the number of users below number `end` who are subscribed to `subject`.
    #[inline]
    fn count_below(self, end: u32, subject: u32) -> u32 {
        end.saturating_sub(subject).div_ceil(self.subjects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_are_those_of_going_through_all(
            first in 0u32..50, users in 1u32..50, subjects in 1u32..20, from in 0u64..40, len in 0u64..40,
        ) {
            let audience = Audience::new(first, users, subjects);
            for subject in 0..subjects {
                let found = (first..first + users).filter(|user| user % subjects == subject).count();
                prop_assert_eq!(audience.subscribers(subject) as usize, found);
            }
            let subject = audience.subject_of(from);
            let found = (from..from + len).filter(|number| audience.subject_of(*number) == subject);
            prop_assert_eq!(audience.messages(from, from + len), found.count() as u64);
            prop_assert_eq!(audience.subject_of(from + audience.step()), subject);
        }
    }
}
