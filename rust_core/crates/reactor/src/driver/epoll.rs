//! The epoll(7) driver: edge-triggered, so that the kernel tells each change once and never sorts a herd
//! again, and a socket is registered once for its whole life.

use std::io as std_io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, IoSlice, retry_on_intr};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, acceptfrom_with, sockopt,
};

use super::{Accepted, Driver, Event, Events, Held, Outcome, Received, Wait, Write};
use crate::chunk::Pool;
use crate::conn_id::ConnId;
use crate::connections::{Interest, Socket};
use crate::output::{Output, WRITE_CHUNKS};
use crate::socket::{self, Mode};

/// Bytes read from one connection at once at most: enough for a busy connection, and small enough to
/// stay in the second-level cache.
const READ_BUFFER: usize = 128 * 1024;
/// Events taken from the kernel by one call.
const EVENTS: usize = 1024;
/// Such calls in one turn at most.
const CALLS: usize = 64;

/// Tokens that are not connections: no [`ConnId`] has these slots.
const WAKE: u64 = u32::MAX as u64;
const FIRST_LISTENER: u64 = WAKE - 256;

/// News that the kernel has told of a connection and that was not handed out yet. An edge is told once, so it
/// is kept here. It adds to the news that are kept: a connection waits in one place of a queue however
/// many edges there are.
#[derive(Debug, Clone, Copy)]
struct News {
    id: ConnId,
    facts: u8,
}

/// Bits of [`News::facts`]: bytes have arrived.
const READABLE: u8 = 1;
/// The peer has sent its last byte, or the connection has failed: to be read to the end.
const LAST: u8 = 2;
const FAILED: u8 = 4;
/// An event waits to be handed out.
const QUEUED: u8 = 8;
/// The connection is not read: what arrives waits until it is.
const HELD: u8 = 16;
/// The connection waits until its socket takes bytes.
const WAITS: u8 = 32;
/// An event that the socket takes bytes waits to be handed out.
const TOLD: u8 = 64;

impl News {
    const NONE: Self = Self {
        id: ConnId::NONE,
        facts: 0,
    };

    fn has(&self, facts: u8) -> bool {
        self.facts & facts != 0
    }

    /// Add what an event says.
    fn note(&mut self, flags: epoll::EventFlags, events: &mut Events<()>) {
        use epoll::EventFlags as Flags;
        let mut note = |flag, fact| {
            if flags.intersects(flag) {
                self.facts |= fact;
            }
        };
        note(Flags::IN, READABLE);
        note(Flags::RDHUP | Flags::HUP | Flags::ERR, LAST);
        note(Flags::HUP | Flags::ERR, FAILED);
        if self.has(READABLE | LAST) && (!self.has(HELD) || self.has(FAILED)) {
            self.queue(Event::Ready, events);
        }
        if flags.contains(Flags::OUT) && self.has(WAITS) && !self.has(TOLD) {
            self.facts |= TOLD;
            events.push_writable(self.id);
        }
    }

    /// Queue an event unless one waits already.
    fn queue(&mut self, event: impl FnOnce(ConnId, ()) -> Event<()>, events: &mut Events<()>) {
        if self.has(QUEUED) {
            return;
        }
        self.facts |= QUEUED;
        let event = event(self.id, ());
        if self.has(LAST) {
            events.push_change(event);
        } else {
            events.push(event);
        }
    }
}

/// The epoll driver; see the module.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    /// `None` once closed.
    listeners: Vec<Option<OwnedFd>>,
    events: Vec<epoll::Event>,
    /// By the connections' slots.
    news: Vec<News>,
    buffer: Vec<u8>,
    /// Calls of recv(2) and accept(2) since the last poll.
    receives: u64,
    accepts: u64,
}

impl Epoll {
    pub(crate) fn new(listeners: Vec<OwnedFd>, wake: BorrowedFd<'_>) -> std_io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, wake, epoll::EventData::new_u64(WAKE), flags)?;
        for (n, listener) in (FIRST_LISTENER..).zip(&listeners) {
            epoll::add(&epoll, listener, epoll::EventData::new_u64(n), flags)?;
        }
        Ok(Self {
            epoll,
            listeners: listeners.into_iter().map(Some).collect(),
            events: Vec::with_capacity(EVENTS),
            news: Vec::new(),
            buffer: vec![0; READ_BUFFER],
            receives: 0,
            accepts: 0,
        })
    }

