//! Requests of users to providers in turn, replies of providers to the users who asked.
//!
//! To a provider and back each record is preceded by a header: the thread that has the user, and the
//! user's number there. Only the hub has providers; other threads' records go through its mailbox.

use std::collections::HashMap;

use crate::driver::Pattern;
use crate::driver::output::Output;
use crate::options::Exchange;
use crate::setup::{HEADER, HUB};
use crate::split::split;

pub(super) struct Relay {
    thread: u32,
    threads: u32,
    request_bytes: usize,
    reply_bytes: usize,
    /// Incomplete requests, by client. Rare.
    partial: HashMap<u32, Vec<u8>>,
    /// Incomplete replies, by provider.
    partial_replies: Vec<Vec<u8>>,
    next_provider: usize,
}

impl Relay {
    pub(super) fn new(thread: u32, threads: u32, exchange: Exchange) -> Self {
        Self {
            thread,
            threads,
            request_bytes: exchange.request_bytes,
            reply_bytes: exchange.reply_bytes,
            partial: HashMap::new(),
            partial_replies: vec![Vec::new(); exchange.providers as usize],
            next_provider: 0,
        }
    }

    /// Hands a request with its header to the next provider.
    fn provide(&mut self, parts: &[&[u8]], out: &mut Output) {
        out.send_trunk(self.next_provider, parts);
        self.next_provider = (self.next_provider + 1) % self.partial_replies.len();
    }
}

impl Pattern for Relay {
    fn on_client(&mut self, client: u32, bytes: &[u8], out: &mut Output) {
        let header = header(self.thread, client);
        let mut rest = self.partial.remove(&client).unwrap_or_default();
        split(&mut rest, self.request_bytes, bytes, |request| {
            if self.thread == HUB {
                self.provide(&[&header, request], out);
            } else {
                out.mail(HUB, &[&header, request]);
            }
        });
        if !rest.is_empty() {
            self.partial.insert(client, rest);
        }
    }

    fn on_trunk(&mut self, trunk: usize, bytes: &[u8], out: &mut Output) {
        let Some(rest) = self.partial_replies.get_mut(trunk) else {
            out.faults.push(format!("there are only {trunk} providers"));
            return;
        };
        split(rest, HEADER + self.reply_bytes, bytes, |record| {
            let (header, reply) = record.split_at(HEADER);
            match parse(header) {
                (thread, client) if thread == self.thread => out.send_client(client, reply),
                (thread, _) if thread < self.threads => out.mail(thread, &[record]),
                (thread, _) => out.faults.push(format!("a reply for thread {thread}")),
            }
        });
    }

    fn on_mail(&mut self, mail: &[u8], out: &mut Output) {
        if self.thread == HUB {
            for record in mail.chunks_exact(HEADER + self.request_bytes) {
                self.provide(&[record], out);
            }
        } else {
            for record in mail.chunks_exact(HEADER + self.reply_bytes) {
                let (header, reply) = record.split_at(HEADER);
                out.send_client(parse(header).1, reply);
            }
        }
    }

    fn on_closed(&mut self, client: u32) {
        self.partial.remove(&client);
    }
}

fn header(thread: u32, client: u32) -> [u8; HEADER] {
    (u64::from(thread) << 32 | u64::from(client)).to_le_bytes()
}

/// Thread and client.
fn parse(header: &[u8]) -> (u32, u32) {
    let (client, thread) = header.split_at(HEADER / 2);
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u32::from(*byte))
    };
    (number(thread), number(client))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::output::{Queue, Turn};

    fn output(threads: u32) -> Output {
        let mut out = Output::new(threads);
        out.trunks = vec![Queue::default(), Queue::default()];
        out
    }

    fn relay_on(thread: u32, threads: u32) -> Relay {
        let exchange = Exchange {
            request_bytes: 4,
            reply_bytes: 3,
            providers: 2,
        };
        Relay::new(thread, threads, exchange)
    }

    fn sent(out: &mut Output) -> Vec<(u32, Vec<u8>)> {
        let turn = out.take_turn(Turn::default());
        let sends = turn.sends.iter();
        sends
            .map(|send| (send.client, turn.bytes(send).to_vec()))
            .collect()
    }

    #[test]
    fn headers_come_back_as_they_went() {
        for (thread, client) in [(0, 0), (1, 2), (u32::MAX, 1), (7, u32::MAX)] {
            assert_eq!(parse(&header(thread, client)), (thread, client));
        }
    }

    #[test]
    fn requests_in_pieces_go_to_the_providers_in_turn() {
        let (mut relay, mut out) = (relay_on(HUB, 1), output(1));
        relay.on_client(9, b"ab", &mut out);
        relay.on_client(8, b"ef", &mut out);
        relay.on_client(9, b"cdABCDxy", &mut out);
        let to = |client: u32, request: &[u8]| [&header(HUB, client)[..], request].concat();
        assert_eq!(out.trunks[0].pending(), to(9, b"abcd"));
        assert_eq!(out.trunks[1].pending(), to(9, b"ABCD"));
        relay.on_closed(8);
        relay.on_client(8, b"1234", &mut out);
        assert!(out.trunks[0].pending().ends_with(b"1234"));
    }

    #[test]
    fn replies_go_to_the_user_who_asked() {
        let (mut relay, mut out) = (relay_on(HUB, 2), output(2));
        let here = [&header(HUB, 9)[..], b"rep"].concat();
        let there = [&header(1, 5)[..], b"REP"].concat();
        let nowhere = [&header(2, 5)[..], b"xxx"].concat();
        let all = [here, there.clone(), nowhere].concat();
        for piece in all.chunks(5) {
            relay.on_trunk(1, piece, &mut out);
        }
        assert_eq!(sent(&mut out), [(9, b"rep".to_vec())]);
        assert_eq!(out.mail, [vec![], there.clone()]);
        assert_eq!(out.faults, ["a reply for thread 2"]);

        let mut other = relay_on(1, 2);
        other.on_mail(&there, &mut out);
        assert_eq!(sent(&mut out), [(5, b"REP".to_vec())]);
    }

    #[test]
    fn other_threads_ask_through_the_hub() {
        let (mut other, mut out) = (relay_on(1, 2), output(2));
        other.on_client(5, b"abcd", &mut out);
        let mail = std::mem::take(&mut out.mail[HUB as usize]);
        relay_on(HUB, 2).on_mail(&mail, &mut out);
        let record = [&header(1, 5)[..], b"abcd"].concat();
        assert_eq!(out.trunks[0].pending(), record);
    }
}
