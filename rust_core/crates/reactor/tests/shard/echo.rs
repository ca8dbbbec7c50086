//! A shard, running, whose handler does what the first byte that it receives says, and tells what it
//! was told.

use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use subjectbus_reactor::{
    Closed, Conn, ConnId, DriverKind, Handler, Io, Mailboxes, Origin, Reservation, Shard,
    ShardSpec, work,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    Open(Origin),
    Received(usize),
    Blocked,
    Closed(Closed, u64),
    Timer(u8),
    Undelivered(String),
}

pub(crate) enum Mail {
    Connect(SocketAddr),
    Relay(usize, String),
    CloseListeners,
    Panic,
    Stop,
}

/// Echoes; a first byte of its alphabet makes it do something else.
pub(crate) struct Echo {
    told: SyncSender<Told>,
    /// The end of the pause of the first listener.
    paused_until: Option<Instant>,
}

impl Handler for Echo {
    type Session = ();
    type Mail = Mail;

    fn accept(&mut self, _: &mut Io<Self>, _: usize, peer: SocketAddr) -> Option<()> {
        assert!(peer.ip().is_loopback());
        Some(())
    }

    fn on_open(&mut self, io: &mut Io<Self>, id: ConnId, origin: Origin) {
        if origin == Origin::Connected {
            let conn = io.writer(id).expect("open");
            conn.output.tail().extend_from_slice(b"hello");
            conn.output.add_items(1);
        }
        if origin == Origin::Accepted(0) {
            assert!(self.paused_until.is_none_or(|until| until <= io.now()));
        }
        self.tell(Told::Open(origin));
    }

    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]) {
        self.tell(Told::Received(bytes.len()));
        match bytes[0] {
            b'!' => io.abort(id),
            b'T' => io.set_timer(id, 7, Duration::from_millis(20)),
            b'W' => {
                let until = io.now() + Duration::from_millis(60);
                io.pause_accepting(0, until);
                self.paused_until = Some(until);
            }
            b'P' => {
                io.set_reading(id, false);
                io.set_timer(id, 8, Duration::from_millis(50));
            }
            b'B' => append_chunks(io, id, &BIG),
            b'C' => {
                append_chunks(io, id, &BIG_AT_BOTH_ENDS);
                io.close(id);
            }
            b'E' => end_with(io, &END),
            b'e' => end_with(io, &[4096, 4096]),
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
            Mail::Panic => {
                io.mail(1, Mail::Relay(0, "not posted".into()));
                panic!("as the test asks for");
            }
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

/// More than a socket takes.
pub(crate) const BIG: [usize; 64] = [256 * 1024; 64];
/// Appended when the shard ends.
pub(crate) const END: [usize; 2] = [16 << 20, 4096];
pub(crate) const BIG_AT_BOTH_ENDS: [usize; 3] = [16 << 20, 4096, 16 << 20];

/// Appends chunks of these lengths, one item each.
pub(crate) fn append_chunks(io: &mut Io<Echo>, id: ConnId, lens: &[usize]) {
    for (n, len) in lens.iter().enumerate() {
        let conn = io.writer(id).expect("open");
        conn.output.tail().resize(*len, n as u8);
        conn.output.add_items(1);
        conn.output.seal();
    }
}

/// Appends them to every connection and ends the shard.
pub(crate) fn end_with(io: &mut Io<Echo>, lens: &[usize]) {
    let ids: Vec<ConnId> = io.connections.ids().collect();
    ids.into_iter().for_each(|id| append_chunks(io, id, lens));
    io.stop();
}

/// What [`append_chunks`] appends: every byte of chunk N is N, so that a gap shows.
pub(crate) fn chunks(lens: &[usize]) -> Vec<u8> {
    let chunk = |(n, len): (usize, &usize)| vec![n as u8; *len];
    lens.iter().enumerate().flat_map(chunk).collect()
}

impl Echo {
    fn tell(&self, told: Told) {
        self.told.send(told).expect("test listens");
    }
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// The second listener's.
    pub(crate) other: SocketAddr,
    pub(crate) mailboxes: Mailboxes<Mail>,
    pub(crate) told: Receiver<Told>,
    pub(crate) threads: Vec<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(driver: DriverKind, shards: usize) -> Self {
        Self::with_room(driver, shards, 100)
    }

    /// A ring has one slot for each of `connections`.
    pub(crate) fn with_room(driver: DriverKind, shards: usize, connections: usize) -> Self {
        let reserve = |_| Reservation::new(SocketAddr::from(([127, 0, 0, 1], 0))).expect("port");
        let reserved = [0, 1].map(reserve);
        let [address, other] = reserved.each_ref().map(Reservation::address);
        let mailboxes = Mailboxes::new(shards).expect("mailboxes");
        let (tell, told) = sync_channel(64 * 1024);
        let (ready, is_ready) = sync_channel(64 * 1024);
        let threads = (0..shards)
            .map(|index| {
                let spec = ShardSpec {
                    index,
                    mailboxes: mailboxes.clone(),
                    listeners: vec![address, other],
                    driver,
                    connections,
                    own_table: driver == DriverKind::Epoll,
                    turn_budget: work::TURN,
                };
                let (told, ready) = (tell.clone(), ready.clone());
                std::thread::spawn(move || {
                    let shard = Shard::open(spec).expect("shard");
                    ready.send(()).expect("test listens");
                    let mut echo = Echo {
                        told,
                        paused_until: None,
                    };
                    shard.run(&mut echo).expect("run");
                })
            })
            .collect();
        (0..shards).for_each(|_| is_ready.recv_timeout(PATIENCE).expect("ready"));
        Self {
            address,
            other,
            mailboxes,
            told,
            threads,
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        self.expect(&Told::Open(Origin::Accepted(0)));
        stream
    }

    pub(crate) fn expect(&self, wanted: &Told) {
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
