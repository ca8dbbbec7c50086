//! A shard that runs in the test's own thread, with a script that acts between two turns and holds the
//! peers' ends. So it is determined what has arrived before which turn, and turns can be counted.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subjectbus_reactor::{
    Closed, Conn, ConnId, DriverKind, Handler, Io, Mailboxes, Origin, Reservation, Shard, ShardIo,
    ShardSpec, work,
};

/// The connections and commands of a script's shard.
pub(crate) type StageIo = ShardIo<usize, u32>;

/// The timer kind that ends a script which does not end by itself.
const GUARD: u8 = 200;

/// What a test does, and what it is told. All calls come from within the shard's turns.
pub(crate) trait Script: Sized {
    /// The first turn is about to begin.
    fn begin(&mut self, _: &mut StageIo, _: SocketAddr) {}

    fn on_open(&mut self, _: &mut StageIo, _: ConnId, _: Origin) {}

    fn on_received(&mut self, _: &mut StageIo, _: ConnId, _: &mut [u8]) {}

    fn on_blocked(&mut self, _: &mut StageIo, _: ConnId) {}

    fn before_write(&mut self, _: &mut Conn<usize>) {}

    fn on_closed(&mut self, _: &mut StageIo, _number: usize, _: Closed, _unsent: u64) {}

    fn on_timer(&mut self, _: &mut StageIo, _: ConnId, _: u8) {}

    fn on_mail(&mut self, _: &mut StageIo, _: u32) {}

    fn on_turn_end(&mut self, _: &mut StageIo) {}

    /// Turn number `turn` is over. Break to end the shard.
    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()>;
}

/// The handler of a script. A connection's session is its number: of those accepted, in their order.
pub(crate) struct Stage<S> {
    script: S,
    turn: u64,
    accepted: usize,
    has_ended: bool,
}

/// The session of a connection that the script has asked for.
pub(crate) const OWN: usize = usize::MAX;

impl<S: Script> Handler for Stage<S> {
    type Session = usize;
    type Mail = u32;

    fn accept(&mut self, _: &mut Io<Self>, _: usize, _: SocketAddr) -> Option<usize> {
        self.accepted += 1;
        Some(self.accepted - 1)
    }

    fn on_open(&mut self, io: &mut Io<Self>, id: ConnId, origin: Origin) {
        self.script.on_open(io, id, origin);
    }

    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]) {
        assert!(!bytes.is_empty());
        self.script.on_received(io, id, bytes);
    }

    fn on_blocked(&mut self, io: &mut Io<Self>, id: ConnId) {
        self.script.on_blocked(io, id);
    }

    fn before_write(&mut self, conn: &mut Conn<usize>) {
        self.script.before_write(conn);
    }

    fn on_closed(&mut self, io: &mut Io<Self>, _: ConnId, number: usize, why: Closed, unsent: u64) {
        self.script.on_closed(io, number, why, unsent);
    }

    fn on_timer(&mut self, io: &mut Io<Self>, id: ConnId, kind: u8) {
        assert_ne!(kind, GUARD, "the script did not end");
        self.script.on_timer(io, id, kind);
    }

    fn on_mail(&mut self, io: &mut Io<Self>, mail: u32) {
        self.script.on_mail(io, mail);
    }

    fn on_undelivered(&mut self, _: u32) {}

    fn on_turn_end(&mut self, io: &mut Io<Self>) {
        self.script.on_turn_end(io);
    }

    fn on_written(&mut self, io: &mut Io<Self>) {
        self.turn += 1;
        if !self.has_ended && self.script.between(io, self.turn).is_break() {
            self.has_ended = true;
            io.stop();
        }
    }
}

/// What a script's shard is like.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) driver: DriverKind,
    /// Connections that it has room for.
    pub(crate) connections: usize,
    pub(crate) turn_budget: usize,
    pub(crate) mailboxes: Mailboxes<u32>,
    pub(crate) index: usize,
    /// The limit of open files while the shard is opened, which is the size of a ring's table.
    pub(crate) table: Option<u64>,
    /// Whether a timer ends the script that does not end by itself. Without one a shard may sleep for ever.
    pub(crate) is_guarded: bool,
}

impl Setting {
    pub(crate) fn new(driver: DriverKind) -> Self {
        Self {
            driver,
            connections: 4000,
            turn_budget: work::TURN,
            mailboxes: Mailboxes::new(1).expect("mailboxes"),
            index: 0,
            table: None,
            is_guarded: true,
        }
    }

    /// A shard whose turns are short, so that a small herd takes many of them.
    pub(crate) fn with_short_turns(driver: DriverKind) -> Self {
        Self {
            turn_budget: SHORT_TURN,
            ..Self::new(driver)
        }
    }
}

pub(crate) const SHORT_TURN: usize = 800_000;

/// Run a script on a shard of its own until it stops the shard.
pub(crate) fn play<S: Script>(setting: Setting, script: S) -> S {
    let reservation = Reservation::new(SocketAddr::from(([127, 0, 0, 1], 0))).expect("port");
    let spec = ShardSpec {
        index: setting.index,
        mailboxes: setting.mailboxes,
        listeners: vec![reservation.address()],
        driver: setting.driver,
        connections: setting.connections,
        own_table: false,
        turn_budget: setting.turn_budget,
    };
    let mut shard = match setting.table {
        None => Shard::open(spec),
        Some(limit) => with_limit(limit, || Shard::open(spec)),
    }
    .expect("shard");
    let mut stage = Stage {
        script,
        turn: 0,
        accepted: 0,
        has_ended: false,
    };
    if setting.is_guarded {
        let patience = Duration::from_secs(120);
        shard.io().set_timer(ConnId::NONE, GUARD, patience);
    }
    stage.script.begin(shard.io(), reservation.address());
    shard.run(&mut stage).expect("run");
    stage.script
}

fn with_limit<T>(limit: u64, open: impl FnOnce() -> T) -> T {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let current = Some(limit);
    setrlimit(Resource::Nofile, Rlimit { current, ..before }).expect("limit");
    let opened = open();
    setrlimit(Resource::Nofile, before).expect("limit");
    opened
}

/// Go on, or end the shard.
pub(crate) fn end_if(is_over: bool) -> ControlFlow<()> {
    match is_over {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// Append bytes to a connection's output, as one item.
pub(crate) fn append(io: &mut StageIo, id: ConnId, bytes: &[u8]) {
    let conn = io.writer(id).expect("open");
    conn.output.tail().extend_from_slice(bytes);
    conn.output.add_items(1);
}

/// The id of the connection with this number.
pub(crate) fn id_of(io: &StageIo, number: usize) -> ConnId {
    let mut ids = io.connections.ids();
    let has_number = |id: &ConnId| io.conn(*id).is_some_and(|conn| conn.session == number);
    ids.find(has_number).expect("open")
}

/// Keep other tests with thousands of descriptors waiting.
pub(crate) fn many_descriptors() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Run a test in a process of its own, because it changes what holds for the whole process.
pub(crate) fn in_own_process(test: &str, body: impl FnOnce()) {
    const MARK: &str = "SUBJECTBUS_TEST_IN_OWN_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let output = std::process::Command::new(std::env::current_exe().expect("path"))
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .output()
        .expect("started");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(out.contains("1 passed"), "{out}\n{err}");
}
