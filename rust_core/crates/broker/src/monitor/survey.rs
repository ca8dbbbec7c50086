//! A question to all shards about their connections, and the part of one shard in it.
//!
//! The monitor's shard sends each shard its part by mail. A shard works on it for a slice of each turn
//! until it is done, so that neither a million connections nor a client with very many subscriptions keeps
//! others waiting; then the part goes back. A page is found in two rounds: the shards name the candidates
//! that come first, and once these are merged, the candidates on the page are described by their shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use telemetry::space_saving::Frequent;

use super::description::Description;
use super::page::Question;
use super::selection::Candidate;
use super::sweep::Sweep;
use crate::metrics::totals::Totals;

/// A question that was asked.
pub(super) struct Asked {
    pub(super) question: Arc<Question>,
    /// See [`Question::window`].
    pub(super) window: (usize, usize),
    /// Whether the answer is not waited for any more: no shard needs to work on it.
    is_abandoned: AtomicBool,
}

impl Asked {
    pub(super) fn new(question: Arc<Question>, totals: &Totals) -> Self {
        Self {
            window: question.window(totals),
            question,
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Return the task that each shard begins with.
    pub(super) fn first_task(&self) -> Task {
        match &*self.question {
            Question::Connz(_) | Question::Subsz(_) => Task::Select(self.sweep()),
            Question::Subjects { .. } => Task::Heat(Frequent::default()),
        }
    }

    /// Return a search for the candidates that come first.
    pub(super) fn sweep(&self) -> Sweep {
        let (offset, limit) = self.window;
        Sweep::new(if limit == 0 { 0 } else { offset + limit })
    }

    /// Note that the answer is not waited for any more.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Return whether the answer is not waited for any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }
}

/// The part of a shard in a survey, on its way.
pub(crate) struct Survey {
    /// Number of the survey.
    pub(super) number: u32,
    pub(super) asker: u16,
    pub(super) asked: Arc<Asked>,
    pub(super) task: Task,
}

/// The work of a shard for a survey, and its findings so far.
pub(super) enum Task {
    /// Look through all connections.
    Select(Sweep),
    /// Take in the candidates of one shard, beside those of others.
    Merge(Vec<Candidate>),
    /// Describe candidates, each with the number of its row on the page.
    Describe(Description),
    /// Say which subjects are hot.
    Heat(Frequent),
}

impl Survey {
    /// Return the shard that has asked.
    pub(crate) fn asker(&self) -> usize {
        usize::from(self.asker)
    }

    /// Discard the findings of a shard that has ended, and with it its connections.
    pub(crate) fn discard(&mut self) {
        self.task = match self.task {
            Task::Select(_) | Task::Merge(_) => Task::Select(Sweep::default()),
            Task::Describe(_) => Task::Describe(Description::default()),
            Task::Heat(_) => Task::Heat(Frequent::default()),
        };
    }
}
