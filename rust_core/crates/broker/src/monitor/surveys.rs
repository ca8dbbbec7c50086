//! The surveys of a shard: those that its monitor asks for, and its part in those of others.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::SystemTime;

use reactor::ConnId;
use serde_json::Value;
use telemetry::space_saving::Frequent;
use telemetry::time::{Clock, rfc3339};

use super::description::Description;
use super::page::Question;
use super::survey::{Asked, Survey, Task};
use super::sweep::{KEEP, Slice, Sweep};
use super::{connz, hot};
use crate::io::Io;
use crate::mail::Mail;
use crate::publishing::Publishing;
use crate::shared::Shared;

/// Work of copying or merging the hot subjects of a shard.
const HEAT: usize = 50_000;
/// Surveys that are under way at once; the others wait for their turn.
const MAX_AT_ONCE: usize = 4;

/// A survey whose answer is waited for.
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

/// The answer to a survey.
pub(super) struct Answered {
    /// The monitor's connection that has asked.
    pub(super) conn: ConnId,
    pub(super) number: u32,
    pub(super) page: String,
}

/// The surveys of a shard.
#[derive(Default)]
pub(crate) struct Surveys {
    /// Surveys that this shard has asked for.
    pending: VecDeque<Pending>,
    /// Number of the last one.
    number: u32,
    /// Parts of surveys with which this shard goes on in its next turn.
    unfinished: Vec<Mail>,
}

impl Surveys {
    /// Begin to ask all shards on behalf of a connection of the monitor; return the survey's number.
    pub(super) fn begin(&mut self, shared: &Shared, conn: ConnId, question: Arc<Question>) -> u32 {
        self.number = self.number.wrapping_add(1);
        let asked = Asked::new(question, &shared.totals());
        self.pending.push_back(Pending {
            number: self.number,
            conn,
            missing: None,
            sweep: asked.sweep(),
            rows: Vec::new(),
            heat: Frequent::default(),
            asked: Arc::new(asked),
        });
        self.number
    }

    /// Abandon the question of a connection. A survey that is under way keeps its place among the others
    /// until the shards have given their parts back.
    pub(super) fn forget(&mut self, conn: ConnId) {
        for one in self.pending.iter().filter(|one| one.conn == conn) {
            one.asked.abandon();
        }
        self.pending
            .retain(|one| one.conn != conn || one.missing.is_some());
    }

    /// Return the number of parts with which this shard goes on.
    #[cfg(feature = "sim")]
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished.len()
    }

    /// Send out the parts of the surveys that begin, and go on with unfinished parts in the next turn. They
    /// are not mailed before: mail is handed out in the turn in which it is sent while there is budget, and
    /// replies to clients wait for it.
    pub(crate) fn go_on(&mut self, io: &mut Io) {
        let me = io.shard();
        for mail in self.unfinished.drain(..) {
            io.mail(me, mail);
        }
        for one in self.pending.iter_mut().take(MAX_AT_ONCE) {
            if one.missing.is_none() {
                let tasks = (0..io.shards()).map(|shard| (shard, one.asked.first_task()));
                one.send(io, tasks.collect());
            }
        }
    }

    /// Work on this shard's part for a slice.
    pub(crate) fn handle_survey(
        &mut self,
        shared: &Shared,
        publishing: &Publishing,
        io: &mut Io,
        mut survey: Box<Survey>,
    ) {
        let asked = Arc::clone(&survey.asked);
        let mut slice = Slice::new();
        let is_done = match &mut survey.task {
            _ if asked.is_abandoned() => true,
            Task::Select(sweep) => {
                sweep.max_fanout = publishing.max_fanout;
                match &*asked.question {
                    Question::Connz(query) => sweep.look_at_connections(io, &mut slice, query),
                    Question::Subsz(query) if asked.question.is_about_each() => {
                        sweep.look_at_subscriptions(io, &mut slice, query)
                    }
                    Question::Subsz(_) | Question::Subjects { .. } => true,
                }
            }
            Task::Describe(description) => {
                let clock = Clock::new(shared.start, shared.started);
                description.go_on(io, &mut slice, &asked.question, &clock)
            }
            Task::Heat(seen) => {
                *seen = publishing.hot.frequent(io.now());
                io.spend(HEAT);
                true
            }
            // The asker's own task.
            Task::Merge(_) => true,
        };
        if is_done {
            io.mail(survey.asker(), Mail::Surveyed(survey));
        } else {
            self.unfinished.push(Mail::Survey(survey));
        }
    }

    /// Take in the findings of a shard, for a slice; return the answer when it is complete.
    pub(super) fn handle_surveyed(
        &mut self,
        shared: &Shared,
        io: &mut Io,
        mut survey: Box<Survey>,
    ) -> Option<Answered> {
        // None when the connection that asked has gone.
        let mut all = self.pending.iter();
        let n = all.position(|one| one.number == survey.number)?;
        let one = &mut self.pending[n];
        if !one.gather(io, &mut survey.task) {
            self.unfinished.push(Mail::Surveyed(survey));
            return None;
        }
        let is_selecting = matches!(survey.task, Task::Merge(_));
        if one.missing != Some(0) {
            return None;
        }
        let is_abandoned = one.asked.is_abandoned();
        if is_selecting && !is_abandoned && one.describe(io) {
            return None;
        }
        let mut one = self.pending.remove(n)?;
        if is_abandoned {
            return None;
        }
        let page = one.page(shared);
        io.spend(page.len());
        Some(Answered {
            conn: one.conn,
            number: one.number,
            page,
        })
    }
}

