//! Questions to all shards about their connections.
//!
//! The monitor's shard sends each shard its part by mail. A shard works on it for a slice of a turn and
//! mails it to itself until it is done, so that a million connections keep nobody waiting; then the part
//! goes back. A page is found in two rounds: the shards name the candidates that come first, and once these
//! are merged, those on the page are described by their shards.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use reactor::ConnId;
use serde_json::Value;
use telemetry::space_saving::Frequent;
use telemetry::time::{Clock, rfc3339};

use super::hot;
use super::selection::{Candidate, Selection};
use super::{connz, subsz};
use crate::mail::Mail;
use crate::metrics::totals::Totals;
use crate::shard::{Io, Shard};

/// Connections and subscriptions that a shard looks at in one turn.
const SLICE: u32 = 4096;
/// What looking at one of them counts for in a turn's budget, in bytes.
const WEIGHT: usize = 128;
/// Surveys that are under way at once; the others wait for their turn.
const MAX_AT_ONCE: usize = 4;
/// How long one may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked of all shards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Connz(connz::Query),
    Subsz(subsz::Query),
    /// The hottest subjects, at most `limit`.
    Subjects {
        limit: usize,
    },
}

impl Question {
    /// What comes before the page, and what it has at most; nothing where that is beyond all there is.
    fn window(&self, totals: &Totals) -> (usize, usize) {
        let (offset, limit, all) = match self {
            Self::Connz(query) => (query.offset, query.limit, totals.connections()),
            Self::Subsz(query) if query.lists => {
                (query.offset, query.limit, totals.subscriptions())
            }
            Self::Subsz(_) | Self::Subjects { .. } => (0, 0, 0),
        };
        if (offset as u64) < all {
            (offset, limit)
        } else {
            (0, 0)
        }
    }

    /// Whether connections have to be looked through, and not only counted as they are already.
    fn is_about_each(&self) -> bool {
        match self {
            Self::Connz(_) => true,
            Self::Subsz(query) => query.lists || query.test.is_some(),
            Self::Subjects { .. } => false,
        }
    }
}

/// A question that was asked.
struct Asked {
    question: Arc<Question>,
    /// See [`Question::window`].
    window: (usize, usize),
    /// Nobody waits for the answer any more: no shard needs to work on it.
    is_abandoned: AtomicBool,
}

impl Asked {
    /// How each shard begins.
    fn first_task(&self) -> Task {
        match &*self.question {
            Question::Connz(_) | Question::Subsz(_) => Task::Select(self.sweep()),
            Question::Subjects { .. } => Task::Heat(Frequent::default()),
        }
    }

    fn sweep(&self) -> Sweep {
        let (offset, limit) = self.window;
        let keep = if limit == 0 { 0 } else { offset + limit };
        Sweep {
            found: Selection::new(keep),
            ..Sweep::default()
        }
    }
}

/// A shard's part of a survey, on its way.
pub(crate) struct Survey {
    /// Which survey.
    number: u32,
    asker: u16,
    asked: Arc<Asked>,
    task: Task,
}

/// What a shard is to do; with what it has found.
enum Task {
    /// Look through all connections.
    Select(Sweep),
    /// Describe these, each with its row on the page.
    Describe(Vec<(usize, Candidate)>, Vec<(usize, String)>),
    /// Say which subjects are hot.
    Heat(Frequent),
}

/// How far a shard's connections have been looked through.
#[derive(Default)]
struct Sweep {
    slot: u32,
    /// Among the subscriptions of the connection in this slot.
    place: u32,
    found: Selection,
    /// The most receivers that a message had.
    widest: usize,
}

impl Survey {
    /// The part of a shard that has ended, and with it its connections.
    pub(crate) fn abandoned(mut self: Box<Self>) -> (usize, Mail) {
        self.task = match self.task {
            Task::Select(_) => Task::Select(Sweep::default()),
            Task::Describe(..) => Task::Describe(Vec::new(), Vec::new()),
            Task::Heat(_) => Task::Heat(Frequent::default()),
        };
        (usize::from(self.asker), Mail::Surveyed(self))
    }
}

/// A survey whose answer somebody waits for.
struct Pending {
    number: u32,
    /// The monitor's connection that asks.
    conn: ConnId,
    asked: Arc<Asked>,
    /// Shards that have not done their part; `None` before it has begun.
    missing: Option<usize>,
    sweep: Sweep,
    rows: Vec<(usize, String)>,
    heat: Frequent,
}

/// The surveys of the monitor's shard.
#[derive(Default)]
pub(crate) struct Surveys {
    pending: VecDeque<Pending>,
    /// Of the last one.
    number: u32,
}

impl Surveys {
    /// Nobody waits for what the connection has asked. A survey that is under way keeps its place among
    /// those until the shards have given their parts back.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        for one in self.pending.iter().filter(|one| one.conn == conn) {
            one.asked.is_abandoned.store(true, Ordering::Relaxed);
        }
        self.pending
            .retain(|one| one.conn != conn || one.missing.is_some());
    }
}

