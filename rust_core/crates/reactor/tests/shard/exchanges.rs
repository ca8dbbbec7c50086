//! What a peer sees of a shard in its own thread, and what the handler is told.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use subjectbus_reactor::{Closed, DriverKind, Origin};

use crate::echo::{BIG, BIG_AT_BOTH_ENDS, END, Mail, PATIENCE, Running, Told, chunks};
use crate::is_permitted;

pub(crate) fn echoes_and_tells_the_peers_end(driver: DriverKind) {
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

pub(crate) fn the_last_bytes_of_a_half_closed_peer_are_answered(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stream = running.connect();
    stream.write_all(b"bye").expect("write");
    stream.shutdown(Shutdown::Write).expect("shutdown");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("read");
    assert_eq!(answer, b"bye");
}

pub(crate) fn close_sends_what_is_pending_although_the_peer_still_sends(driver: DriverKind) {
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

pub(crate) fn close_sends_what_the_socket_does_not_take_at_once(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stream = running.connect();
    stream.write_all(b"Close").expect("write");
    running.expect(&Told::Received(5));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an orderly end");
    assert!(answer == chunks(&BIG_AT_BOTH_ENDS), "{}", answer.len());
    drop(stream);
    running.expect(&Told::Closed(Closed::Local, 0));
}

pub(crate) fn what_the_socket_takes_is_sent_before_the_shard_ends(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stream = running.connect();
    stream.write_all(b"end").expect("write");
    running.expect(&Told::Received(3));
    running.expect(&Told::Closed(Closed::Shutdown, 0));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an orderly end");
    assert!(answer == chunks(&[4096, 4096]), "{} bytes", answer.len());
}

pub(crate) fn the_last_write_of_the_shard_waits_for_the_one_before(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut streams: [TcpStream; 8] = std::array::from_fn(|_| running.connect());
    streams[0].write_all(b"End").expect("write");
    running.expect(&Told::Received(3));
    // The first one's write has been cut short now. The socket takes more as it is read, while the
    // others are written to; but that would be the second chunk, with the first one's end missing.
    streams[1].peek(&mut [0]).expect("its own write");
    let mut answer = Vec::new();
    streams[0].read_to_end(&mut answer).expect("an orderly end");
    let all = chunks(&END);
    assert!(all.starts_with(&answer), "a gap, or out of order");
    let unsent = match answer.len() {
        len if len == all.len() => 0,
        len if len >= END[0] => 1,
        _ => 2,
    };
    let closed = running.told.iter().filter(|told| *told != Told::Blocked);
    let mut closed: Vec<u64> = closed
        .map(|told| match told {
            Told::Closed(Closed::Shutdown, unsent) => unsent,
            other => panic!("{other:?}"),
        })
        .collect();
    closed.sort_unstable();
    // The others are not read.
    assert_eq!(closed, [unsent, 2, 2, 2, 2, 2, 2, 2]);
}

pub(crate) fn a_peer_that_never_reads_blocks_only_itself(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stuck = running.connect();
    stuck.write_all(b"Big").expect("write");
    running.expect(&Told::Received(3));
    running.expect(&Told::Blocked);
    let mut other = running.connect();
    other.write_all(b"still there?").expect("write");
    other.read_exact(&mut [0; 12]).expect("read");
    running.expect(&Told::Received(12));
    let mut backlog = chunks(&BIG);
    stuck.read_exact(&mut backlog).expect("all of it");
    assert!(backlog == chunks(&BIG), "in order");
    stuck.write_all(b"x").expect("write");
    stuck.read_exact(&mut [0]).expect("read");
    running.expect(&Told::Received(1));
}

pub(crate) fn abort_tells_how_much_was_not_sent(driver: DriverKind) {
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

pub(crate) fn timers_fire_and_a_paused_connection_keeps_its_bytes(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut stream = running.connect();
    stream.write_all(b"T").expect("write");
    running.expect(&Told::Received(1));
    running.expect(&Told::Timer(7));
    stream.read_exact(&mut [0]).expect("read");
    stream.write_all(b"P").expect("write");
    running.expect(&Told::Received(1));
    stream.write_all(b"kept").expect("write");
    running.expect(&Told::Timer(8));
    running.expect(&Told::Received(4));
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("read");
    assert_eq!(&answer, b"tkept");
}

pub(crate) fn what_arrived_before_a_pause_took_effect_is_handed_out_after_it(driver: DriverKind) {
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

pub(crate) fn connects_from_the_given_address_and_tells_refusals(driver: DriverKind) {
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

pub(crate) fn mail_goes_round_the_shards_and_none_is_lost_at_the_end(driver: DriverKind) {
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

pub(crate) fn stopping_closes_connections_and_listeners(driver: DriverKind) {
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

pub(crate) fn a_paused_listener_keeps_its_callers_waiting(driver: DriverKind) {
    let running = Running::start(driver, 1);
    let mut first = running.connect();
    first.write_all(b"Wait").expect("write");
    running.expect(&Told::Received(4));
    let mut waiting: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(running.address).expect("the kernel accepts"))
        .collect();
    let _other = TcpStream::connect(running.other).expect("connect");
    // The shard checks that none is accepted before the pause is over.
    let told: Vec<Told> = (0..4)
        .map(|_| running.told.recv_timeout(PATIENCE).expect("told"))
        .collect();
    let count = |n| {
        told.iter()
            .filter(|told| **told == Told::Open(Origin::Accepted(n)))
            .count()
    };
    assert_eq!((count(0), count(1)), (3, 1), "{told:?}");
    waiting[2].write_all(b"hello").expect("write");
    waiting[2].read_exact(&mut [0; 5]).expect("served");
}

pub(crate) fn a_panic_gives_the_mail_back_and_refuses_more(driver: DriverKind) {
    let mut running = Running::start(driver, 2);
    let panicked = running.threads.remove(0);
    let mut batch = vec![Mail::Panic, Mail::Relay(1, "behind it".into())];
    running.mailboxes.post_batch(0, &mut batch);
    running.expect(&Told::Undelivered("behind it".into()));
    running.expect(&Told::Undelivered("not posted".into()));
    let panic = panicked.join().expect_err("the panic goes on");
    assert_eq!(panic.downcast_ref(), Some(&"as the test asks for"));
    assert!(running.mailboxes.post(0, Mail::Stop).is_some(), "refused");
    // The other shard goes on, and what it posts to the ended one comes back.
    let posted = running.mailboxes.post(1, Mail::Relay(1, "returned".into()));
    assert!(posted.is_none());
    running.expect(&Told::Undelivered("returned".into()));
    running.mailboxes.post(1, Mail::Stop);
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