impl Pending {
    /// Send shards their parts.
    fn send(&mut self, io: &mut Io, tasks: Vec<(usize, Task)>) {
        self.missing = Some(tasks.len());
        for (shard, task) in tasks {
            let survey = Survey {
                number: self.number,
                asker: io.shard() as u16,
                asked: Arc::clone(&self.asked),
                task,
            };
            io.mail(shard, Mail::Survey(Box::new(survey)));
        }
    }

    /// Return the page.
    fn page(&mut self, shared: &Shared) -> String {
        let (server_id, now) = (shared.info.server_id(), rfc3339(SystemTime::now()));
        let (total, max_fanout) = (self.sweep.found.total, self.sweep.max_fanout);
        match &*self.asked.question {
            Question::Connz(query) => {
                let head = query.head(server_id, &now, total, self.rows.len());
                with_list(&head, "connections", &mut self.rows)
            }
            Question::Subsz(query) => {
                let totals = shared.totals();
                let is_counted = self.asked.question.is_about_each();
                let total = if is_counted {
                    total
                } else {
                    totals.subscriptions()
                };
                let head = query.head(server_id, &now, &totals, total, max_fanout);
                if query.lists {
                    with_list(&head, "subscriptions_list", &mut self.rows)
                } else {
                    head.to_string()
                }
            }
            Question::Subjects { limit } => hot::to_json(&self.heat, *limit).to_string(),
        }
    }

    /// Take in the findings of a shard, or a part of them; return whether that was all.
    fn gather(&mut self, io: &mut Io, task: &mut Task) -> bool {
        match task {
            Task::Select(sweep) => {
                let found = mem::take(sweep);
                self.sweep.max_fanout = self.sweep.max_fanout.max(found.max_fanout);
                *task = Task::Merge(self.sweep.found.absorb(found.found));
                return self.gather(io, task);
            }
            Task::Merge(candidates) => {
                let mut slice = Slice::new();
                while let Some(candidate) = candidates.pop() {
                    self.sweep.found.insert(candidate);
                    slice.spend(io, KEEP);
                    if slice.is_over(io) && !candidates.is_empty() {
                        return false;
                    }
                }
            }
            Task::Describe(description) => self.rows.append(&mut description.rows),
            Task::Heat(seen) => {
                self.heat.merge(seen);
                io.spend(HEAT);
            }
        }
        self.missing = self.missing.map(|missing| missing.saturating_sub(1));
        true
    }

    /// Ask the shards to describe what each has on the page; return false when the page is empty.
    fn describe(&mut self, io: &mut Io) -> bool {
        let (offset, _) = self.asked.window;
        let page = self.sweep.found.take_page(offset);
        let rows = page.len();
        io.spend(rows * KEEP);
        let mut parts: Vec<Vec<_>> = (0..io.shards()).map(|_| Vec::new()).collect();
        for (row, candidate) in page.into_iter().enumerate() {
            parts[usize::from(candidate.shard)].push((row, candidate));
        }
        let parts = parts.into_iter().enumerate();
        let tasks = parts
            .filter(|(_, part)| !part.is_empty())
            .map(|(shard, part)| {
                let room = connz::LISTS * part.len() / rows;
                (shard, Task::Describe(Description::new(part, room)))
            });
        let tasks: Vec<_> = tasks.collect();
        let has_rows = !tasks.is_empty();
        self.send(io, tasks);
        has_rows
    }
}

/// Return an object with one more member, the list of these rows in the order of their numbers.
fn with_list(head: &Value, name: &str, rows: &mut [(usize, String)]) -> String {
    rows.sort_unstable_by_key(|(row, _)| *row);
    let mut text = head.to_string();
    text.pop();
    let bytes: usize = rows.iter().map(|(_, row)| row.len() + 1).sum();
    text.reserve_exact(bytes + name.len() + 8);
    text.push_str(&format!(",\"{name}\":["));
    for (n, (_, row)) in rows.iter().enumerate() {
        if n > 0 {
            text.push(',');
        }
        text.push_str(row);
    }
    text.push_str("]}");
    text
}
