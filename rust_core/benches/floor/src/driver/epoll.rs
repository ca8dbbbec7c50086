//! The epoll(7) driver: level-triggered, one receive for each readable connection and turn, and a
//! registration for writability only after a send that the socket did not take whole.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

use crate::driver::output::{Output, Queue, Turn};
use crate::driver::{Driver, Kind, Next, Pattern, TRUNK_BUFFER, Worker};
use crate::failure::{Context, Failure};

/// Events of one turn at most.
const EVENTS: usize = 256;
/// Connections accepted in one turn at most.
const ACCEPTS: usize = 256;
/// Most that is received from a client at once.
const CLIENT_BUFFER: usize = 64 * 1024;

/// Event tokens: clients by their number, trunks from here, then what is there once.
const FIRST_TRUNK: u64 = 1 << 32;
const CLIENTS_ARRIVE: u64 = 1 << 33;
const TRUNKS_ARRIVE: u64 = CLIENTS_ARRIVE + 1;
const MAIL: u64 = CLIENTS_ARRIVE + 2;
const DRAIN: u64 = CLIENTS_ARRIVE + 3;
const CLOSE: u64 = CLIENTS_ARRIVE + 4;

/// See the module.
pub(crate) struct Epoll {
    worker: Worker,
    epoll: OwnedFd,
    client_listener: Option<OwnedFd>,
    trunk_listener: Option<OwnedFd>,
    /// By number; `None` where a connection has ended.
    clients: Vec<Option<OwnedFd>>,
    free: Vec<u32>,
    trunks: Vec<Trunk>,
    /// What clients have not taken, by number. Rare.
    backlogs: HashMap<u32, Queue>,
    events: Vec<Event>,
    out: Output,
    spare: Turn,
    buffer: Vec<u8>,
    mail: Vec<u8>,
}

struct Trunk {
    socket: OwnedFd,
    /// Whether the socket is registered for writability.
    blocked: bool,
}

impl Driver for Epoll {
    fn new(worker: Worker) -> Result<Self, Failure> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("create an epoll")?;
        let driver = Self {
            epoll,
            client_listener: None,
            trunk_listener: None,
            clients: Vec::new(),
            free: Vec::new(),
            trunks: Vec::new(),
            backlogs: HashMap::new(),
            events: Vec::with_capacity(EVENTS),
            out: Output::new(worker.threads),
            spare: Turn::default(),
            buffer: vec![0; TRUNK_BUFFER],
            mail: Vec::new(),
            worker,
        };
        let signals = &driver.worker.setup.signals;
        driver.watch(driver.worker.mailboxes.wake(driver.worker.index), MAIL)?;
        driver.watch(&signals.drain, DRAIN)?;
        driver.watch(&signals.close, CLOSE)?;
        Ok(driver)
    }

    fn listen(&mut self, _ring: u32, listener: OwnedFd, kind: Kind) -> Result<(), Failure> {
        let (place, token) = match kind {
            Kind::Client => (&mut self.client_listener, CLIENTS_ARRIVE),
            Kind::Trunk => (&mut self.trunk_listener, TRUNKS_ARRIVE),
        };
        let listener = &*place.insert(listener);
        epoll::add(
            &self.epoll,
            listener,
            EventData::new_u64(token),
            EventFlags::IN,
        )
        .context("watch a listener")
    }

    fn add(&mut self, socket: OwnedFd, kind: Kind) -> Result<u32, Failure> {
        if kind == Kind::Trunk {
            let trunk = self.trunks.len() as u32;
            self.watch(&socket, FIRST_TRUNK + u64::from(trunk))?;
            self.trunks.push(Trunk {
                socket,
                blocked: false,
            });
            self.out.trunks.push(Queue::default());
            return Ok(trunk);
        }
        let client = self.free.pop().unwrap_or(self.clients.len() as u32);
        self.watch(&socket, u64::from(client))?;
        match self.clients.get_mut(client as usize) {
            Some(place) => *place = Some(socket),
            None => self.clients.push(Some(socket)),
        }
        Ok(client)
    }

    fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    fn turn<P: Pattern>(
        &mut self,
        pattern: &mut P,
        patience: Option<Duration>,
    ) -> Result<Next, Failure> {
        pattern.end_turn(&mut self.out);
        self.flush(pattern)?;
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        self.wait(&mut events, patience)?;
        for event in &events {
            match event.data.u64() {
                CLIENTS_ARRIVE => self.accept(Kind::Client)?,
                TRUNKS_ARRIVE => self.accept(Kind::Trunk)?,
                MAIL => self.take_mail(pattern),
                DRAIN => {
                    pattern.drain();
                    // It stays readable.
                    epoll::delete(&self.epoll, &self.worker.setup.signals.drain)
                        .context("stop watching a signal")?;
                }
                CLOSE => return Ok(Next::Close),
                token if token >= FIRST_TRUNK => {
                    let trunk = (token - FIRST_TRUNK) as usize;
                    self.trunk_event(trunk, event.flags, pattern)?;
                }
                client => self.client_event(client as u32, event.flags, pattern)?,
            }
        }
        self.events = events;
        Ok(Next::Turn)
    }

    fn close(mut self) -> Result<(), Failure> {
        self.client_listener = None;
        self.trunk_listener = None;
        Ok(())
    }
}

