//! Users that ask, providers that answer: whenever a reply has come, a random user asks next.

use std::sync::atomic::Ordering;

use crate::board::Board;
use crate::capacity::share;
use crate::driver::Pattern;
use crate::driver::output::Output;
use crate::options::Exchange;
use crate::rng::Rng;
use crate::setup::{HEADER, HUB, Setup};
use crate::split::split;

pub(super) struct Relay {
    board: &'static Board,
    request: Vec<u8>,
    reply: Vec<u8>,
    /// Numbers of the users.
    users: Vec<u32>,
    /// Bytes that each user is still to receive, by number.
    due: Vec<u64>,
    rng: Rng,
    /// Requests under way from the beginning.
    outstanding: u32,
    draining: bool,
    asked: u64,
    answered: u64,
    /// Incomplete requests, by provider.
    partial: Vec<Vec<u8>>,
}

impl Relay {
    /// For thread `index`, whose users are `users`.
    pub(super) fn new(
        setup: &Setup,
        exchange: Exchange,
        index: u32,
        threads: u32,
        users: Vec<u32>,
    ) -> Self {
        let providers = if index == HUB { exchange.providers } else { 0 };
        let places = users.iter().max().map_or(0, |last| *last as usize + 1);
        Self {
            board: setup.board,
            request: vec![b'q'; exchange.request_bytes],
            reply: vec![b'r'; exchange.reply_bytes],
            due: vec![0; places],
            rng: Rng::new(u64::from(index)),
            outstanding: share(setup.options.outstanding, threads, index),
            draining: false,
            asked: 0,
            answered: 0,
            partial: vec![Vec::new(); providers as usize],
            users,
        }
    }

    fn ask(&mut self, out: &mut Output) {
        let user = self.users[self.rng.below(self.users.len() as u32) as usize];
        self.due[user as usize] += self.reply.len() as u64;
        self.asked += 1;
        out.send_client(user, &self.request);
    }
}

impl Pattern for Relay {
    fn start(&mut self, out: &mut Output) {
        if self.users.is_empty() {
            return;
        }
        for _ in 0..self.outstanding {
            self.ask(out);
        }
    }

    fn on_client(&mut self, user: u32, bytes: &[u8], out: &mut Output) {
        let reply = self.reply.len() as u64;
        let due = &mut self.due[user as usize];
        let before = due.div_ceil(reply);
        let Some(left) = due.checked_sub(bytes.len() as u64) else {
            let (n, due) = (bytes.len(), *due);
            out.faults.push(format!(
                "user {user} received {n} bytes when {due} were due"
            ));
            return;
        };
        *due = left;
        let replies = before - left.div_ceil(reply);
        self.answered += replies;
        if !self.draining {
            (0..replies).for_each(|_| self.ask(out));
        }
    }

    fn on_trunk(&mut self, provider: usize, bytes: &[u8], out: &mut Output) {
        let (reply, size) = (&self.reply, HEADER + self.request.len());
        split(&mut self.partial[provider], size, bytes, |record| {
            out.send_trunk(provider, &[&record[..HEADER], reply]);
        });
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn end_turn(&mut self, _: &mut Output) {
        if self.asked == 0 && self.answered == 0 {
            return;
        }
        let load = &self.board.load;
        // In this order, so that requests under way never seem fewer than they are.
        let asked = std::mem::take(&mut self.asked);
        load.expected.fetch_add(asked, Ordering::Release);
        let answered = std::mem::take(&mut self.answered);
        load.arrived.fetch_add(answered, Ordering::Release);
    }
}