impl Shard {
    /// Asks all shards on behalf of a connection of the monitor; the survey's number.
    pub(crate) fn begin_survey(
        &mut self,
        io: &mut Io,
        conn: ConnId,
        question: Arc<Question>,
    ) -> u32 {
        let Some(monitor) = &mut self.monitor else {
            return 0;
        };
        let surveys = &mut monitor.surveys;
        surveys.number = surveys.number.wrapping_add(1);
        let number = surveys.number;
        let asked = Asked {
            window: question.window(&self.shared.totals()),
            question,
            is_abandoned: AtomicBool::new(false),
        };
        surveys.pending.push_back(Pending {
            number,
            conn,
            missing: None,
            sweep: asked.sweep(),
            rows: Vec::new(),
            heat: Frequent::default(),
            asked: Arc::new(asked),
        });
        self.start_surveys(io);
        number
    }

    /// Sends out those whose turn has come.
    pub(crate) fn start_surveys(&mut self, io: &mut Io) {
        let asker = self.index;
        let Some(monitor) = &mut self.monitor else {
            return;
        };
        for one in monitor.surveys.pending.iter_mut().take(MAX_AT_ONCE) {
            if one.missing.is_some() {
                continue;
            }
            let tasks = (0..io.shards()).map(|shard| (shard, one.asked.first_task()));
            one.send(io, asker, tasks.collect());
        }
    }

    /// Works on this shard's part for a while.
    pub(crate) fn handle_survey(&mut self, io: &mut Io, mut survey: Box<Survey>) {
        let asked = Arc::clone(&survey.asked);
        let question = &*asked.question;
        let is_done = match &mut survey.task {
            _ if asked.is_abandoned.load(Ordering::Relaxed) => true,
            Task::Select(sweep) => {
                sweep.widest = self.widest;
                !question.is_about_each() || self.sweep(io, question, sweep)
            }
            Task::Describe(candidates, rows) => {
                let clock = Clock::new(self.shared.start, self.shared.started);
                *rows = describe(io, question, mem::take(candidates), &clock);
                true
            }
            Task::Heat(seen) => {
                *seen = self.hot.frequent(io.now());
                true
            }
        };
        if is_done {
            io.mail(usize::from(survey.asker), Mail::Surveyed(survey));
        } else {
            io.mail(usize::from(self.index), Mail::Survey(survey));
        }
    }

    /// Looks through the next connections; whether these were the last.
    fn sweep(&self, io: &mut Io, question: &Question, sweep: &mut Sweep) -> bool {
        io.spend(SLICE as usize * WEIGHT);
        match question {
            Question::Connz(query) => {
                let end = sweep.slot.saturating_add(SLICE);
                for id in io.connections.ids_in(sweep.slot..end) {
                    if let Some(conn) = io.conn(id)
                        && conn.is_open()
                        && conn.session.is_client
                        && let Some(rank) = query.rank(conn)
                    {
                        sweep.found.offer(Candidate {
                            rank,
                            cid: conn.session.cid,
                            index: 0,
                            shard: self.index,
                            conn: id,
                        });
                    }
                }
                sweep.slot = end;
                end >= io.connections.slots()
            }
            Question::Subsz(query) => self.sweep_subscriptions(io, query, sweep),
            Question::Subjects { .. } => true,
        }
    }

    /// Looks through the next connections' subscriptions; whether these were the last.
    fn sweep_subscriptions(&self, io: &Io, query: &subsz::Query, sweep: &mut Sweep) -> bool {
        let mut left = SLICE;
        while left > 0 && sweep.slot < io.connections.slots() {
            let conn = io.connections.ids_in(sweep.slot..sweep.slot + 1).next();
            let conn = conn.and_then(|id| Some((id, io.conn(id)?)));
            let mut places = 0;
            if let Some((id, conn)) = conn.filter(|(_, conn)| conn.is_open()) {
                let session = &conn.session;
                places = session.subscriptions.places();
                let end = places.min(sweep.place.saturating_add(left));
                for (place, one) in session.subscriptions.iter_in(sweep.place..end) {
                    if query.is_wanted(one) {
                        sweep.found.offer(Candidate {
                            rank: 0,
                            cid: session.cid,
                            index: place.0,
                            shard: self.index,
                            conn: id,
                        });
                    }
                }
                left = left.saturating_sub(end.saturating_sub(sweep.place));
                sweep.place = end;
            } else {
                left -= 1;
            }
            if sweep.place >= places {
                (sweep.slot, sweep.place) = (sweep.slot + 1, 0);
            }
        }
        sweep.slot >= io.connections.slots()
    }

