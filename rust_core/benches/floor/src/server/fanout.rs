//! Every message of the publisher to every subscriber.
//!
//! A message is passed on when it is complete, as a broker would. Only the hub has the publisher;
//! other threads get the messages by mail.

use crate::driver::Pattern;
use crate::driver::output::Output;
use crate::setup::HUB;
use crate::split::split;

pub(super) struct Fanout {
    thread: u32,
    threads: u32,
    message_bytes: usize,
    partial: Vec<u8>,
}

impl Fanout {
    pub(super) fn new(thread: u32, threads: u32, message_bytes: usize) -> Self {
        Self {
            thread,
            threads,
            message_bytes,
            partial: Vec::new(),
        }
    }
}

impl Pattern for Fanout {
    fn on_client(&mut self, client: u32, _: &[u8], out: &mut Output) {
        out.faults
            .push(format!("subscriber {client} has sent something"));
    }

    fn on_trunk(&mut self, _: usize, bytes: &[u8], out: &mut Output) {
        split(&mut self.partial, self.message_bytes, bytes, |message| {
            out.send_everyone(message);
            for thread in (0..self.threads).filter(|thread| *thread != self.thread) {
                out.mail(thread, &[message]);
            }
        });
    }

    fn on_mail(&mut self, mail: &[u8], out: &mut Output) {
        debug_assert_ne!(self.thread, HUB);
        out.send_everyone(mail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::output::Turn;

    #[test]
    fn complete_messages_reach_every_thread() {
        let (mut fanout, mut out) = (Fanout::new(HUB, 3, 4), Output::new(3));
        for piece in [&b"ab"[..], b"cdAB", b"CDx"] {
            fanout.on_trunk(0, piece, &mut out);
        }
        let turn = out.take_turn(Turn::default());
        assert_eq!(turn.everyone, b"abcdABCD");
        assert_eq!(out.mail, [&b""[..], b"abcdABCD", b"abcdABCD"]);
        Fanout::new(1, 3, 4).on_mail(b"abcd", &mut out);
        assert_eq!(out.take_turn(turn).everyone, b"abcd");
    }
}