    /// Take events from the kernel; return how many there were.
    fn wait(&mut self, timeout: Option<Duration>) -> std_io::Result<usize> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(self.events.len()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Return the news of a connection. One that has just got its slot has none.
    fn news(&mut self, id: ConnId) -> &mut News {
        let slot = id.slot() as usize;
        if slot >= self.news.len() {
            self.news.resize(slot + 1, News::NONE);
        }
        let news = &mut self.news[slot];
        if news.id != id {
            *news = News { id, facts: 0 };
        }
        news
    }

    /// Read once.
    fn read(
        &mut self,
        id: ConnId,
        socket: &Socket,
        limit: usize,
        events: &mut Events<()>,
    ) -> Outcome<'_> {
        let news = self.news(id);
        news.facts &= !QUEUED;
        let Socket::Descriptor { fd, .. } = socket else {
            return Outcome::Nothing;
        };
        if !news.has(READABLE | LAST) {
            return Outcome::Nothing;
        }
        self.receives += 1;
        let limit = limit.min(self.buffer.len());
        let read = || rustix::net::recv(fd, &mut self.buffer[..limit], RecvFlags::empty());
        match retry_on_intr(read).map(|(count, _)| count) {
            Ok(0) => Outcome::End,
            Ok(count) => {
                let news = self.news(id);
                // A read that brings less than it may has emptied the socket (epoll(7), "Do I need to
                // continuously read/write").
                if count == limit || news.has(LAST) {
                    news.queue(Event::Again, events);
                } else {
                    news.facts &= !READABLE;
                }
                Outcome::Bytes(&mut self.buffer[..count])
            }
            Err(Errno::AGAIN) => {
                self.news(id).facts &= !READABLE;
                Outcome::Nothing
            }
            Err(errno) => Outcome::Failed(errno),
        }
    }
}

impl Driver for Epoll {
    type Receipt = ();

    fn poll(&mut self, wait: Wait<'_, ()>) -> std_io::Result<bool> {
        let mut timeout = wait.timeout;
        wait.calls.receive += std::mem::take(&mut self.receives);
        wait.calls.accept += std::mem::take(&mut self.accepts);
        for _ in 0..CALLS {
            wait.calls.wait += 1;
            let count = self.wait(timeout)?;
            for n in 0..count {
                let event = self.events[n];
                match event.data.u64() {
                    // Edge-triggered, it needs not be cleared to tell of the next one.
                    WAKE => {}
                    token if (FIRST_LISTENER..WAKE).contains(&token) => {
                        let listener = (token - FIRST_LISTENER) as usize;
                        wait.events.note_acceptable(listener);
                    }
                    token => {
                        let news = self.news(ConnId::from_bits(token));
                        news.note(event.flags, wait.events);
                    }
                }
            }
            if count < EVENTS {
                break;
            }
            timeout = Some(Duration::ZERO);
        }
        Ok(false)
    }

