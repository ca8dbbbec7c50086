//! Mail between shards: one mailbox per shard, any thread may post.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
#[cfg(feature = "sim")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

use crate::wake::{Eventfd, Wake};

struct Queue<M> {
    mail: VecDeque<M>,
    is_closed: bool,
    /// Whether the owner waits in the kernel and must be woken.
    is_asleep: bool,
}

/// On cache lines of its own: neighbours belong to other shards.
#[repr(align(128))]
struct Mailbox<M> {
    queue: Mutex<Queue<M>>,
    wake: Wake,
}

impl<M> Mailbox<M> {
    fn new(wake: Wake) -> Self {
        Self {
            queue: Mutex::new(Queue {
                mail: VecDeque::new(),
                is_closed: false,
                is_asleep: false,
            }),
            wake,
        }
    }
}

/// The mailboxes of all shards of a process; a handle, cheap to clone.
pub struct Mailboxes<M> {
    boxes: Arc<[Mailbox<M>]>,
}

impl<M> Clone for Mailboxes<M> {
    fn clone(&self) -> Self {
        Self {
            boxes: Arc::clone(&self.boxes),
        }
    }
}

impl<M> Mailboxes<M> {
    /// Make one mailbox for each of `shards` shards. Must be called before any shard takes a descriptor
    /// table of its own, which keeps the wake-up descriptors that there are.
    ///
    /// # Errors
    /// No descriptor is left for a wake-up, or the thread has a table of its own.
    pub fn new(shards: usize) -> std::io::Result<Self> {
        let mailbox = |_| Ok(Mailbox::new(Wake::Eventfd(Eventfd::new()?)));
        let boxes = (0..shards).map(mailbox).collect::<std::io::Result<_>>()?;
        Ok(Self { boxes })
    }

    /// Make mailboxes for simulated shards, which need no descriptors.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn simulated(shards: usize) -> Self {
        let mailbox = |_| Mailbox::new(Wake::Mark(AtomicBool::default()));
        Self {
            boxes: (0..shards).map(mailbox).collect(),
        }
    }

    /// Return whether a simulated shard has been woken.
    #[cfg(feature = "sim")]
    pub(crate) fn is_woken(&self, shard: usize) -> bool {
        match &self.boxes[shard].wake {
            Wake::Mark(mark) => mark.load(Ordering::Relaxed),
            _ => false,
        }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn is_empty(&self, shard: usize) -> bool {
        self.queue(shard).mail.is_empty()
    }

    #[cfg(feature = "sim")]
    pub(crate) fn for_each(&self, shard: usize, each: impl FnMut(&M)) {
        self.queue(shard).mail.iter().for_each(each);
    }

    /// Return the number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.boxes.len()
    }

    /// Post one piece of mail from any thread. Return it when the shard has ended.
    pub fn post(&self, shard: usize, mail: M) -> Option<M> {
        let mut queue = self.queue(shard);
        if queue.is_closed {
            return Some(mail);
        }
        queue.mail.push_back(mail);
        self.wake(shard, queue);
        None
    }

    /// Post everything in `batch`, with one lock and at most one wake-up. When the shard has ended,
    /// `batch` is left as it was.
    pub fn post_batch(&self, shard: usize, batch: &mut Vec<M>) {
        if batch.is_empty() {
            return;
        }
        let mut queue = self.queue(shard);
        if queue.is_closed {
            return;
        }
        queue.mail.extend(batch.drain(..));
        self.wake(shard, queue);
    }

    /// Return the descriptors that every shard's table must keep.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        (0..self.shards())
            .map(|shard| self.wake_descriptor(shard))
            .collect()
    }

    /// Swap the mail that has arrived for the empty queue `into`. From now on mail does not wake the shard.
    pub(crate) fn take(&self, shard: usize, into: &mut VecDeque<M>) {
        debug_assert!(into.is_empty());
        let mut queue = self.queue(shard);
        queue.is_asleep = false;
        if !queue.mail.is_empty() {
            std::mem::swap(&mut queue.mail, into);
        }
    }

    /// Prepare to wait in the kernel: from now on mail wakes the shard, until it [takes](Self::take) what
    /// has arrived. When this returns false there is mail already, and the shard must not wait.
    pub(crate) fn fall_asleep(&self, shard: usize) -> bool {
        let mut queue = self.queue(shard);
        queue.is_asleep = queue.mail.is_empty();
        queue.is_asleep
    }

    /// Clear the wake-up descriptor after it has become readable.
    pub(crate) fn clear_wake(&self, shard: usize) {
        self.boxes[shard].wake.clear();
    }

    pub(crate) fn wake_descriptor(&self, shard: usize) -> BorrowedFd<'_> {
        self.boxes[shard].wake.descriptor()
    }

    /// Refuse mail from now on and return what had arrived.
    pub(crate) fn close(&self, shard: usize) -> VecDeque<M> {
        let mut queue = self.queue(shard);
        queue.is_closed = true;
        std::mem::take(&mut queue.mail)
    }

    /// Wake the owner of the mailbox if it waits.
    fn wake(&self, shard: usize, mut queue: MutexGuard<'_, Queue<M>>) {
        let is_asleep = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if is_asleep {
            self.boxes[shard].wake.wake();
        }
    }

    fn queue(&self, shard: usize) -> MutexGuard<'_, Queue<M>> {
        self.boxes[shard]
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn mail_arrives_in_order_and_a_closed_box_gives_it_back() {
        let boxes = Mailboxes::<u32>::new(2).expect("eventfd");
        assert_eq!(boxes.post(1, 1), None);
        let mut batch = vec![2, 3];
        boxes.post_batch(1, &mut batch);
        assert!(batch.is_empty());
        assert!(!boxes.fall_asleep(1));
        let mut mail = VecDeque::new();
        boxes.take(1, &mut mail);
        assert_eq!(mail, [1, 2, 3]);
        assert!(boxes.fall_asleep(1));
        assert_eq!(boxes.post(1, 4), None);
        assert_eq!(boxes.close(1), [4]);
        assert_eq!(boxes.post(1, 5), Some(5));
        let mut batch = vec![6];
        boxes.post_batch(1, &mut batch);
        assert_eq!(batch, [6]);
    }

    #[test]
    fn only_a_sleeper_is_woken() {
        let boxes = Mailboxes::<u32>::new(1).expect("eventfd");
        let mut count = [0; 8];
        boxes.post(0, 1);
        assert!(rustix::io::read(boxes.wake_descriptor(0), &mut count).is_err());
        boxes.take(0, &mut VecDeque::new());
        assert!(boxes.fall_asleep(0));
        boxes.post(0, 2);
        boxes.post(0, 3);
        assert_eq!(
            rustix::io::read(boxes.wake_descriptor(0), &mut count),
            Ok(8)
        );
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}

