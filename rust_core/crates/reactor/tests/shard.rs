//! Shards over real sockets: what a peer sees, and what the handler is told.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use subjectbus_reactor::{
    Closed, Conn, ConnId, DriverKind, Handler, Io, Mailboxes, MailboxesBuilder, Origin,
    Reservation, Shard, ShardSpec,
};

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq)]
enum Told {
    Open(Origin),
    Received(usize),
    Blocked,
    Closed(Closed, u64),
    Timer(u8),
    Undelivered(String),
}

enum Mail {
    Connect(SocketAddr),
    Relay(usize, String),
    CloseListeners,
    Stop,
}

/// Echoes; a first byte of its alphabet makes it do something else.
struct Echo {
    told: SyncSender<Told>,
}

impl Handler for Echo {
    type Session = ();
    type Mail = Mail;

    fn accept(&mut self, _: usize, peer: SocketAddr) -> Option<()> {
        assert!(peer.ip().is_loopback());
        Some(())
    }

    fn on_open(&mut self, io: &mut Io<Self>, id: ConnId, origin: Origin) {
        if origin == Origin::Connected {
            let conn = io.writer(id).expect("open");
            conn.output.tail().extend_from_slice(b"hello");
            conn.output.add_items(1);
        }
        self.tell(Told::Open(origin));
    }

    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]) {
        self.tell(Told::Received(bytes.len()));
        match bytes[0] {
            b'!' => io.abort(id),
            b'T' => io.set_timer(id, 7, Duration::from_millis(20)),
            b'P' => {
                io.set_reading(id, false);
                io.set_timer(id, 8, Duration::from_millis(50));
            }
            b'B' => {
                for _ in 0..64 {
                    let conn = io.writer(id).expect("open");
                    conn.output.tail().extend_from_slice(&[b'b'; 256 * 1024]);
                    conn.output.add_items(1);
                    conn.output.seal();
                }
            }
            first => {
                let conn = io.writer(id).expect("open");
                conn.output.tail().extend_from_slice(bytes);
                conn.output.add_items(1);
                if first == b'Q' {
                    io.close(id);
                }
            }
        }
    }

    fn on_blocked(&mut self, _: &mut Io<Self>, _: ConnId) {
        self.tell(Told::Blocked);
    }

    fn before_write(&mut self, conn: &mut Conn<()>) {
        if conn.output.tail().last() == Some(&b'~') {
            conn.output.tail().push(b'.');
        }
    }

    fn on_closed(&mut self, _: &mut Io<Self>, _: ConnId, (): (), why: Closed, unsent: u64) {
        self.tell(Told::Closed(why, unsent));
    }

    fn on_timer(&mut self, io: &mut Io<Self>, id: ConnId, kind: u8) {
        io.set_reading(id, true);
        if let Some(conn) = io.writer(id) {
            conn.output.tail().push(b't');
        }
        self.tell(Told::Timer(kind));
    }

    fn on_mail(&mut self, io: &mut Io<Self>, mail: Mail) {
        match mail {
            Mail::Connect(to) => {
                io.connect(to, Some([127, 0, 0, 2].into()), ());
            }
            Mail::Relay(0, text) => self.tell(Told::Undelivered(text)),
            Mail::Relay(hops, text) => {
                let next = (io.shard() + 1) % io.shards();
                io.mail(next, Mail::Relay(hops - 1, text));
            }
            Mail::CloseListeners => io.close_listener(0),
            Mail::Stop => io.stop(),
        }
    }

    fn on_undelivered(&mut self, mail: Mail) {
        if let Mail::Relay(_, text) = mail {
            self.tell(Told::Undelivered(text));
        }
    }

    fn on_turn_end(&mut self, _: &mut Io<Self>) {}

    fn on_written(&mut self, _: &mut Io<Self>) {}
}

impl Echo {
    fn tell(&self, told: Told) {
        self.told.send(told).expect("test listens");
    }
}

struct Running {
    address: SocketAddr,
    mailboxes: Mailboxes<Mail>,
    told: Receiver<Told>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(driver: DriverKind, shards: usize) -> Self {
        Self::with_room(driver, shards, 100)
    }

