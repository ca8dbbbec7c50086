//! The shards of an engine, which are started, commanded and joined together.

use std::sync::Arc;
use std::thread::JoinHandle;

use reactor::Mailboxes;

use crate::client::Client;
use crate::connection::Endpoint;
use crate::dialer::Dialer;
use crate::error::EngineError;
use crate::runtime::Runtime;
use crate::session::Mail;
use crate::shared::Shared;
use crate::sources::Sources;
use crate::target::Target;
use crate::workload::Workload;

/// The shards of an engine.
pub(crate) struct Shards {
    pub(crate) shared: Arc<Shared>,
    mailboxes: Mailboxes<Mail>,
    /// Threads of the shards; empty in a simulation.
    threads: Vec<JoinHandle<()>>,
}

impl Shards {
    /// Start one shard on `runtime` for each workload with its dialer.
    pub(crate) fn start<W: Workload>(
        runtime: &mut impl Runtime,
        shared: Arc<Shared>,
        target: &Target,
        max_payload: usize,
        workloads: Vec<(W, Dialer)>,
    ) -> Result<Self, EngineError> {
        let members = workloads.iter().map(|(_, dialer)| dialer.members());
        runtime.reserve(target.transport, shared.wanted, members.max().unwrap_or(0))?;
        let sources = Arc::new(Sources::new(target, shared.wanted)?);
        let endpoint = Arc::new(Endpoint::new(target.clone(), max_payload));
        let mut shards = Self {
            shared,
            mailboxes: runtime.mailboxes(workloads.len())?,
            threads: Vec::new(),
        };
        for (index, (workload, dialer)) in workloads.into_iter().enumerate() {
            let client = Client::new(
                Arc::clone(&endpoint),
                Arc::clone(&sources),
                Arc::clone(&shards.shared),
                index,
                workload,
                dialer,
                runtime.keys(index),
            );
            let shared = Arc::clone(&shards.shared);
            match runtime.start(index, &shards.mailboxes, client, shared) {
                Ok(thread) => shards.threads.extend(thread),
                Err(error) => {
                    shards.close();
                    return Err(error);
                }
            }
        }
        Ok(shards)
    }

    pub(crate) fn post(&self, mail: Mail) {
        for shard in 0..self.mailboxes.shards() {
            // A shard that has ended wants no mail.
            let _ = self.mailboxes.post(shard, mail);
        }
    }

    /// Tell the shards to end, and wait for their threads.
    pub(crate) fn close(&mut self) {
        self.post(Mail::Close);
        for thread in self.threads.drain(..) {
            // Its panic, if any, was caught and is the engine's error.
            let _ = thread.join();
        }
    }
}
