//! Mail that was posted before a write is in front of everything that the write causes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::mpsc::{SyncSender, sync_channel};

use subjectbus_reactor::{ConnId, DriverKind, Mailboxes};

use crate::peer::Peer;
use crate::stage::{Script, Setting, StageIo, append, end_if, id_of, play};

/// Mail is posted and bytes are sent while the shard hands out what has arrived before both.
struct Between {
    mailboxes: Mailboxes<u32>,
    peers: Vec<Peer>,
    has_mail: bool,
    caused: Option<u64>,
    is_told_apart: bool,
}

impl Script for Between {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.peers = (0..2).map(|_| Peer::connect(address)).collect();
    }

    fn on_received(&mut self, io: &mut StageIo, id: ConnId, bytes: &mut [u8]) {
        let number = io.conn(id).expect("open").session;
        if self.caused.is_none() && !self.is_told_apart && bytes[0] == b'f' {
            // Both were readable when the turn began; the one that is left is handed out next.
            if self.mailboxes.post(0, 1).is_none() {
                self.peers[1 - number].send(b"caused");
            }
            self.is_told_apart = true;
        }
        if bytes.ends_with(b"caused") {
            let mark = io.mail_mark();
            assert!(self.has_mail || !io.has_passed(mark), "mail is overtaken");
            self.caused = Some(mark);
        }
    }

    fn on_mail(&mut self, _: &mut StageIo, _: u32) {
        self.has_mail = true;
    }

    fn between(&mut self, io: &mut StageIo, turn: u64) -> ControlFlow<()> {
        io.wake_at(io.now());
        if io.connections.len() == 2 && turn == 10 {
            self.peers.iter().for_each(|peer| {
                assert_eq!(peer.send(b"first"), 5);
            });
        }
        if let Some(mark) = self.caused
            && io.has_passed(mark)
        {
            assert!(self.has_mail);
            return Break(());
        }
        assert!(turn < 1000, "the bytes do not come");
        Continue(())
    }
}

pub(crate) fn mail_is_in_front_of_what_is_sent_after_it(driver: DriverKind) {
    let setting = Setting::new(driver);
    let between = Between {
        mailboxes: setting.mailboxes.clone(),
        peers: Vec::new(),
        has_mail: false,
        caused: None,
        is_told_apart: false,
    };
    play(setting, between);
}

const ROUNDS: u32 = 300;

/// Posts mail to the other shard and answers.
struct Writer {
    address: SyncSender<SocketAddr>,
    round: u32,
}

impl Script for Writer {
    fn begin(&mut self, _: &mut StageIo, address: SocketAddr) {
        self.address.send(address).expect("the test waits");
    }

    fn on_received(&mut self, io: &mut StageIo, id: ConnId, _: &mut [u8]) {
        self.round += 1;
        io.mail(1, self.round);
        append(io, id, b"!");
    }

    fn between(&mut self, _: &mut StageIo, _: u64) -> ControlFlow<()> {
        end_if(self.round == ROUNDS)
    }
}

/// Answers each byte when the mail has been handed out that was there then, and has more mail than a turn
/// hands out.
struct Reader {
    address: SyncSender<SocketAddr>,
    /// The last round that mail has told of, and that a peer has.
    told: u32,
    asked: u32,
    mark: Option<u64>,
    waited: u32,
}

/// Mail of the shard to itself.
const NOISE: u32 = u32::MAX;

impl Script for Reader {
    fn begin(&mut self, io: &mut StageIo, address: SocketAddr) {
        self.address.send(address).expect("the test waits");
        (0..100).for_each(|_| io.mail(1, NOISE));
    }

    fn on_received(&mut self, io: &mut StageIo, _: ConnId, _: &mut [u8]) {
        self.asked += 1;
        self.mark = Some(io.mail_mark());
    }

    fn on_mail(&mut self, io: &mut StageIo, mail: u32) {
        if mail == NOISE {
            io.spend(5000);
            io.mail(1, NOISE);
        } else {
            assert_eq!(mail, self.told + 1, "in its order");
            self.told = mail;
        }
    }

    fn on_turn_end(&mut self, io: &mut StageIo) {
        let Some(mark) = self.mark else { return };
        if io.has_passed(mark) {
            assert_eq!(self.told, self.asked, "mail is overtaken");
            self.mark = None;
            let id = id_of(io, 0);
            append(io, id, b"!");
        } else {
            self.waited += 1;
        }
    }

    fn between(&mut self, _: &mut StageIo, _: u64) -> ControlFlow<()> {
        end_if(self.asked == ROUNDS && self.mark.is_none())
    }
}

pub(crate) fn what_an_answer_causes_on_another_shard_comes_after_the_mail(driver: DriverKind) {
    let mailboxes = Mailboxes::new(2).expect("mailboxes");
    let setting = |index| Setting {
        index,
        mailboxes: mailboxes.clone(),
        ..Setting::with_short_turns(driver)
    };
    let (tell, addresses) = sync_channel(1);
    let (setting_of_writer, setting_of_reader) = (setting(0), setting(1));
    std::thread::scope(|threads| {
        let address = tell.clone();
        threads.spawn(move || play(setting_of_writer, Writer { address, round: 0 }));
        let connect = || TcpStream::connect(addresses.recv().expect("listening")).expect("connect");
        let mut writer = connect();
        let reader = Reader {
            address: tell,
            told: 0,
            asked: 0,
            mark: None,
            waited: 0,
        };
        let reading = threads.spawn(move || play(setting_of_reader, reader));
        let mut reader = connect();
        for _ in 0..ROUNDS {
            for stream in [&mut writer, &mut reader] {
                stream.write_all(b"?").expect("write");
                stream.read_exact(&mut [0]).expect("the answer");
            }
        }
        let reader = reading.join().expect("no panic");
        assert!(reader.waited > 0, "the mail was always there first");
    });
}
