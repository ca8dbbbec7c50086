//! The listeners: accepting is armed once for each (multishot), and descriptors wait here for their turn.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::op::Op;
use super::receive::Receipt;
use super::ring::Ring;
use super::token::Token;
use crate::driver::Events;

/// Accepted connections that may wait on each listener, before the kernel is asked for no more: their
/// descriptors are taken from all others.
const MOST_WAITING: usize = 256;

/// One listening socket.
struct Listener {
    /// `None` once closed.
    socket: Option<OwnedFd>,
    is_armed: bool,
    is_paused: bool,
    /// The kernel had no descriptor or memory for a connection.
    is_exhausted: bool,
    /// Accepted connections, oldest first.
    waiting: VecDeque<OwnedFd>,
}

/// The listeners of a shard; see the module.
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// Closed sockets, in place until nothing queued names them.
    closed: Vec<OwnedFd>,
}

impl Listeners {
    pub(super) fn new(sockets: Vec<OwnedFd>) -> Self {
        let listener = |socket| Listener {
            socket: Some(socket),
            is_armed: false,
            is_paused: false,
            is_exhausted: false,
            waiting: VecDeque::new(),
        };
        Self {
            all: sockets.into_iter().map(listener).collect(),
            closed: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Ask for connections where that is not done, and for no more where enough wait.
    pub(super) fn arm(&mut self, ring: &mut Ring) -> io::Result<()> {
        for n in 0..self.all.len() {
            let listener = &mut self.all[n];
            let wants = !listener.is_paused && listener.waiting.len() < MOST_WAITING;
            if !wants {
                self.disarm(n, ring)?;
            } else if let Some(socket) = &listener.socket
                && !std::mem::replace(&mut listener.is_armed, true)
            {
                ring.push(Op::Accept(socket.as_raw_fd()), Token::Accept(n as u32))?;
            }
        }
        Ok(())
    }

    fn disarm(&mut self, n: usize, ring: &mut Ring) -> io::Result<()> {
        if std::mem::replace(&mut self.all[n].is_armed, false) {
            // One that was to end already may still be there.
            ring.push_silent(Op::CancelAll(Token::Accept(n as u32)))?;
        }
        Ok(())
    }

    /// Stop or resume accepting on a listener.
    pub(super) fn set_accepting(
        &mut self,
        n: usize,
        accepting: bool,
        ring: &mut Ring,
    ) -> io::Result<()> {
        if let Some(listener) = self.all.get_mut(n) {
            listener.is_paused = !accepting;
        }
        self.arm(ring)
    }

    /// Add a connection that was accepted, or the failure to accept one. Accepting ends unless it
    /// `goes_on`.
    pub(super) fn add(
        &mut self,
        n: usize,
        outcome: Result<OwnedFd, Errno>,
        goes_on: bool,
        events: &mut Events<Receipt>,
    ) {
        let Some(listener) = self.all.get_mut(n) else {
            return;
        };
        // A cancelled one was known to end, and may have a successor already.
        listener.is_armed &= goes_on || outcome.as_ref().err() == Some(&Errno::CANCELED);
        match outcome {
            Ok(fd) if listener.socket.is_some() => listener.waiting.push_back(fd),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                listener.is_exhausted = true;
            }
            // Closed or cancelled, or the connection failed before it was accepted; see accept(2).
            _ => return,
        }
        events.note_acceptable(n);
    }

    /// Return whether the kernel had no descriptor or memory since the last call.
    pub(super) fn take_exhausted(&mut self, n: usize) -> bool {
        let listener = self.all.get_mut(n);
        listener.is_some_and(|one| std::mem::take(&mut one.is_exhausted))
    }

    pub(super) fn is_waiting(&self, n: usize) -> bool {
        self.all.get(n).is_some_and(|one| !one.waiting.is_empty())
    }

    /// Return whether a connection waits, or the failure to accept one.
    pub(super) fn is_ready(&self, n: usize) -> bool {
        let is_exhausted = self.all.get(n).is_some_and(|one| one.is_exhausted);
        is_exhausted || self.is_waiting(n)
    }

    /// Return the connection that has waited longest and is still there.
    pub(super) fn next(&mut self, n: usize) -> Option<(OwnedFd, SocketAddr)> {
        let fd = self.all.get_mut(n)?.waiting.pop_front()?;
        let peer = rustix::net::getpeername(&fd).ok()??;
        Some((fd, SocketAddr::try_from(peer).ok()?))
    }

    pub(super) fn close(&mut self, n: usize, ring: &mut Ring) -> io::Result<()> {
        if n < self.all.len() {
            self.disarm(n, ring)?;
            let listener = &mut self.all[n];
            self.closed.extend(listener.socket.take());
            listener.waiting.clear();
        }
        Ok(())
    }

    /// Drop the closed sockets, after everything queued has been submitted.
    pub(super) fn forget_closed(&mut self) {
        self.closed.clear();
    }
}
