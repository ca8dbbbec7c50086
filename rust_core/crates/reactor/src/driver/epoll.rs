//! The epoll(7) backend: level-triggered, one read per readable connection and turn, one write per
//! connection with pending output and turn, and a registration for writability only after a write
//! that the socket did not take whole.

use std::io as std_io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, acceptfrom_with, sockopt,
};

use crate::driver::io::{Connect, Io, Phase, Socket};
use crate::driver::{Closed, Driver, Handler, Origin};
use crate::slab::ConnId;
use crate::socket::{self, Mode};

/// Bytes read from one connection in one turn at most: enough for a busy connection, and small
/// enough to stay in the second-level cache.
const READ_BUFFER: usize = 128 * 1024;
const EVENTS: usize = 1024;
/// Connections accepted from one listener in one turn at most.
const ACCEPTS: usize = 256;
/// Chunks of one write at most.
const SLICES: usize = 64;
/// Pause of accepting after descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bits of [`Socket::interest`](super::io::Socket).
const READ: u8 = 1;
const WRITE: u8 = 2;
const REGISTERED: u8 = 4;

/// Event tokens that are not connections: `ConnId`s never have these slots.
const WAKE: u64 = u32::MAX as u64;
const FIRST_LISTENER: u64 = WAKE - 256;

/// See the module.
pub struct Epoll {
    epoll: OwnedFd,
    /// `None` once closed.
    listeners: Vec<Option<OwnedFd>>,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    accept_again: Option<Instant>,
}