impl Epoll {
    fn watch(&self, descriptor: impl std::os::fd::AsFd, token: u64) -> Result<(), Failure> {
        epoll::add(
            &self.epoll,
            descriptor,
            EventData::new_u64(token),
            EventFlags::IN,
        )
        .context("watch a descriptor")
    }

    fn wait(&self, events: &mut Vec<Event>, patience: Option<Duration>) -> Result<(), Failure> {
        let timeout = patience.map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        });
        let space = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, space, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno).context("wait for events"),
        }
    }

    fn accept(&mut self, kind: Kind) -> Result<(), Failure> {
        for _ in 0..ACCEPTS {
            let listener = match kind {
                Kind::Client => &self.client_listener,
                Kind::Trunk => &self.trunk_listener,
            };
            let Some(listener) = listener else {
                return Ok(());
            };
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.add(socket, kind)?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => {
                    return Err(errno).context(format!(
                        "accept more than {} connections in thread {}; more --server-threads have \
                         more room",
                        self.clients.len(),
                        self.worker.index
                    ));
                }
                Err(errno) => return Err(errno).context("accept a connection"),
            };
            self.worker.accepted();
        }
        Ok(())
    }

    fn take_mail<P: Pattern>(&mut self, pattern: &mut P) {
        let mut mail = std::mem::take(&mut self.mail);
        mail.clear();
        self.worker.mailboxes.take(self.worker.index, &mut mail);
        pattern.on_mail(&mail, &mut self.out);
        self.mail = mail;
    }

    fn client_event<P: Pattern>(
        &mut self,
        client: u32,
        flags: EventFlags,
        pattern: &mut P,
    ) -> Result<(), Failure> {
        if flags.contains(EventFlags::OUT) {
            self.send_backlog(client, pattern)?;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        // An event of this turn may have closed it.
        let Some(Some(socket)) = self.clients.get(client as usize) else {
            return Ok(());
        };
        match recv(
            socket,
            &mut self.buffer[..CLIENT_BUFFER],
            RecvFlags::empty(),
        ) {
            Ok((_, 0)) => self.close_client(client, pattern),
            Ok((_, n)) => pattern.on_client(client, &self.buffer[..n], &mut self.out),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                self.worker
                    .fault(format_args!("cannot receive from client {client}: {errno}"));
                self.close_client(client, pattern);
            }
        }
        Ok(())
    }

    fn trunk_event<P: Pattern>(
        &mut self,
        trunk: usize,
        flags: EventFlags,
        pattern: &mut P,
    ) -> Result<(), Failure> {
        let socket = &self.trunks[trunk].socket;
        if flags.contains(EventFlags::OUT) {
            // The turn's end sends.
            let token = EventData::new_u64(FIRST_TRUNK + trunk as u64);
            epoll::modify(&self.epoll, socket, token, EventFlags::IN)
                .context("stop watching a trunk for room")?;
            self.trunks[trunk].blocked = false;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        let socket = &self.trunks[trunk].socket;
        match recv(socket, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) => self.worker.trunk_lost(trunk, "closed by its peer"),
            Ok((_, n)) => {
                pattern.on_trunk(trunk, &self.buffer[..n], &mut self.out);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => self.worker.trunk_lost(trunk, errno),
        }
    }

    /// Sends what the turn has left.
    fn flush<P: Pattern>(&mut self, pattern: &mut P) -> Result<(), Failure> {
        let spare = std::mem::take(&mut self.spare);
        let turn = self.out.take_turn(spare);
        for to in &turn.sends {
            self.send(to.client, turn.bytes(to), pattern)?;
        }
        if !turn.everyone.is_empty() {
            for client in 0..self.clients.len() as u32 {
                if self.clients[client as usize].is_some() {
                    self.send(client, &turn.everyone, pattern)?;
                }
            }
        }
        self.spare = turn;
        for trunk in 0..self.trunks.len() {
            self.flush_trunk(trunk)?;
        }
        for (thread, mail) in self.out.mail.iter_mut().enumerate() {
            if !mail.is_empty() {
                self.worker.mailboxes.post(thread as u32, mail);
                mail.clear();
            }
        }
        for fault in std::mem::take(&mut self.out.faults) {
            self.worker.fault(fault);
        }
        Ok(())
    }

    fn send<P: Pattern>(
        &mut self,
        client: u32,
        bytes: &[u8],
        pattern: &mut P,
    ) -> Result<(), Failure> {
        let Some(Some(socket)) = self.clients.get(client as usize) else {
            self.worker.fault(format_args!(
                "client {client} is gone, a message for it is left"
            ));
            return Ok(());
        };
        if let Some(backlog) = self.backlogs.get_mut(&client) {
            backlog.push(&[bytes]);
            return Ok(());
        }
        let sent = match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(n) if n == bytes.len() => return Ok(()),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => {
                self.worker
                    .fault(format_args!("cannot send to client {client}: {errno}"));
                self.close_client(client, pattern);
                return Ok(());
            }
        };
        let token = EventData::new_u64(u64::from(client));
        epoll::modify(&self.epoll, socket, token, EventFlags::IN | EventFlags::OUT)
            .context("watch a client for room")?;
        let mut backlog = Queue::default();
        backlog.push(&[&bytes[sent..]]);
        self.backlogs.insert(client, backlog);
        Ok(())
    }

    fn send_backlog<P: Pattern>(&mut self, client: u32, pattern: &mut P) -> Result<(), Failure> {
        let (Some(Some(socket)), Some(backlog)) = (
            self.clients.get(client as usize),
            self.backlogs.get_mut(&client),
        ) else {
            return Ok(());
        };
        match send(socket, backlog.pending(), SendFlags::NOSIGNAL) {
            Ok(n) => backlog.advance(n),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                self.worker
                    .fault(format_args!("cannot send to client {client}: {errno}"));
                self.close_client(client, pattern);
                return Ok(());
            }
        }
        if backlog.is_empty() {
            self.backlogs.remove(&client);
            let token = EventData::new_u64(u64::from(client));
            epoll::modify(&self.epoll, socket, token, EventFlags::IN)
                .context("stop watching a client for room")?;
        }
        Ok(())
    }

    fn flush_trunk(&mut self, index: usize) -> Result<(), Failure> {
        let (trunk, queue) = (&mut self.trunks[index], &mut self.out.trunks[index]);
        if trunk.blocked || queue.is_empty() {
            return Ok(());
        }
        match send(&trunk.socket, queue.pending(), SendFlags::NOSIGNAL) {
            Ok(n) => queue.advance(n),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return self.worker.trunk_lost(index, errno),
        }
        if !queue.is_empty() {
            let token = EventData::new_u64(FIRST_TRUNK + index as u64);
            let both = EventFlags::IN | EventFlags::OUT;
            epoll::modify(&self.epoll, &trunk.socket, token, both)
                .context("watch a trunk for room")?;
            trunk.blocked = true;
        }
        Ok(())
    }

    fn close_client<P: Pattern>(&mut self, client: u32, pattern: &mut P) {
        if self.clients[client as usize].take().is_some() {
            self.backlogs.remove(&client);
            self.free.push(client);
            self.worker.closed_by_peer(client);
            pattern.on_closed(client);
        }
    }
}