    /// A ring has one slot for each of `connections`.
    fn with_room(driver: DriverKind, shards: usize, connections: usize) -> Self {
        let reservation = Reservation::new(SocketAddr::from(([127, 0, 0, 1], 0))).expect("port");
        let mailboxes = MailboxesBuilder::build(shards).expect("mailboxes");
        let (tell, told) = sync_channel(64 * 1024);
        let (ready, is_ready) = sync_channel(64 * 1024);
        let threads = (0..shards)
            .map(|index| {
                let spec = ShardSpec {
                    index,
                    mailboxes: mailboxes.clone(),
                    listeners: vec![reservation.address()],
                    driver,
                    connections,
                    own_table: driver == DriverKind::Epoll,
                    turn_budget: 1 << 20,
                };
                let (told, ready) = (tell.clone(), ready.clone());
                std::thread::spawn(move || {
                    let shard = Shard::open(spec).expect("shard");
                    ready.send(()).expect("test listens");
                    shard.run(&mut Echo { told }).expect("run");
                })
            })
            .collect();
        (0..shards).for_each(|_| is_ready.recv_timeout(PATIENCE).expect("ready"));
        Self {
            address: reservation.address(),
            mailboxes,
            told,
            threads,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        self.expect(&Told::Open(Origin::Accepted(0)));
        stream
    }

    fn expect(&self, wanted: &Told) {
        assert_eq!(&self.told.recv_timeout(PATIENCE).expect("told"), wanted);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for shard in 0..self.threads.len() {
            self.mailboxes.post(shard, Mail::Stop);
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("shard ends without panic");
        }
    }
}

/// Whether the kernel permits this backend here; where it does not, nothing can be tested.
fn is_permitted(driver: DriverKind) -> bool {
    match driver.resolve() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("not tested, the kernel permits no {driver}: {error}");
            false
        }
    }
}

/// Every test runs on every backend.
macro_rules! on_every_driver {
    ($($test:ident)*) => {
        mod epoll {
            $(#[test]
            fn $test() {
                super::$test(super::DriverKind::Epoll);
            })*
        }
        mod uring {
            $(#[test]
            fn $test() {
                if super::is_permitted(super::DriverKind::Uring) {
                    super::$test(super::DriverKind::Uring);
                }
            })*
        }
    };
}

on_every_driver! {
    echoes_and_tells_the_peers_end
    the_last_bytes_of_a_half_closed_peer_are_answered
    close_sends_what_is_pending_although_the_peer_still_sends
    a_peer_that_never_reads_blocks_only_itself
    abort_tells_how_much_was_not_sent
    timers_fire_and_a_paused_connection_keeps_its_bytes
    what_arrived_before_a_pause_took_effect_is_handed_out_after_it
    connects_from_the_given_address_and_tells_refusals
    mail_goes_round_the_shards_and_none_is_lost_at_the_end
    stopping_closes_connections_and_listeners
}

fn echoes_and_tells_the_peers_end(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stream = running.connect();
    stream.write_all(b"abc~").expect("write");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("read");
    assert_eq!(&answer, b"abc~.");
    running.expect(&Told::Received(4));
    drop(stream);
    running.expect(&Told::Closed(Closed::Peer, 0));
}

fn the_last_bytes_of_a_half_closed_peer_are_answered(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stream = running.connect();
    stream.write_all(b"bye").expect("write");
    stream.shutdown(Shutdown::Write).expect("shutdown");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read");
    assert_eq!(answer, b"bye");
}

fn close_sends_what_is_pending_although_the_peer_still_sends(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stream = running.connect();
    stream.write_all(b"Quit").expect("write");
    running.expect(&Told::Received(4));
    let mut answer = Vec::new();
    // Unread input at close() would turn these bytes into a reset.
    let _ = stream.write_all(&[0; 4096]);
    stream.read_to_end(&mut answer).expect("an orderly end");
    assert!(answer.starts_with(b"Quit"));
    drop(stream);
    running.expect(&Told::Closed(Closed::Local, 0));
}

fn a_peer_that_never_reads_blocks_only_itself(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stuck = running.connect();
    stuck.write_all(b"Big").expect("write");
    running.expect(&Told::Received(3));
    running.expect(&Told::Blocked);
    let mut other = running.connect();
    other.write_all(b"still there?").expect("write");
    other.read_exact(&mut [0; 12]).expect("read");
    running.expect(&Told::Received(12));
    let mut backlog = vec![0; 64 * 256 * 1024];
    stuck.read_exact(&mut backlog).expect("all of it, in order");
    assert!(backlog.iter().all(|byte| *byte == b'b'));
    stuck.write_all(b"x").expect("write");
    stuck.read_exact(&mut [0]).expect("read");
    running.expect(&Told::Received(1));
}

fn abort_tells_how_much_was_not_sent(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stuck = running.connect();
    stuck.write_all(b"Big").expect("write");
    running.expect(&Told::Received(3));
    running.expect(&Told::Blocked);
    stuck.write_all(b"!").expect("write");
    running.expect(&Told::Received(1));
    match running.told.recv_timeout(PATIENCE).expect("told") {
        Told::Closed(Closed::Local, unsent) => assert!((1..=64).contains(&unsent), "{unsent}"),
        other => panic!("{other:?}"),
    }
}