    fn receive(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        (): (),
        limit: usize,
        events: &mut Events<()>,
    ) -> Received<'_> {
        let outcome = self.read(id, socket, limit, events);
        Received {
            outcome,
            rearm: false,
        }
    }

    fn hold(&mut self, id: ConnId, socket: &mut Socket, (): (), _: bool) -> Held {
        let news = self.news(id);
        news.facts = news.facts & !QUEUED | HELD;
        let mut failed = None;
        if let Socket::Descriptor { fd, .. } = socket
            && news.has(FAILED)
        {
            let errno = sockopt::socket_error(&*fd).ok().and_then(Result::err);
            failed = Some(errno.unwrap_or(Errno::PIPE));
        }
        Held {
            rearm: false,
            failed,
        }
    }

    fn note_writable(&mut self, id: ConnId, _: &mut Socket) {
        self.news(id).facts &= !TOLD;
    }

    fn arm(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        interest: Interest,
        events: &mut Events<()>,
    ) -> std_io::Result<()> {
        let Socket::Descriptor { fd, is_registered } = socket else {
            return Ok(());
        };
        if !*is_registered {
            *is_registered = true;
            use epoll::EventFlags as Flags;
            let token = epoll::EventData::new_u64(id.to_bits());
            let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
            if let Err(errno) = epoll::add(&self.epoll, &*fd, token, flags) {
                events.push_change(Event::Failed(id, errno));
            }
        }
        let news = self.news(id);
        news.facts &= !WAITS;
        if interest.write {
            news.facts |= WAITS;
        }
        if interest.read && news.has(HELD) {
            news.facts &= !HELD;
            if news.has(READABLE | LAST) {
                news.queue(Event::Ready, events);
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        _: ConnId,
        socket: &Socket,
        output: &mut Output,
        pool: &mut Pool,
    ) -> std_io::Result<Write> {
        let Socket::Descriptor { fd, .. } = socket else {
            return Ok(Write::Failed(Errno::BADF));
        };
        let (outcome, wanted) = match output.single() {
            Some(bytes) => {
                let send = || rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
                (retry_on_intr(send), bytes.len())
            }
            None => send_chunks(fd, output.chunks()),
        };
        let bytes = match outcome {
            Ok(count) => count,
            Err(Errno::AGAIN) => 0,
            Err(errno) => return Ok(Write::Failed(errno)),
        };
        let items = output.advance(bytes, pool);
        Ok(if bytes == wanted {
            Write::Whole { bytes, items }
        } else {
            Write::Short { bytes, items }
        })
    }

    fn accept(&mut self, listener: usize, events: &mut Events<()>) -> std_io::Result<Accepted> {
        let Some(Some(socket)) = self.listeners.get(listener) else {
            return Ok(Accepted::Empty);
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        self.accepts += 1;
        let outcome = acceptfrom_with(socket, flags);
        if !matches!(outcome, Err(Errno::AGAIN)) {
            events.note_acceptable(listener);
        }
        Ok(match outcome {
            Ok((fd, peer)) => match peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                Some(peer) => Accepted::Connection(Socket::new(fd), peer),
                None => Accepted::Empty,
            },
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Accepted::Exhausted,
            // No connection waits, or the connection failed before it was accepted; see accept(2), "Error
            // handling".
            Err(_) => Accepted::Empty,
        })
    }

    fn close_listener(&mut self, listener: usize) -> std_io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(listener) {
            *listener = None;
        }
        Ok(())
    }

    fn close_listeners(&mut self) -> std_io::Result<()> {
        self.listeners.clear();
        Ok(())
    }

    fn connect(
        &mut self,
        _: ConnId,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> std_io::Result<Result<Socket, Errno>> {
        let begun = socket::open_outgoing(to, from, Mode::NonBlocking).and_then(|fd| {
            match rustix::net::connect(&fd, &to) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(Socket::new(fd)),
                Err(errno) => Err(errno),
            }
        });
        Ok(begun)
    }

    fn establish(&mut self, socket: &mut Socket) -> Result<(), Errno> {
        let Socket::Descriptor { fd, .. } = socket else {
            return Err(Errno::BADF);
        };
        sockopt::socket_error(&*fd)?
    }

    fn end_sending(&mut self, _: ConnId, socket: &Socket) -> std_io::Result<()> {
        if let Socket::Descriptor { fd, .. } = socket {
            // It fails only where the peer is gone already, which reading will tell.
            let _ = rustix::net::shutdown(fd, Shutdown::Write);
        }
        Ok(())
    }

    fn close(&mut self, _: ConnId, socket: Socket) -> std_io::Result<()> {
        drop(socket);
        Ok(())
    }

    fn buffer_bytes(&self) -> usize {
        self.buffer.len() + self.news.capacity() * size_of::<News>()
    }
}

fn send_chunks<'a>(
    fd: &OwnedFd,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> (rustix::io::Result<usize>, usize) {
    let mut slices: [IoSlice<'a>; WRITE_CHUNKS] = std::array::from_fn(|_| IoSlice::new(&[]));
    let (mut count, mut wanted) = (0, 0);
    for (slice, chunk) in slices.iter_mut().zip(chunks) {
        *slice = IoSlice::new(chunk);
        count += 1;
        wanted += chunk.len();
    }
    let mut control = SendAncillaryBuffer::default();
    let slices = &slices[..count];
    let send = || rustix::net::sendmsg(fd, slices, &mut control, SendFlags::NOSIGNAL);
    (retry_on_intr(send), wanted)
}
