//! A shard's description of its part of a page: the rows of the candidates that are on it.

use std::time::Instant;

use reactor::ShardIo;
use telemetry::time::Clock;

use super::connz;
use super::page::Question;
use super::rows::Unfinished;
use super::selection::Candidate;
use super::subsz;
use super::sweep::Slice;
use crate::session::Session;

/// Work of describing a subscription, besides its bytes.
const SUBSCRIPTION: usize = 500;

/// The rows of one shard, as far as they are written.
#[derive(Default)]
pub(super) struct Description {
    /// Candidates to be described with the numbers of their rows, the next one last.
    left: Vec<(usize, Candidate)>,
    /// Bytes that the lists of subjects of these rows may have, all together.
    room: usize,
    /// The row of the next candidate, if it is begun.
    row: Option<Unfinished>,
    /// Rows that are written, with their numbers.
    pub(super) rows: Vec<(usize, String)>,
}

impl Description {
    /// Begin to describe these candidates, whose lists of subjects may have `room` bytes.
    pub(super) fn new(mut candidates: Vec<(usize, Candidate)>, room: usize) -> Self {
        candidates.reverse();
        Self {
            left: candidates,
            room,
            ..Self::default()
        }
    }

    /// Write the next rows; return whether these were the last.
    pub(super) fn go_on<M>(
        &mut self,
        io: &mut ShardIo<Session, M>,
        slice: &mut Slice,
        question: &Question,
        clock: &Clock,
    ) -> bool {
        while let Some((row, candidate)) = self.left.last() {
            if slice.is_over(io) {
                return false;
            }
            let (row, candidate, now) = (*row, *candidate, io.now());
            let (work, text) = match question {
                Question::Connz(query) => self.describe(io, query, &candidate, clock, now),
                Question::Subsz(_) => describe_subscription(io, &candidate),
                Question::Subjects { .. } => (0, Row::Gone),
            };
            slice.spend(io, work);
            match text {
                Row::Unfinished => continue,
                Row::Finished(text) => self.rows.push((row, text)),
                Row::Gone => {}
            }
            self.row = None;
            self.left.pop();
        }
        true
    }

    /// Begin the row of a connection, or go on with it; return the work of it, too.
    fn describe<M>(
        &mut self,
        io: &ShardIo<Session, M>,
        query: &connz::Query,
        candidate: &Candidate,
        clock: &Clock,
        now: Instant,
    ) -> (usize, Row) {
        let Some(conn) = io.conn(candidate.conn) else {
            return (0, Row::Gone);
        };
        let Some(row) = &mut self.row else {
            // Every list may take as much as the others, and what those before it have left.
            let room = query.lists_subjects.then(|| self.room / self.left.len());
            let row = Unfinished::new(conn, candidate, room, clock, now);
            let work = row.begun();
            self.row = Some(row);
            return (work, Row::Unfinished);
        };
        if let Some(work) = row.list_more(&conn.session) {
            return (work, Row::Unfinished);
        }
        let row = self.row.take().map(Unfinished::finish);
        let (text, used) = row.unwrap_or_default();
        self.room -= used;
        (0, Row::Finished(text))
    }
}

/// The state of a row.
enum Row {
    Unfinished,
    Finished(String),
    /// The connection or the subscription is not there any more.
    Gone,
}

fn describe_subscription<M>(io: &ShardIo<Session, M>, candidate: &Candidate) -> (usize, Row) {
    let places = candidate.index..candidate.index + 1;
    let conn = io.conn(candidate.conn);
    let found = conn.and_then(|conn| conn.session.subscriptions.iter_in(places).next());
    match found {
        Some((_, one)) => {
            let text = subsz::row(candidate.cid, one);
            (SUBSCRIPTION + text.len(), Row::Finished(text))
        }
        None => (SUBSCRIPTION, Row::Gone),
    }
}
