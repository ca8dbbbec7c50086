//! How connections come to be: accepted or connected as descriptors, then moved to a ring.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use io_uring::{cqueue, opcode, types};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;

use super::ring::Ring;
use super::token::{Peer, Token};
use super::{Uring, descriptor_of};
use crate::driver::io::{Conn, Connect, Io, Phase, Socket};
use crate::driver::{Closed, Handler, Origin};
use crate::socket::{self, Mode};

/// Pause of accepting after descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Uring {
    /// Arms accepting on every listener where it is not.
    pub(super) fn accept_all(&mut self) -> io::Result<()> {
        for n in 0..self.listeners.len() {
            let Some(listener) = &self.listeners[n] else {
                continue;
            };
            if !std::mem::replace(&mut self.accepting[n], true) {
                let accept = opcode::AcceptMulti::new(types::Fd(listener.as_raw_fd()))
                    .flags(libc::SOCK_CLOEXEC);
                self.push(0, accept.build(), Token::Accept(n as u32))?;
            }
        }
        Ok(())
    }

    pub(super) fn stop_accepting(&mut self, n: usize) -> io::Result<()> {
        if std::mem::replace(&mut self.accepting[n], false) {
            // One that was to end already may still be there.
            let token = Token::Accept(n as u32).to_bits();
            let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::user_data(token).all());
            self.push_silent(0, cancel.build())?;
        }
        Ok(())
    }

    /// Looks away from the listeners for a while: descriptors or memory have run out.
    pub(super) fn pause_accepting<H: Handler>(&mut self, io: &mut Io<H>) -> io::Result<()> {
        io.accept_failures += 1;
        (0..self.listeners.len()).try_for_each(|n| self.stop_accepting(n))?;
        self.accept_again = Some(io.now() + ACCEPT_PAUSE);
        Ok(())
    }

    pub(super) fn resume_accepting<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
    ) -> io::Result<()> {
        if self.accept_again.is_none_or(|at| at > io.now()) {
            return Ok(());
        }
        self.accept_again = None;
        while let Some((listener, fd, peer)) = self.unplaced.pop_front() {
            self.admit(io, handler, listener, fd, peer)?;
            if self.accept_again.is_some() {
                return Ok(());
            }
        }
        self.accept_all()
    }

    /// The ring with the most room, if any has some.
    pub(super) fn roomiest(&self) -> Option<u16> {
        let rooms = self.rings.iter().map(Ring::room).enumerate();
        let (ring, room) = rooms.max_by_key(|(n, room)| (*room, usize::MAX - n))?;
        (room > 0).then_some(ring as u16)
    }

    pub(super) fn install(&mut self, fd: OwnedFd) -> Result<Socket, Errno> {
        let ring = self.roomiest().ok_or(Errno::NFILE)?;
        let slot = self.rings[usize::from(ring)].install(fd);
        match slot {
            Ok(slot) => Ok(Socket::Direct { slot, ring, ops: 0 }),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }

    pub(super) fn admit<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        listener: usize,
        fd: OwnedFd,
        peer: SocketAddr,
    ) -> io::Result<()> {
        if self.roomiest().is_none() {
            self.unplaced.push_front((listener, fd, peer));
            return self.pause_accepting(io);
        }
        let Some(session) = handler.accept(listener, peer) else {
            return Ok(());
        };
        match self.install(fd) {
            Ok(socket) => {
                let id = io.insert(session, socket, Phase::Open);
                io.touch(id);
                handler.on_open(io, id, Origin::Accepted(listener));
                Ok(())
            }
            // The connection is closed; the next one may find memory.
            Err(_) => self.pause_accepting(io),
        }
    }

    pub(super) fn handle_accepted<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        n: usize,
        entry: &cqueue::Entry,
    ) -> io::Result<()> {
        let goes_on = cqueue::more(entry.flags());
        if !goes_on && let Some(accepting) = self.accepting.get_mut(n) {
            *accepting = false;
        }
        match entry.result() {
            0.. => {
                if let Some(fd) = descriptor_of(entry)
                    && let Some(peer) = peer_of(&fd)
                {
                    if self.accept_again.is_some() {
                        self.unplaced.push_back((n, fd, peer));
                    } else {
                        self.admit(io, handler, n, fd, peer)?;
                    }
                }
            }
            error => {
                if let libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM = -error {
                    return self.pause_accepting(io);
                }
                // Cancelled, or the connection failed before it was accepted; see accept(2).
            }
        }
        if goes_on || self.accept_again.is_some() {
            return Ok(());
        }
        self.accept_all()
    }

    pub(super) fn handle_connected<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        peer: Peer,
        result: i32,
    ) -> io::Result<()> {
        let Some(id) = peer.find(&io.conns) else {
            return Ok(());
        };
        let Some(conn) = io.conns.value_mut(id) else {
            return Ok(());
        };
        if conn.phase != Phase::Connecting {
            return Ok(());
        }
        let socket = std::mem::replace(&mut conn.socket, Socket::None);
        let outcome = match socket {
            _ if result < 0 => Err(Errno::from_raw_os_error(-result)),
            Socket::Descriptor { fd, .. } => self.install(fd),
            _ => Err(Errno::BADF),
        };
        match (outcome, io.conns.value_mut(id)) {
            (Ok(socket), Some(conn)) => {
                conn.socket = socket;
                conn.phase = Phase::Open;
                io.touch(id);
                handler.on_open(io, id, Origin::Connected);
                Ok(())
            }
            (Err(errno), _) => self.finish(io, handler, id, Closed::Refused(errno)),
            (Ok(_), None) => Ok(()),
        }
    }

    pub(super) fn connect<H: Handler>(
        &mut self,
        io: &mut Io<H>,
        handler: &mut H,
        connect: &Connect,
    ) -> io::Result<()> {
        // The descriptor of one that was given up would be closed before it is submitted.
        let is_wanted = |conn: &Conn<H::Session>| conn.phase == Phase::Connecting;
        if !io.conns.value(connect.id).is_some_and(is_wanted) {
            return Ok(());
        }
        let fd = match socket::open_outgoing(connect.to, connect.from, Mode::Blocking) {
            Ok(fd) => fd,
            Err(errno) => return self.finish(io, handler, connect.id, Closed::Refused(errno)),
        };
        let Some(conn) = io.conns.value_mut(connect.id) else {
            return Ok(());
        };
        let destination = Box::new(connect.to.as_any());
        let entry = opcode::Connect::new(
            types::Fd(fd.as_raw_fd()),
            destination.as_ptr().cast(),
            destination.addr_len(),
        );
        let token = Token::Connect(Peer::of(connect.id));
        conn.socket = Socket::new(fd);
        self.destinations.push(destination);
        // SAFETY: the address stays in `destinations` until it is submitted; the kernel copies it then.
        unsafe { self.rings[0].push(&entry.build().user_data(token.to_bits())) }
    }

    /// Closes the listeners that the handler wants closed.
    pub(super) fn unlisten<H: Handler>(&mut self, io: &mut Io<H>) -> io::Result<()> {
        for n in std::mem::take(&mut io.unlisten) {
            if n < self.listeners.len() {
                self.stop_accepting(n)?;
                self.unlistened.extend(self.listeners[n].take());
                self.unplaced.retain(|(listener, ..)| *listener != n);
            }
        }
        Ok(())
    }
}

fn peer_of(fd: &OwnedFd) -> Option<SocketAddr> {
    let peer = rustix::net::getpeername(fd).ok()??;
    SocketAddr::try_from(peer).ok()
}