impl Epoll {
    pub(crate) fn new(listeners: Vec<OwnedFd>, wake: BorrowedFd<'_>) -> std_io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            wake,
            epoll::EventData::new_u64(WAKE),
            epoll::EventFlags::IN,
        )?;
        let listeners: Vec<_> = listeners.into_iter().map(Some).collect();
        let driver = Self {
            epoll,
            listeners,
            events: Vec::with_capacity(EVENTS),
            buffer: vec![0; READ_BUFFER],
            accept_again: None,
        };
        driver.watch_listeners()?;
        Ok(driver)
    }

    /// Bytes of the buffer that is received into.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    fn watch_listeners(&self) -> rustix::io::Result<()> {
        for (n, listener) in self.listeners.iter().enumerate() {
            let Some(listener) = listener else { continue };
            let token = epoll::EventData::new_u64(FIRST_LISTENER + n as u64);
            match epoll::add(&self.epoll, listener, token, epoll::EventFlags::IN) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Level-triggered, a listener whose connections cannot be accepted would spin: looks away
    /// for a while.
    fn pause_accepting<H: Handler>(&mut self, io: &mut Io<H>) {
        io.accept_failures += 1;
        for listener in self.listeners.iter().flatten() {
            let _ = epoll::delete(&self.epoll, listener);
        }
        self.accept_again = Some(io.now() + ACCEPT_PAUSE);
    }

    /// Waits for events; fills `self.events`.
    fn wait<H: Handler>(&mut self, io: &mut Io<H>) -> std_io::Result<()> {
        let mut patience = io.patience();
        if let Some(at) = self.accept_again {
            let pause = at.saturating_duration_since(Instant::now());
            patience = Some(patience.map_or(pause, |patience| patience.min(pause)));
        }
        let shard = io.shard();
        if patience != Some(Duration::ZERO) && !io.mailboxes.fall_asleep(shard) {
            patience = Some(Duration::ZERO);
        }
        let timeout = patience.map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        });
        self.events.clear();
        io.calls.wait += 1;
        let outcome = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            timeout.as_ref(),
        );
        io.mailboxes.woke_up(shard);
        io.begin_turn();
        match outcome {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn accept<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H, n: usize) {
        for _ in 0..ACCEPTS {
            let Some(Some(listener)) = self.listeners.get(n) else {
                return;
            };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            io.calls.accept += 1;
            match acceptfrom_with(listener, flags) {
                Ok((fd, peer)) => {
                    let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) else {
                        continue;
                    };
                    self.open_accepted(io, handler, n, fd, peer);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.pause_accepting(io);
                    return;
                }
                // The connection failed before it was accepted; see accept(2), "Error handling".
                Err(_) => {}
            }
        }
    }

    fn open_accepted<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        listener: usize,
        fd: OwnedFd,
        peer: SocketAddr,
    ) {
        let Some(session) = handler.accept(listener, peer) else {
            return;
        };
        let id = io.insert(session, Socket::new(fd), Phase::Open);
        if self.watch(io, id).is_err() {
            // The handler has not been told of it yet.
            drop(io.conns.remove(id));
            self.pause_accepting(io);
            return;
        }
        handler.on_open(io, id, Origin::Accepted(listener));
    }

    /// Makes the kernel watch exactly what the connection's state calls for.
    fn watch<H: Handler>(&self, io: &mut Io<H>, id: ConnId) -> rustix::io::Result<()> {
        let Some(conn) = io.conns.value_mut(id) else {
            return Ok(());
        };
        let Socket::Descriptor { fd, interest } = &mut conn.socket else {
            return Ok(());
        };
        let (read, write) = match conn.phase {
            Phase::Connecting => (false, true),
            Phase::Open => (!conn.paused, conn.blocked),
            Phase::Closing => (false, conn.blocked),
            Phase::Lingering => (true, false),
            Phase::PeerClosed | Phase::Aborting => (false, false),
        };
        let wanted = REGISTERED | if read { READ } else { 0 } | if write { WRITE } else { 0 };
        if *interest == wanted {
            return Ok(());
        }
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, read);
        flags.set(epoll::EventFlags::OUT, write);
        let token = epoll::EventData::new_u64(id.to_bits());
        if *interest & REGISTERED == 0 {
            epoll::add(&self.epoll, &*fd, token, flags)?;
        } else {
            epoll::modify(&self.epoll, &*fd, token, flags)?;
        }
        *interest = wanted;
        Ok(())
    }

    fn connect<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H, connect: &Connect) {
        match start_connecting(connect.to, connect.from) {
            Ok(fd) => {
                let Some(conn) = io.conns.value_mut(connect.id) else {
                    return;
                };
                conn.socket = Socket::new(fd);
                if let Err(errno) = self.watch(io, connect.id) {
                    self.finish(io, handler, connect.id, Closed::Refused(errno));
                }
            }
            Err(errno) => self.finish(io, handler, connect.id, Closed::Refused(errno)),
        }
    }

    fn handle_event<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        id: ConnId,
        flags: epoll::EventFlags,
    ) {
        let Some(conn) = io.conns.value_mut(id) else {
            return;
        };
        let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        match conn.phase {
            Phase::Connecting => self.handle_connected(io, handler, id),
            // Not read from, and no use any more.
            Phase::Open if failed && conn.paused => {
                let errno = conn.socket.fd().and_then(pending_error);
                let errno = errno.unwrap_or(Errno::PIPE);
                self.finish(io, handler, id, Closed::Failed(errno));
            }
            Phase::Open if flags.contains(epoll::EventFlags::IN) || failed => {
                if flags.contains(epoll::EventFlags::OUT) {
                    conn.ready = true;
                    io.touch(id);
                }
                self.receive(io, handler, id);
            }
            Phase::Open | Phase::Closing if !failed => {
                conn.ready = true;
                io.touch(id);
            }
            Phase::Lingering => self.drain_lingering(io, handler, id),
            Phase::Closing => self.finish(io, handler, id, Closed::Local),
            Phase::Open | Phase::PeerClosed | Phase::Aborting => {}
        }
    }

    fn handle_connected<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H, id: ConnId) {
        let Some(conn) = io.conns.value_mut(id) else {
            return;
        };
        let Some(fd) = conn.socket.fd() else { return };
        let outcome = match sockopt::socket_error(fd) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) | Err(errno) => Err(errno),
        };
        match outcome {
            Ok(()) => {
                conn.phase = Phase::Open;
                io.touch(id);
                handler.on_open(io, id, Origin::Connected);
            }
            Err(errno) => self.finish(io, handler, id, Closed::Refused(errno)),
        }
    }

    fn receive<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H, id: ConnId) {
        let Some(conn) = io.conns.value_mut(id) else {
            return;
        };
        let Some(fd) = conn.socket.fd() else { return };
        io.calls.receive += 1;
        match rustix::net::recv(fd, self.buffer.as_mut_slice(), RecvFlags::empty()) {
            Ok((0, _)) => {
                // What was answered to the peer's last bytes is still written.
                handler.before_write(conn);
                self.write(io, handler, id);
                self.finish(io, handler, id, Closed::Peer);
            }
            Ok((count, _)) => {
                io.spend(count);
                handler.on_received(io, id, &mut self.buffer[..count]);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.finish(io, handler, id, Closed::Failed(errno)),
        }
    }

    fn drain_lingering<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H, id: ConnId) {
        let Some(conn) = io.conns.value_mut(id) else {
            return;
        };
        let Some(fd) = conn.socket.fd() else { return };
        io.calls.receive += 1;
        match rustix::net::recv(fd, self.buffer.as_mut_slice(), RecvFlags::empty()) {
            Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => self.finish(io, handler, id, Closed::Local),
        }
    }

    /// Gives every touched connection its one write, and carries out closes.
    fn flush<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H) {
        for id in std::mem::take(&mut io.aborted) {
            self.finish(io, handler, id, Closed::Local);
        }
        let mut touched = std::mem::take(&mut io.touched);
        for id in touched.drain(..) {
            let Some(conn) = io.conns.value_mut(id) else {
                continue;
            };
            conn.touched = false;
            match conn.phase {
                Phase::Connecting | Phase::Lingering | Phase::PeerClosed | Phase::Aborting => {}
                Phase::Open | Phase::Closing => {
                    handler.before_write(conn);
                    self.write(io, handler, id);
                }
            }
            self.after_write(io, handler, id);
        }
        // Keeps the allocation; closing may have touched more, which are visited next turn.
        if io.touched.is_empty() {
            io.touched = touched;
        }
    }

    /// Writes once; may finish the connection.
    fn write<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H, id: ConnId) {
        let Some(conn) = io.conns.value_mut(id) else {
            return;
        };
        let Some(fd) = conn.socket.fd() else { return };
        if conn.output.is_empty() {
            conn.output.release(&mut io.pool);
            return;
        }
        if !conn.ready {
            io.recount(id);
            return;
        }
        let outcome = match conn.output.single() {
            Some(bytes) => rustix::net::send(fd, bytes, SendFlags::NOSIGNAL),
            None => send_chunks(fd, conn.output.chunks()),
        };
        let count = match outcome {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => {
                self.finish(io, handler, id, Closed::Failed(errno));
                return;
            }
        };
        io.sent.items += conn.output.advance(count, &mut io.pool);
        io.sent.bytes += count as u64;
        conn.taken = conn.taken.wrapping_add(count as u32);
        io.sent.writes += 1;
        let was_blocked = std::mem::replace(&mut conn.blocked, !conn.output.is_empty());
        conn.ready = !conn.blocked;
        if conn.blocked {
            conn.output.settle();
        }
        let is_news = conn.blocked && !was_blocked && conn.phase == Phase::Open;
        io.recount(id);
        if is_news {
            handler.on_blocked(io, id);
        }
    }

    fn after_write<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H, id: ConnId) {
        let Some(conn) = io.conns.value_mut(id) else {
            return;
        };
        if conn.phase == Phase::Closing && conn.output.is_empty() {
            conn.phase = Phase::Lingering;
            if let Some(fd) = conn.socket.fd() {
                // It fails only where the peer is gone already, which reading will tell.
                let _ = rustix::net::shutdown(fd, Shutdown::Write);
            }
        }
        if let Err(errno) = self.watch(io, id) {
            self.finish(io, handler, id, Closed::Failed(errno));
        }
    }

    /// Removes the connection, tells the handler and closes its descriptor.
    fn finish<H: Handler>(&mut self, io: &mut Io<H>, handler: &mut H, id: ConnId, why: Closed) {
        drop(io.finish(handler, id, why));
    }
}