/// All interleavings of a shard and of threads that post to it, by `make loom`.
#[cfg(all(test, loom))]
pub(crate) mod modelled {
    use loom::thread;

    use super::*;
    use crate::wake::modelled::Eventfd;

    impl<M> Mailboxes<M> {
        pub(crate) fn modelled(shards: usize) -> Self {
            let mailbox = |_| Mailbox::new(Wake::Modelled(Eventfd::new()));
            Self {
                boxes: (0..shards).map(mailbox).collect(),
            }
        }

        /// Wait as a shard does between two turns. A wake-up that is forgotten leaves it waiting, which the
        /// model finds.
        pub(crate) fn wait(&self, shard: usize) {
            let may_wait = self.fall_asleep(shard);
            let Wake::Modelled(wake) = &self.boxes[shard].wake else {
                unreachable!("the mailboxes are modelled")
            };
            if wake.wait(!may_wait) {
                self.clear_wake(shard);
            }
        }
    }

    fn wait_and_take(boxes: &Mailboxes<u32>, into: &mut Vec<u32>) {
        boxes.wait(0);
        let mut taken = VecDeque::new();
        boxes.take(0, &mut taken);
        into.extend(taken);
    }

    #[test]
    fn a_shard_that_waits_is_woken_by_each_thread_that_posts() {
        loom::model(|| {
            let boxes = Mailboxes::modelled(1);
            let posters = [1, 2].map(|mail| {
                let boxes = boxes.clone();
                thread::spawn(move || assert_eq!(boxes.post(0, mail), None))
            });
            let mut taken = Vec::new();
            while taken.len() < 2 {
                wait_and_take(&boxes, &mut taken);
            }
            taken.sort_unstable();
            assert_eq!(taken, [1, 2]);
            for poster in posters {
                poster.join().expect("no panic");
            }
        });
    }

    #[test]
    fn mail_of_one_thread_keeps_its_order() {
        loom::model(|| {
            let boxes = Mailboxes::modelled(1);
            let poster = thread::spawn({
                let boxes = boxes.clone();
                move || {
                    assert_eq!(boxes.post(0, 1), None);
                    boxes.post_batch(0, &mut vec![2, 3]);
                }
            });
            let mut taken = Vec::new();
            while taken.len() < 3 {
                wait_and_take(&boxes, &mut taken);
            }
            assert_eq!(taken, [1, 2, 3]);
            poster.join().expect("no panic");
        });
    }

    #[test]
    fn at_the_end_each_piece_is_taken_or_returned_once() {
        loom::model(|| {
            let boxes = Mailboxes::modelled(1);
            let one = thread::spawn({
                let boxes = boxes.clone();
                move || boxes.post(0, 1)
            });
            let batch = thread::spawn({
                let boxes = boxes.clone();
                move || {
                    let mut batch = vec![2, 3];
                    boxes.post_batch(0, &mut batch);
                    batch
                }
            });
            let mut all = Vec::new();
            wait_and_take(&boxes, &mut all);
            all.extend(boxes.close(0));
            all.extend(one.join().expect("no panic"));
            all.extend(batch.join().expect("no panic"));
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3]);
            assert_eq!(boxes.post(0, 4), Some(4));
        });
    }
}
