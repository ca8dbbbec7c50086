//! A shard's mail: what waits to be handed out, and what waits to be posted.

use std::collections::VecDeque;

use crate::mailbox::Mailboxes;

/// The mail of one shard.
pub(crate) struct Post<M> {
    shard: usize,
    mailboxes: Mailboxes<M>,
    /// Mail that has arrived and is not handed out yet, oldest first.
    waiting: VecDeque<M>,
    /// Pieces handed out so far.
    handed_out: u64,
    /// Most that was waiting at once since this was last asked.
    peak: usize,
    /// Mail for each other shard.
    outgoing: Vec<Vec<M>>,
    /// Kept for its memory.
    arrived: VecDeque<M>,
}

impl<M> Post<M> {
    pub(crate) fn new(shard: usize, mailboxes: Mailboxes<M>) -> Self {
        Self {
            outgoing: (0..mailboxes.shards()).map(|_| Vec::new()).collect(),
            shard,
            mailboxes,
            waiting: VecDeque::new(),
            handed_out: 0,
            peak: 0,
            arrived: VecDeque::new(),
        }
    }

    #[inline]
    pub(crate) fn shard(&self) -> usize {
        self.shard
    }

    #[inline]
    pub(crate) fn shards(&self) -> usize {
        self.outgoing.len()
    }

    #[inline]
    pub(crate) fn send(&mut self, shard: usize, mail: M) {
        if shard == self.shard {
            self.waiting.push_back(mail);
        } else {
            self.outgoing[shard].push(mail);
        }
    }

    /// Take what other shards have posted.
    pub(crate) fn take_arrived(&mut self) {
        self.mailboxes.take(self.shard, &mut self.arrived);
        if self.waiting.is_empty() {
            std::mem::swap(&mut self.waiting, &mut self.arrived);
        } else {
            self.waiting.append(&mut self.arrived);
        }
        self.peak = self.peak.max(self.waiting.len());
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn next(&mut self) -> Option<M> {
        let mail = self.waiting.pop_front()?;
        self.handed_out += 1;
        Some(mail)
    }

    pub(crate) fn mark(&self) -> u64 {
        self.handed_out + self.waiting.len() as u64
    }

    #[inline]
    pub(crate) fn has_passed(&self, mark: u64) -> bool {
        self.handed_out >= mark
    }

    /// Post what waits for other shards; `undelivered` gets what is for those that have ended.
    pub(crate) fn post(&mut self, mut undelivered: impl FnMut(M)) {
        for (shard, outgoing) in self.outgoing.iter_mut().enumerate() {
            if !outgoing.is_empty() {
                self.mailboxes.post_batch(shard, outgoing);
                outgoing.drain(..).for_each(&mut undelivered);
            }
        }
    }

    /// Refuse mail from now on, and return what has arrived and what was to be posted.
    pub(crate) fn close(&mut self) -> VecDeque<M> {
        self.take_arrived();
        let mut all = std::mem::take(&mut self.waiting);
        all.append(&mut self.mailboxes.close(self.shard));
        all.extend(self.outgoing.iter_mut().flat_map(|mail| mail.drain(..)));
        all
    }

    #[cfg(feature = "sim")]
    pub(crate) fn for_each_waiting(&self, each: impl FnMut(&M)) {
        self.waiting.iter().for_each(each);
    }

    /// The most mail that was found waiting at once since this was last called.
    pub(crate) fn take_peak(&mut self) -> usize {
        std::mem::replace(&mut self.peak, self.waiting.len())
    }

    pub(crate) fn mailboxes(&self) -> &Mailboxes<M> {
        &self.mailboxes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_passes_when_everything_before_it_is_handed_out() {
        let mailboxes = Mailboxes::<u32>::new(2).expect("eventfd");
        let mut post = Post::new(0, mailboxes.clone());
        assert!(post.has_passed(post.mark()));
        post.send(0, 1);
        mailboxes.post(0, 2);
        post.take_arrived();
        let mark = post.mark();
        mailboxes.post(0, 3);
        post.take_arrived();
        assert_eq!((post.next(), post.has_passed(mark)), (Some(1), false));
        assert_eq!((post.next(), post.has_passed(mark)), (Some(2), true));
        assert_eq!((post.next(), post.next()), (Some(3), None));
        post.send(1, 4);
        post.post(|_| unreachable!("the shard is there"));
        assert_eq!(Post::new(1, mailboxes.clone()).close(), [4]);
        assert_eq!(mailboxes.post(1, 5), Some(5));
        post.send(0, 6);
        post.send(1, 7);
        assert_eq!(post.close(), [6, 7]);
    }
}
