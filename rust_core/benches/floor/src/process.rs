//! The two processes: forked, pinned, measured from outside, and never left behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal, waitpid,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::{Context, Failure};

/// A running process; killed when dropped before it has ended.
pub(crate) struct Child {
    name: &'static str,
    pid: Pid,
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    reaped: bool,
}

impl Child {
    /// Forks a process that runs `body` on `cpu` and ends. It dies with this one.
    ///
    /// Must be called while this process has one thread.
    pub(crate) fn start(
        name: &'static str,
        cpu: usize,
        body: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let parent = getpid();
        // SAFETY: the process has a single thread, so that the child's copy of the memory is
        // consistent, no lock is held in it and everything may be called there.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(std::io::Error::last_os_error()).context(format!("fork the {name}"));
        }
        let Some(pid) = Pid::from_raw(pid) else {
            let status = run_in_child(name, cpu, parent, body);
            // SAFETY: ends the process without running what the parent registered to be run at exit.
            unsafe { libc::_exit(status) }
        };
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        Ok(Self {
            name,
            pid,
            pidfd: pidfd.context(format!("open a descriptor of the {name}"))?,
            reaped: false,
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Processor time of all its threads, user and system.
    pub(crate) fn cpu_time(&self) -> Result<Duration, Failure> {
        let what = || format!("read the processor time of the {}", self.name);
        let mut clock = 0;
        // SAFETY: writes the clock's id into `clock`.
        let refused = unsafe { libc::clock_getcpuclockid(self.pid.as_raw_pid(), &raw mut clock) };
        if refused != 0 {
            return Err(std::io::Error::from_raw_os_error(refused)).context(what());
        }
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes the time into `time`.
        if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return Err(std::io::Error::last_os_error()).context(what());
        }
        Ok(Duration::new(
            time.tv_sec.unsigned_abs(),
            time.tv_nsec.unsigned_abs() as u32,
        ))
    }

    /// Resident memory, bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        let path = format!("/proc/{}/statm", self.pid.as_raw_pid());
        let text = std::fs::read_to_string(&path).context(format!("read {path}"))?;
        let pages = text
            .split_whitespace()
            .nth(1)
            .and_then(|pages| pages.parse::<u64>().ok())
            .ok_or_else(|| Failure::new(format!("{path} has no second number: {text:?}")))?;
        Ok(pages * rustix::param::page_size() as u64)
    }

    /// Takes the status of the process once it has ended; until then this blocks.
    pub(crate) fn reap(mut self) -> Result<(), Failure> {
        let status = waitpid(Some(self.pid), WaitOptions::empty())
            .context(format!("wait for the {}", self.name))?;
        self.reaped = true;
        match status.map(|(_, status)| (status.exit_status(), status.terminating_signal())) {
            Some((Some(0), _)) => Ok(()),
            Some((_, Some(signal))) => Err(Failure::new(format!(
                "the {} was ended by signal {signal}",
                self.name
            ))),
            _ => Err(Failure::new(format!("the {} failed", self.name))),
        }
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // Not yet waited for, so the number is still this process's.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}

/// The status with which the child ends.
fn run_in_child(
    name: &str,
    cpu: usize,
    parent: Pid,
    body: impl FnOnce() -> Result<(), Failure>,
) -> i32 {
    let run = || {
        set_parent_process_death_signal(Some(Signal::KILL))
            .context("tie the process to its parent")?;
        if getppid() != Some(parent) {
            return Err(Failure::new("the coordinator is gone"));
        }
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        sched_setaffinity(None, &cpus).context(format!("run on core {cpu}"))?;
        body()
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => {
            eprintln!("floor: {name}: {failure}");
            1
        }
        // The panic has been printed.
        Err(_) => 101,
    }
}

/// The cores this process may run on.
pub(crate) fn allowed_cpus() -> Result<Vec<usize>, Failure> {
    let cpus = sched_getaffinity(None).context("ask for the allowed cores")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| cpus.is_set(*cpu))
        .collect())
}
