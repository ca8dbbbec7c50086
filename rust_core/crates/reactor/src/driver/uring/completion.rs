//! Completions, and the events that they become.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use io_uring::cqueue;
use rustix::io::Errno;

use super::Uring;
use super::receive::Receipt;
use super::token::Token;
use crate::driver::{Event, Wait};

/// A completion, taken out of its ring once.
pub(super) struct Completion {
    ring: u16,
    entry: cqueue::Entry,
}

impl Completion {
    pub(super) fn new(ring: u16, entry: cqueue::Entry) -> Self {
        Self { ring, entry }
    }

    /// The descriptor that the kernel has made for an operation.
    fn into_descriptor(self) -> Result<OwnedFd, Errno> {
        match self.entry.result() {
            // SAFETY: only asked for operations that make a descriptor. The kernel has opened it for us,
            // this completion alone tells it, and it is used up here.
            fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            error => Err(Errno::from_raw_os_error(-error)),
        }
    }
}

impl Uring {
    /// Take the completions out of the rings and queue their events; then settle the flights: those of
    /// which nothing is heard have arrived in the kernel.
    pub(super) fn reap(&mut self, wait: &mut Wait<'_, Receipt>) -> io::Result<bool> {
        let mut completions = std::mem::take(&mut self.completions);
        for (n, ring) in (0..).zip(&mut self.rings) {
            ring.reap(|entry| completions.push(Completion::new(n, entry)))?;
        }
        let mut is_woken = false;
        for completion in completions.drain(..) {
            let (result, flags) = (completion.entry.result(), completion.entry.flags());
            match Token::from_bits(completion.entry.user_data()) {
                Token::Receive(id) => {
                    let buffers = &mut self.rings[usize::from(completion.ring)].buffers;
                    let receipt = Receipt::received(completion.ring, buffers, result, flags);
                    match result {
                        ..=0 if !receipt.is_passing() => {
                            wait.events.push_change(Event::Ready(id, receipt));
                        }
                        _ => wait.events.push(Event::Ready(id, receipt)),
                    }
                }
                Token::Send(flight) => self.missed.push((flight, result)),
                Token::Writable(id) => wait.events.push(Event::Ready(id, Receipt::WRITABLE)),
                Token::Hangup(id) => wait.events.push_change(Event::Ready(id, Receipt::HANGUP)),
                Token::Connect(id) => {
                    let outcome = match -result {
                        ..=0 => Ok(()),
                        error => Err(Errno::from_raw_os_error(error)),
                    };
                    wait.events.push_change(Event::Connected(id, outcome));
                }
                Token::EndSending(id) => match completion.into_descriptor() {
                    // It fails only where the peer is gone already, which receiving will tell.
                    Ok(fd) => drop(rustix::net::shutdown(fd, rustix::net::Shutdown::Write)),
                    // No descriptor left: a peer that has not read everything may see a reset.
                    Err(errno) => wait.events.push_change(Event::Failed(id, errno)),
                },
                Token::Accept(n) => {
                    let outcome = completion.into_descriptor();
                    let goes_on = cqueue::more(flags);
                    self.listeners
                        .add(n as usize, outcome, goes_on, wait.events);
                }
                Token::Wake => is_woken = true,
                Token::Unwatched => {}
            }
        }
        if completions.capacity() <= KEPT {
            self.completions = completions;
        }
        self.flights.settle(&mut self.missed, wait);
        if is_woken {
            self.watch_mail()?;
        }
        self.listeners.arm(&mut self.rings[0])?;
        Ok(is_woken)
    }
}

/// Completions whose memory is kept between two turns.
const KEPT: usize = 64 * 1024;
