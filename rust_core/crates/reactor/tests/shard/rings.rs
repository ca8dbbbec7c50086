//! Several rings in one thread, and rings whose buffers are all in use.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use subjectbus_reactor::{Closed, ConnId, DriverKind, Origin};

use crate::is_permitted;
use crate::peer::Peer;
use crate::stage::{Script, Setting, StageIo, append, end_if, in_own_process, play};

/// Descriptors of one table while the shard is opened, and so connections of a ring.
const TABLE: u64 = 64;
/// Connections, which several rings hold together.
const CONNECTIONS: usize = 200;
const RINGS: usize = CONNECTIONS.div_ceil(TABLE as usize);

fn several_rings() -> Setting {
    Setting {
        connections: CONNECTIONS,
        table: Some(TABLE),
        ..Setting::new(DriverKind::Uring)
    }
}

/// Echoes, and stops when all have gone.
struct Echo {
    address: Option<SyncSender<SocketAddr>>,
    opened: usize,
    closed: usize,
}

impl Script for Echo {
    fn begin(&mut self, io: &mut StageIo, address: SocketAddr) {
        assert_eq!(io.descriptors().limit, RINGS * CONNECTIONS.div_ceil(RINGS));
        if let Some(tell) = self.address.take() {
            tell.send(address).expect("the test waits");
        }
    }

    fn on_open(&mut self, _: &mut StageIo, _: ConnId, _: Origin) {
        self.opened += 1;
    }

    fn on_received(&mut self, io: &mut StageIo, id: ConnId, bytes: &mut [u8]) {
        append(io, id, bytes);
    }

    fn on_closed(&mut self, _: &mut StageIo, _: usize, why: Closed, _: u64) {
        assert_eq!(why, Closed::Peer);
        self.closed += 1;
    }

    fn between(&mut self, io: &mut StageIo, _: u64) -> ControlFlow<()> {
        end_if(self.closed >= CONNECTIONS && io.connections.is_empty())
    }
}

/// Run clients against an echo on several rings, in a shard without any timer: what wakes it is what
/// happens.
fn with_echo(clients: impl FnOnce(SocketAddr)) {
    let (tell, address) = sync_channel(1);
    let setting = Setting {
        is_guarded: false,
        ..several_rings()
    };
    let echo = Echo {
        address: Some(tell),
        opened: 0,
        closed: 0,
    };
    std::thread::scope(|threads| {
        let shard = threads.spawn(move || play(setting, echo));
        clients(address.recv().expect("listening"));
        shard.join().expect("no panic");
    });
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("socket");
    stream
}

fn exchange(mut stream: &TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("write");
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).expect("the answer");
    assert_eq!(answer, bytes);
}

#[test]
fn several_rings_hold_more_connections_than_one_table() {
    if !is_permitted(DriverKind::Uring) {
        return;
    }
    let name = "rings::several_rings_hold_more_connections_than_one_table";
    in_own_process(name, || {
        with_echo(|address| {
            for _ in 0..2 {
                let streams: Vec<TcpStream> =
                    (0..CONNECTIONS / 2).map(|_| connect(address)).collect();
                for (n, stream) in streams.iter().enumerate() {
                    exchange(stream, format!("hello from {n}").as_bytes());
                }
                let long = vec![5; 100_000];
                streams.iter().for_each(|stream| exchange(stream, &long));
            }
        });
    });
}

#[test]
fn each_ring_wakes_the_thread_that_sleeps_in_the_first() {
    if !is_permitted(DriverKind::Uring) {
        return;
    }
    let name = "rings::each_ring_wakes_the_thread_that_sleeps_in_the_first";
    in_own_process(name, || {
        with_echo(|address| {
            // Each goes to the ring with the most room, so that neighbours are in different ones.
            let streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(address)).collect();
            for _ in 0..20 {
                for stream in &streams[..2 * RINGS] {
                    exchange(stream, b"awake?");
                    // So that the thread sleeps; that it does is not what is tested.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            for stream in &streams {
                exchange(stream, b"all of you");
            }
        });
    });
}

/// Connections that send more than all buffers hold, to a shard whose turns are so short that pieces wait
/// over several of them.
struct Scarce {
    peers: Vec<Peer>,
    sent: Vec<usize>,
    received: Vec<usize>,
    is_paused: Vec<bool>,
}

const SENDERS: usize = 30;
/// Bytes of each.
const ALL: usize = 400_000;

fn byte(sender: usize, n: usize) -> u8 {
    (sender ^ n ^ n >> 8) as u8
}

impl Script for Scarce {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.peers = (0..SENDERS).map(|_| Peer::connect(address)).collect();
    }

    fn on_received(&mut self, io: &mut StageIo, id: ConnId, bytes: &mut [u8]) {
        let sender = io.conn(id).expect("open").session;
        assert!(!self.is_paused[sender]);
        let first = self.received[sender];
        for (n, received) in (first..).zip(bytes.iter()) {
            assert_eq!(*received, byte(sender, n), "of {sender} at {n}");
        }
        self.received[sender] += bytes.len();
        // A handler may write to them.
        bytes.fill(0);
        if (first + sender).is_multiple_of(5) {
            self.is_paused[sender] = true;
            io.set_reading(id, false);
            io.set_timer(id, 1, Duration::ZERO);
        }
    }

    fn on_timer(&mut self, io: &mut StageIo, id: ConnId, _: u8) {
        let sender = io.conn(id).expect("open").session;
        self.is_paused[sender] = false;
        io.set_reading(id, true);
    }

    fn between(&mut self, _: &mut StageIo, _: u64) -> ControlFlow<()> {
        for sender in 0..SENDERS {
            let sent = self.sent[sender];
            let bytes: Vec<u8> = (sent..ALL).map(|n| byte(sender, n)).collect();
            if !bytes.is_empty() {
                self.sent[sender] += self.peers[sender].send(&bytes);
            }
        }
        end_if(self.received.iter().all(|received| *received == ALL))
    }
}

#[test]
fn bytes_are_whole_and_in_order_while_all_buffers_are_in_use() {
    if !is_permitted(DriverKind::Uring) {
        return;
    }
    let name = "rings::bytes_are_whole_and_in_order_while_all_buffers_are_in_use";
    in_own_process(name, || {
        for setting in [several_rings(), Setting::new(DriverKind::Uring)] {
            let setting = Setting {
                turn_budget: 200_000,
                ..setting
            };
            let scarce = Scarce {
                peers: Vec::new(),
                sent: vec![0; SENDERS],
                received: vec![0; SENDERS],
                is_paused: vec![false; SENDERS],
            };
            play(setting, scarce);
        }
    });
}
