//! A shard's mail: what waits to be handed out, and what waits to be posted.

use std::collections::VecDeque;

use crate::mailbox::Mailboxes;
use crate::shrink::{give_back, give_back_list};

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

    /// Give memory back after a herd.
    pub(crate) fn shrink(&mut self) {
        give_back(&mut self.waiting);
        give_back(&mut self.arrived);
        self.outgoing.iter_mut().for_each(give_back_list);
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

    /// Return how much mail was found waiting at most since the last call.
    pub(crate) fn take_peak(&mut self) -> usize {
        std::mem::replace(&mut self.peak, self.waiting.len())
    }

    pub(crate) fn mailboxes(&self) -> &Mailboxes<M> {
        &self.mailboxes
    }
}

#[cfg(all(test, not(loom)))]
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

/// All interleavings of two shards, by `make loom`.
#[cfg(all(test, loom))]
mod modelled {
    use loom::thread;

    use super::*;

    /// Do turns of a shard that answers each piece below `last` with the next number, until it has handed
    /// out `count` pieces. Return them.
    fn answer(mut post: Post<u32>, last: u32, count: usize) -> Vec<u32> {
        let other = 1 - post.shard();
        let mut all = Vec::new();
        while all.len() < count {
            post.mailboxes().wait(post.shard());
            post.take_arrived();
            while let Some(mail) = post.next() {
                all.push(mail);
                if mail < last {
                    post.send(other, mail + 1);
                }
            }
            post.post(|_| unreachable!("the other shard is there"));
        }
        all
    }

    #[test]
    fn two_shards_that_answer_each_other_never_wait_for_ever() {
        loom::model(|| {
            let mailboxes = Mailboxes::modelled(2);
            let [one, two] = [0, 1].map(|shard| Post::new(shard, mailboxes.clone()));
            let other = thread::spawn(move || answer(two, 4, 2));
            assert_eq!(mailboxes.post(1, 1), None);
            assert_eq!(answer(one, 4, 2), [2, 4]);
            assert_eq!(other.join().expect("no panic"), [1, 3]);
        });
    }

    #[test]
    fn each_piece_is_handed_out_or_returned_once_when_a_shard_ends() {
        loom::model(|| {
            let mailboxes = Mailboxes::modelled(2);
            let [mut one, mut two] = [0, 1].map(|shard| Post::new(shard, mailboxes.clone()));
            let ending = thread::spawn(move || {
                two.send(0, 1);
                two.take_arrived();
                let mut all: Vec<u32> = two.next().into_iter().collect();
                all.extend(two.close());
                all
            });
            let mut all = Vec::new();
            for mail in [2, 3] {
                one.send(1, mail);
                one.post(|mail| all.push(mail));
            }
            all.extend(ending.join().expect("no panic"));
            all.extend(one.close());
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3]);
        });
    }

    #[test]
    fn a_mark_covers_all_that_was_posted_before_it() {
        loom::model(|| {
            let mailboxes = Mailboxes::modelled(2);
            let mut post = Post::new(0, mailboxes.clone());
            let poster = thread::spawn({
                let mailboxes = mailboxes.clone();
                move || assert_eq!(mailboxes.post(0, 1), None)
            });
            post.send(0, 2);
            poster.join().expect("no panic");
            post.take_arrived();
            let mark = post.mark();
            let mut all = Vec::new();
            while !post.has_passed(mark) {
                all.extend(post.next());
            }
            assert_eq!(all, [2, 1]);
        });
    }
}