    /// Takes in what a shard has found.
    pub(crate) fn handle_surveyed(&mut self, io: &mut Io, survey: Survey) {
        let asker = self.index;
        let Some(monitor) = &mut self.monitor else {
            return;
        };
        let pending = &mut monitor.surveys.pending;
        let Some(n) = pending.iter().position(|one| one.number == survey.number) else {
            // Whoever asked has gone.
            return;
        };
        let one = &mut pending[n];
        let is_selecting = matches!(survey.task, Task::Select(_));
        one.gather(survey.task);
        if one.missing != Some(0) {
            return;
        }
        let is_abandoned = one.asked.is_abandoned.load(Ordering::Relaxed);
        if is_selecting && !is_abandoned && one.describe(io, asker) {
            return;
        }
        let Some(one) = pending.remove(n) else { return };
        let answer = self.answer_of(&one);
        self.answer_survey(io, one.conn, one.number, &answer);
        self.start_surveys(io);
    }

    fn answer_of(&self, done: &Pending) -> String {
        let (server_id, now) = (self.shared.info.server_id(), rfc3339(SystemTime::now()));
        let (total, widest) = (done.sweep.found.total, done.sweep.widest);
        match &*done.asked.question {
            Question::Connz(query) => {
                let head = query.head(server_id, &now, total, done.rows.len());
                with_list(&head, "connections", &done.rows)
            }
            Question::Subsz(query) => {
                let totals = self.shared.totals();
                let is_counted = done.asked.question.is_about_each();
                let total = if is_counted {
                    total
                } else {
                    totals.subscriptions()
                };
                let head = query.head(server_id, &now, &totals, total, widest);
                if query.lists {
                    with_list(&head, "subscriptions_list", &done.rows)
                } else {
                    head.to_string()
                }
            }
            Question::Subjects { limit } => hot::to_json(&done.heat, *limit).to_string(),
        }
    }
}

impl Pending {
    /// Sends shards their parts.
    fn send(&mut self, io: &mut Io, asker: u16, tasks: Vec<(usize, Task)>) {
        self.missing = Some(tasks.len());
        for (shard, task) in tasks {
            let survey = Survey {
                number: self.number,
                asker,
                asked: Arc::clone(&self.asked),
                task,
            };
            io.mail(shard, Mail::Survey(Box::new(survey)));
        }
    }

    /// Takes in what a shard has found.
    fn gather(&mut self, task: Task) {
        self.missing = self.missing.map(|missing| missing.saturating_sub(1));
        match task {
            Task::Select(sweep) => {
                self.sweep.found.absorb(sweep.found);
                self.sweep.widest = self.sweep.widest.max(sweep.widest);
            }
            Task::Describe(_, rows) => self.rows.extend(rows),
            Task::Heat(seen) => self.heat.merge(&seen),
        }
    }

    /// Asks the shards of what is on the page to describe it; false where the page is empty.
    fn describe(&mut self, io: &mut Io, asker: u16) -> bool {
        let (offset, limit) = self.asked.window;
        let total = self.sweep.found.total;
        let page = mem::take(&mut self.sweep.found).page(offset..offset + limit);
        self.sweep.found.total = total;
        let mut parts: Vec<Vec<_>> = (0..io.shards()).map(|_| Vec::new()).collect();
        for (row, candidate) in page.into_iter().enumerate() {
            parts[usize::from(candidate.shard)].push((row, candidate));
        }
        let parts = parts.into_iter().enumerate();
        let tasks = parts
            .filter(|(_, part)| !part.is_empty())
            .map(|(shard, part)| (shard, Task::Describe(part, Vec::new())));
        let tasks: Vec<_> = tasks.collect();
        let has_rows = !tasks.is_empty();
        self.send(io, asker, tasks);
        has_rows
    }
}

/// The rows of those that are there still.
fn describe(
    io: &Io,
    question: &Question,
    candidates: Vec<(usize, Candidate)>,
    clock: &Clock,
) -> Vec<(usize, String)> {
    let mut listed = 0;
    let rows = candidates.into_iter().filter_map(|(row, candidate)| {
        let conn = io.conn(candidate.conn)?;
        let text = match question {
            Question::Connz(query) => query.row(conn, &candidate, clock, io.now(), &mut listed),
            Question::Subsz(_) => {
                let index = candidate.index;
                let mut found = conn.session.subscriptions.iter_in(index..index + 1);
                subsz::row(candidate.cid, found.next()?.1)
            }
            Question::Subjects { .. } => return None,
        };
        Some((row, text))
    });
    rows.collect()
}

/// An object with one more member, the list of these rows in the order of their numbers.
fn with_list(head: &Value, name: &str, rows: &[(usize, String)]) -> String {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_unstable_by_key(|(row, _)| *row);
    let rows: Vec<_> = rows.iter().map(|(_, text)| text.as_str()).collect();
    let mut text = head.to_string();
    text.pop();
    text.push_str(&format!(",\"{name}\":[{}]}}", rows.join(",")));
    text
}
