//! Mail between shards: one mailbox per shard, any thread may post.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

struct Queue<M> {
    mail: VecDeque<M>,
    closed: bool,
}

/// On cache lines of its own: neighbours belong to other shards.
#[repr(align(128))]
struct Mailbox<M> {
    queue: Mutex<Queue<M>>,
    /// Whether the owner waits in the kernel and must be woken.
    asleep: AtomicBool,
    wake: Wake,
}

/// The means to wake a mailbox's owner.
enum Wake {
    /// A descriptor that the owner waits for.
    Eventfd(OwnedFd),
    /// A mark that a simulation looks at.
    #[cfg(feature = "sim")]
    Mark(AtomicBool),
}

impl<M> Mailbox<M> {
    fn wake_descriptor(&self) -> BorrowedFd<'_> {
        match &self.wake {
            Wake::Eventfd(wake) => wake.as_fd(),
            #[cfg(feature = "sim")]
            Wake::Mark(_) => unreachable!("a simulated shard waits for no descriptor"),
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
    /// No descriptor is left for a wake-up.
    pub fn new(shards: usize) -> std::io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let boxes = (0..shards)
            .map(|_| {
                Ok(Mailbox {
                    queue: Mutex::new(Queue {
                        mail: VecDeque::new(),
                        closed: false,
                    }),
                    asleep: AtomicBool::new(false),
                    wake: Wake::Eventfd(eventfd(0, flags)?),
                })
            })
            .collect::<std::io::Result<_>>()?;
        Ok(Self { boxes })
    }

    /// Make mailboxes for simulated shards, which need no descriptors.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn simulated(shards: usize) -> Self {
        let mailbox = |_| Mailbox {
            queue: Mutex::new(Queue {
                mail: VecDeque::new(),
                closed: false,
            }),
            asleep: AtomicBool::new(false),
            wake: Wake::Mark(AtomicBool::new(false)),
        };
        Self {
            boxes: (0..shards).map(mailbox).collect(),
        }
    }

    /// Whether a simulated shard has been woken.
    #[cfg(feature = "sim")]
    pub(crate) fn is_woken(&self, shard: usize) -> bool {
        match &self.boxes[shard].wake {
            Wake::Eventfd(_) => false,
            Wake::Mark(mark) => mark.load(Ordering::SeqCst),
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

    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.boxes.len()
    }

    /// Posts one piece of mail from any thread. Returns it when the shard has ended.
    pub fn post(&self, shard: usize, mail: M) -> Option<M> {
        let mut queue = self.queue(shard);
        if queue.closed {
            return Some(mail);
        }
        queue.mail.push_back(mail);
        drop(queue);
        self.wake(shard);
        None
    }

    /// Posts everything in `batch`, with one lock and at most one wake-up. When the shard has
    /// ended, `batch` is left as it was.
    pub fn post_batch(&self, shard: usize, batch: &mut Vec<M>) {
        if batch.is_empty() {
            return;
        }
        let mut queue = self.queue(shard);
        if queue.closed {
            return;
        }
        queue.mail.extend(batch.drain(..));
        drop(queue);
        self.wake(shard);
    }

    /// Descriptors that every shard's table must keep.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.boxes
            .iter()
            .map(|mailbox| mailbox.wake_descriptor().as_raw_fd())
            .collect()
    }

    /// Swaps the mail that has arrived for the empty queue `into`.
    pub(crate) fn take(&self, shard: usize, into: &mut VecDeque<M>) {
        debug_assert!(into.is_empty());
        let mut queue = self.queue(shard);
        if !queue.mail.is_empty() {
            std::mem::swap(&mut queue.mail, into);
        }
    }

    /// To be called before waiting in the kernel; when it returns false there is mail, and the
    /// caller must not sleep.
    pub(crate) fn fall_asleep(&self, shard: usize) -> bool {
        self.boxes[shard].asleep.store(true, Ordering::SeqCst);
        let empty = self.queue(shard).mail.is_empty();
        if !empty {
            self.boxes[shard].asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    pub(crate) fn woke_up(&self, shard: usize) {
        self.boxes[shard].asleep.store(false, Ordering::SeqCst);
    }

    /// Clears the wake-up descriptor after it has become readable.
    pub(crate) fn clear_wake(&self, shard: usize) {
        match &self.boxes[shard].wake {
            Wake::Eventfd(wake) => {
                // It fails only when there was nothing to clear.
                let _ = rustix::io::read(wake, &mut [0; 8]);
            }
            #[cfg(feature = "sim")]
            Wake::Mark(mark) => mark.store(false, Ordering::SeqCst),
        }
    }

    pub(crate) fn wake_descriptor(&self, shard: usize) -> BorrowedFd<'_> {
        self.boxes[shard].wake_descriptor()
    }

    /// Refuses mail from now on and returns what had arrived.
    pub(crate) fn close(&self, shard: usize) -> VecDeque<M> {
        let mut queue = self.queue(shard);
        queue.closed = true;
        std::mem::take(&mut queue.mail)
    }

    fn wake(&self, shard: usize) {
        let mailbox = &self.boxes[shard];
        if mailbox.asleep.load(Ordering::SeqCst) && mailbox.asleep.swap(false, Ordering::SeqCst) {
            match &mailbox.wake {
                Wake::Eventfd(wake) => {
                    // A full counter means that the owner has been woken already.
                    let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
                }
                #[cfg(feature = "sim")]
                Wake::Mark(mark) => mark.store(true, Ordering::SeqCst),
            }
        }
    }

    fn queue(&self, shard: usize) -> MutexGuard<'_, Queue<M>> {
        self.boxes[shard]
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
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
