//! The threads of one process, each with its worker.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::thread;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::driver::{Role, Worker};
use crate::failure::{Context, Failure};
use crate::greeting;
use crate::mail::Mailboxes;
use crate::options::Mode;
use crate::setup::Setup;
use crate::signal::Signal;

/// The threads hold little on their stacks, and may be many.
const STACK: usize = 512 * 1024;

/// What is under way for each completion of a batch; see [`Worker::batch`].
const UNDER_WAY_PER_BATCH: u32 = 16;
const LARGEST_BATCH: u32 = 64;

/// Runs `body` in each thread of a process until all have ended. Where there are several, each has a
/// table of descriptors of its own.
pub(crate) fn run(
    role: Role,
    setup: &Arc<Setup>,
    body: impl Fn(Worker) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let tables = match role {
        Role::Server => setup.server,
        Role::Load => setup.load,
    };
    let (threads, _) = setup.threads_and_rings(tables);
    // Before the threads: a descriptor that is not in a table when it is copied is never in it.
    let mailboxes = Arc::new(Mailboxes::new(threads)?);
    let worker = |index| worker(role, setup, &mailboxes, index);
    let close = &setup.signals.close;
    if threads == 1 {
        let _end = EndOfOne(close);
        return body(worker(0));
    }
    let keep: Vec<RawFd> = setup
        .signals
        .descriptors()
        .into_iter()
        .chain(mailboxes.descriptors())
        .collect();
    thread::scope(|scope| {
        let spawn = |index| {
            let (worker, body, keep) = (worker(index), &body, &keep);
            let run = move || {
                let _end = EndOfOne(close);
                isolate(keep)?;
                body(worker)
            };
            thread::Builder::new()
                .name(format!("{}-{index}", role.name()))
                .stack_size(STACK)
                .spawn_scoped(scope, run)
                .inspect_err(|_| close.raise())
                .context(format!("start thread {index}"))
        };
        let running = (0..threads).map(spawn).collect::<Result<Vec<_>, _>>()?;
        let join = |thread: thread::ScopedJoinHandle<'_, Result<(), Failure>>| {
            let panicked = |_| Err(Failure::new("a thread has panicked"));
            thread.join().unwrap_or_else(panicked)
        };
        let ends: Vec<_> = running.into_iter().map(join).collect();
        ends.into_iter().collect()
    })
}

/// Threads end when everything is closed. One that ends otherwise, by a failure or a panic, takes the
/// others of both processes with it.
struct EndOfOne<'a>(&'a Signal);

impl Drop for EndOfOne<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

fn worker(role: Role, setup: &Arc<Setup>, mailboxes: &Arc<Mailboxes>, index: u32) -> Worker {
    let options = &setup.options;
    let tables = match role {
        Role::Server => setup.server,
        Role::Load => setup.load,
    };
    let (threads, rings) = setup.threads_and_rings(tables);
    let (mut from_client, under_way) = match (options.mode, role) {
        (Mode::Relay(bytes), Role::Server) => (bytes.request_bytes, options.outstanding),
        (Mode::Relay(bytes), Role::Load) => (bytes.reply_bytes, options.outstanding),
        (Mode::Fanout { .. }, Role::Server) => (1, 1),
        // Several messages come together.
        (Mode::Fanout { message_bytes }, Role::Load) => (
            message_bytes.saturating_mul(options.outstanding as usize),
            options.connections,
        ),
    };
    if options.greeting {
        from_client = from_client.max(greeting::largest(role));
    }
    Worker {
        role,
        setup: Arc::clone(setup),
        mailboxes: Arc::clone(mailboxes),
        index,
        threads,
        rings,
        slots: tables.slots,
        from_client,
        batch: (under_way / UNDER_WAY_PER_BATCH).clamp(1, LARGEST_BATCH),
        shown: false,
    }
}

/// Gives the calling thread a table of descriptors of its own with nothing but `keep` and the standard
/// streams: what it kept open besides would stay open when everyone else has closed it.
fn isolate(keep: &[RawFd]) -> Result<(), Failure> {
    // SAFETY: copies the table; this thread owns none of the descriptors that are closed below, and
    // whoever does has them in a table of their own.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }.context("unshare the table of descriptors")?;
    let mut kept: Vec<u32> = [0, 1, 2]
        .iter()
        .chain(keep)
        .map(|fd| fd.unsigned_abs())
        .collect();
    kept.sort_unstable();
    let mut first = 0;
    for fd in kept {
        if first < fd {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<(), Failure> {
    // SAFETY: closes descriptors of this thread's table only; see `isolate`.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error()).context("close inherited descriptors")
}
