//! Work that would take longer than a turn should: it is done in slices, a little in each turn.

use std::collections::VecDeque;

use hashbrown::HashSet;
use reactor::ConnId;

use crate::subscriptions::Subscriptions;

/// A piece of work with the place where it goes on.
pub(crate) enum Job {
    /// Remove the subscriptions of a connection that has ended.
    Leave {
        conn: ConnId,
        subscriptions: Box<Subscriptions>,
        next: u32,
    },
    /// Remove the subscriptions of a client that starts over by another `CONNECT`; it is not read
    /// meanwhile.
    StartOver { conn: ConnId, next: u32 },
    /// Tell all clients that lame duck mode has begun.
    Announce { slot: u32 },
    /// Close clients as lame duck mode does.
    Close,
    /// End the connections that have not introduced themselves in time.
    Expire,
}

/// The work of one shard that is under way.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Jobs in the order of their slices.
    queue: VecDeque<Job>,
    /// Connections that have ended, whose subscriptions are still being removed.
    leaving: HashSet<ConnId>,
}

impl Jobs {
    /// Add a job behind the others.
    pub(crate) fn add(&mut self, job: Job) {
        if let Job::Leave { conn, .. } = job {
            self.leaving.insert(conn);
        }
        self.queue.push_back(job);
    }

    /// Take the job that has waited longest.
    pub(crate) fn take(&mut self) -> Option<Job> {
        self.queue.pop_front()
    }

    /// Note that the subscriptions of a connection are all removed.
    pub(crate) fn note_left(&mut self, conn: ConnId) {
        self.leaving.remove(&conn);
    }

    /// Return whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Return the bytes of subscriptions that wait to be removed.
    #[cfg(feature = "sim")]
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |job: &Job| match job {
            Job::Leave { subscriptions, .. } => subscriptions.bytes(),
            _ => 0,
        };
        self.queue.iter().map(bytes).sum()
    }

    /// Return the number of jobs.
    #[cfg(feature = "sim")]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Return whether the subscriptions of this connection, which has ended, are still being removed.
    #[inline]
    pub(crate) fn is_leaving(&self, id: ConnId) -> bool {
        !self.leaving.is_empty() && self.leaving.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_leaving_until_its_last_slice() {
        let mut jobs = Jobs::default();
        let conn = ConnId::from_bits(1);
        jobs.add(Job::Close);
        jobs.add(Job::Leave {
            conn,
            subscriptions: Box::default(),
            next: 0,
        });
        assert!(jobs.is_leaving(conn) && !jobs.is_leaving(ConnId::from_bits(2)));
        assert!(matches!(jobs.take(), Some(Job::Close)));
        let job = jobs.take();
        assert!(jobs.is_empty() && jobs.is_leaving(conn));
        jobs.add(job.expect("the second job"));
        assert!(matches!(jobs.take(), Some(Job::Leave { .. })));
        jobs.note_left(conn);
        assert!(!jobs.is_leaving(conn));
    }
}