impl<H: Handler> Driver<H> for Epoll {
    fn turn(&mut self, io: &mut Io<H>, handler: &mut H) -> std_io::Result<()> {
        self.wait(io)?;
        let events = std::mem::take(&mut self.events);
        for event in &events {
            // What is skipped is reported again.
            if io.is_spent() {
                break;
            }
            let (flags, token) = (event.flags, event.data.u64());
            if token == WAKE {
                io.mailboxes.clear_wake(io.shard());
            } else if (FIRST_LISTENER..WAKE).contains(&token) {
                self.accept(io, handler, (token - FIRST_LISTENER) as usize);
            } else {
                self.handle_event(io, handler, ConnId::from_bits(token), flags);
            }
        }
        self.events = events;
        if self.accept_again.is_some_and(|at| at <= io.now()) {
            self.accept_again = None;
            if self.watch_listeners().is_err() {
                self.pause_accepting(io);
            }
        }
        io.deliver_mail_and_timers(handler);
        io.renew_budget();
        handler.on_turn_end(io);
        for connect in std::mem::take(&mut io.connects) {
            self.connect(io, handler, &connect);
        }
        self.flush(io, handler);
        io.post_mail(handler);
        handler.on_written(io);
        for n in io.unlisten.drain(..) {
            if let Some(listener) = self.listeners.get_mut(n) {
                *listener = None;
            }
        }
        Ok(())
    }

    fn shut_down(&mut self, io: &mut Io<H>, handler: &mut H) {
        self.listeners.clear();
        self.flush(io, handler);
        let ids: Vec<ConnId> = io.conns.ids().collect();
        for id in ids {
            self.finish(io, handler, id, Closed::Shutdown);
        }
    }
}

/// The error that a socket has met, if any.
fn pending_error(fd: &OwnedFd) -> Option<Errno> {
    sockopt::socket_error(fd).ok()?.err()
}

fn start_connecting(to: SocketAddr, from: Option<IpAddr>) -> rustix::io::Result<OwnedFd> {
    let fd = socket::open_outgoing(to, from, Mode::NonBlocking)?;
    match rustix::net::connect(&fd, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

fn send_chunks<'a>(
    fd: &OwnedFd,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> rustix::io::Result<usize> {
    let mut slices: [IoSlice<'a>; SLICES] = std::array::from_fn(|_| IoSlice::new(&[]));
    let mut count = 0;
    for (slice, chunk) in slices.iter_mut().zip(chunks) {
        *slice = IoSlice::new(chunk);
        count += 1;
    }
    let mut control = SendAncillaryBuffer::default();
    rustix::net::sendmsg(fd, &slices[..count], &mut control, SendFlags::NOSIGNAL)
}
