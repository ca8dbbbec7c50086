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
use crate::connections::{Interest, Socket};
use crate::output::{Output, Pool, WRITE_CHUNKS};
use crate::slab::ConnId;
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

/// What an event of a connection says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Receipt {
    is_readable: bool,
    is_writable: bool,
    /// The peer has sent its last byte, or the connection has failed: to be read to the end.
    is_last: bool,
    has_failed: bool,
}

/// See the module.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    /// `None` once closed.
    listeners: Vec<Option<OwnedFd>>,
    events: Vec<epoll::Event>,
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
}

/// Queue an event of a connection.
fn queue(events: &mut Events<Receipt>, id: ConnId, flags: epoll::EventFlags) {
    use epoll::EventFlags as Flags;
    let receipt = Receipt {
        is_readable: flags.contains(Flags::IN),
        is_writable: flags.contains(Flags::OUT),
        is_last: flags.intersects(Flags::RDHUP | Flags::HUP | Flags::ERR),
        has_failed: flags.intersects(Flags::HUP | Flags::ERR),
    };
    if receipt.is_last {
        events.push_change(Event::Ready(id, receipt));
    } else {
        events.push(Event::Ready(id, receipt));
    }
}

impl Driver for Epoll {
    type Receipt = Receipt;

    fn poll(&mut self, wait: Wait<'_, Receipt>) -> std_io::Result<bool> {
        let mut timeout = wait.timeout;
        wait.calls.receive += std::mem::take(&mut self.receives);
        wait.calls.accept += std::mem::take(&mut self.accepts);
        for _ in 0..CALLS {
            wait.calls.wait += 1;
            let count = self.wait(timeout)?;
            for event in &self.events {
                match event.data.u64() {
                    // Edge-triggered, it needs not be cleared to tell of the next one.
                    WAKE => {}
                    token if (FIRST_LISTENER..WAKE).contains(&token) => {
                        let listener = (token - FIRST_LISTENER) as usize;
                        wait.events.note_acceptable(listener);
                    }
                    token => queue(wait.events, ConnId::from_bits(token), event.flags),
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
        _: ConnId,
        socket: &mut Socket,
        receipt: Receipt,
    ) -> Received<'_, Receipt> {
        let nothing = Received {
            outcome: Outcome::Nothing,
            rearm: false,
            again: None,
        };
        let Socket::Descriptor { fd, .. } = socket else {
            return nothing;
        };
        if !(receipt.is_readable || receipt.is_last) {
            return nothing;
        }
        self.receives += 1;
        let length = self.buffer.len();
        let mut again = None;
        let read = || rustix::net::recv(&*fd, self.buffer.as_mut_slice(), RecvFlags::empty());
        let outcome = match retry_on_intr(read).map(|(count, _)| count) {
            Ok(0) => Outcome::End,
            Ok(count) => {
                // A read that fills less than the buffer has emptied the socket (epoll(7), "Do I need
                // to continuously read/write").
                if count == length || receipt.is_last {
                    again = Some(receipt);
                }
                Outcome::Bytes(&mut self.buffer[..count])
            }
            Err(Errno::AGAIN) => Outcome::Nothing,
            Err(errno) => Outcome::Failed(errno),
        };
        Received {
            outcome,
            rearm: false,
            again,
        }
    }

    fn release(&mut self, _: Receipt) {}

    fn hold(&mut self, _: ConnId, socket: &mut Socket, receipt: Receipt, _: bool) -> Held {
        let mut failed = None;
        if let Socket::Descriptor { fd, held, .. } = socket {
            let before = held.unwrap_or_default();
            *held = Some(Receipt {
                is_readable: before.is_readable || receipt.is_readable,
                is_writable: false,
                is_last: before.is_last || receipt.is_last,
                has_failed: before.has_failed || receipt.has_failed,
            });
            if receipt.has_failed {
                let errno = sockopt::socket_error(&*fd).ok().and_then(Result::err);
                failed = Some(errno.unwrap_or(Errno::PIPE));
            }
        }
        Held {
            rearm: false,
            failed,
        }
    }

    fn is_writable(&self, _: &Socket, receipt: Receipt) -> bool {
        receipt.is_writable
    }

    fn arm(
        &mut self,
        id: ConnId,
        socket: &mut Socket,
        interest: Interest,
        events: &mut Events<Receipt>,
    ) -> std_io::Result<()> {
        let Socket::Descriptor {
            held,
            fd,
            is_registered,
        } = socket
        else {
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
        if let Some(receipt) = held
            && interest.read
        {
            events.push(Event::Ready(id, *receipt));
            *held = None;
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

    fn accept(
        &mut self,
        listener: usize,
        events: &mut Events<Receipt>,
    ) -> std_io::Result<Accepted> {
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
            // None waits, or the connection failed before it was accepted; see accept(2), "Error
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
        self.buffer.len()
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