fn timers_fire_and_a_paused_connection_keeps_its_bytes(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stream = running.connect();
    stream.write_all(b"T").expect("write");
    running.expect(&Told::Received(1));
    running.expect(&Told::Timer(7));
    stream.read_exact(&mut [0]).expect("read");
    stream.write_all(b"P").expect("write");
    running.expect(&Told::Received(1));
    let paused = Instant::now();
    stream.write_all(b"kept").expect("write");
    running.expect(&Told::Timer(8));
    running.expect(&Told::Received(4));
    assert!(paused.elapsed() >= Duration::from_millis(40));
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("read");
    assert_eq!(&answer, b"tkept");
}

fn what_arrived_before_a_pause_took_effect_is_handed_out_after_it(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let stream = running.connect();
    let mut bytes = vec![b'k'; 300_000];
    bytes[0] = b'P';
    let writer = std::thread::spawn({
        let mut stream = stream.try_clone().expect("clone");
        move || stream.write_all(&bytes).expect("write")
    });
    let mut received = 0;
    while received < 300_000 {
        match running.told.recv_timeout(PATIENCE).expect("told") {
            Told::Received(count) => received += count,
            Told::Timer(8) | Told::Blocked => {}
            other => panic!("{other:?}"),
        }
    }
    writer.join().expect("written");
}

fn connects_from_the_given_address_and_tells_refusals(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let peer = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = peer.local_addr().expect("address");
    running.mailboxes.post(0, Mail::Connect(address));
    let (mut stream, from) = peer.accept().expect("accept");
    assert_eq!(from.ip().to_string(), "127.0.0.2");
    running.expect(&Told::Open(Origin::Connected));
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).expect("read");
    assert_eq!(&greeting, b"hello");
    drop((stream, peer));
    running.expect(&Told::Closed(Closed::Peer, 0));
    running.mailboxes.post(0, Mail::Connect(address));
    match running.told.recv_timeout(PATIENCE).expect("told") {
        Told::Closed(Closed::Refused(errno), 0) => {
            assert_eq!(errno, rustix::io::Errno::CONNREFUSED);
        }
        other => panic!("{other:?}"),
    }
}

fn mail_goes_round_the_shards_and_none_is_lost_at_the_end(driver: DriverKind) {
    let running = Running::start(driver, 3);
    running.mailboxes.post(0, Mail::Relay(1000, "round".into()));
    running.expect(&Told::Undelivered("round".into()));
    running.mailboxes.post(1, Mail::Stop);
    while !running.threads[1].is_finished() {
        std::thread::yield_now();
    }
    running.mailboxes.post(0, Mail::Relay(5, "returned".into()));
    running.expect(&Told::Undelivered("returned".into()));
}

fn stopping_closes_connections_and_listeners(driver: DriverKind) {
    let mut running = Running::start(driver, 2);
    let mut stream = running.connect();
    (0..2).for_each(|shard| {
        assert!(
            running
                .mailboxes
                .post(shard, Mail::CloseListeners)
                .is_none()
        )
    });
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(running.address).is_ok() {
        assert!(Instant::now() < deadline, "still accepting");
    }
    stream.write_all(b"still served").expect("write");
    stream.read_exact(&mut [0; 12]).expect("read");
    (0..2).for_each(|shard| assert!(running.mailboxes.post(shard, Mail::Stop).is_none()));
    assert_eq!(stream.read(&mut [0]).expect("orderly"), 0);
    running
        .threads
        .drain(..)
        .for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn connections_that_find_no_slot_wait_for_one() {
    if !is_permitted(DriverKind::Uring) {
        return;
    }
    let running = Running::with_room(DriverKind::Uring, 1, 2);
    let first = running.connect();
    let mut second = running.connect();
    let mut waiting: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(running.address).expect("the kernel accepts"))
        .collect();
    waiting[0].write_all(b"hello").expect("write");
    second.write_all(b"abc").expect("write");
    second.read_exact(&mut [0; 3]).expect("served meanwhile");
    running.expect(&Told::Received(3));
    drop(first);
    running.expect(&Told::Closed(Closed::Peer, 0));
    running.expect(&Told::Open(Origin::Accepted(0)));
    waiting[0]
        .set_read_timeout(Some(PATIENCE))
        .expect("timeout");
    let mut answer = [0; 5];
    waiting[0].read_exact(&mut answer).expect("its turn");
    assert_eq!(&answer, b"hello");
    running.expect(&Told::Received(5));
    drop((second, waiting));
    let told: Vec<Told> = (0..6)
        .map(|_| running.told.recv_timeout(PATIENCE).expect("told"))
        .collect();
    let count = |wanted: Told| told.iter().filter(|told| **told == wanted).count();
    assert_eq!(count(Told::Open(Origin::Accepted(0))), 2, "{told:?}");
    assert_eq!(count(Told::Closed(Closed::Peer, 0)), 4, "{told:?}");
}
