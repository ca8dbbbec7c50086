//! A file-descriptor table for each thread.
//!
//! RLIMIT_NOFILE bounds one table, not one process: a thread that leaves the shared table with
//! `unshare(CLONE_FILES)` may open as many descriptors again. See unshare(2), and O_PATH in open(2).

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Directory that lists the descriptors of the calling thread.
const DESCRIPTORS: &str = "/proc/thread-self/fd";

thread_local! {
    static IS_ISOLATED: Cell<bool> = const { Cell::new(false) };
}

/// Give the calling thread a descriptor table of its own, in which only `keep` and the standard streams can
/// be used. Pipes and sockets that the rest of the process closes do not stay open here.
///
/// Every other inherited descriptor stays taken, but refers to nothing that could be read or written: using
/// it fails with EBADF. So a value that owns one still owns it in this table, and never another file that
/// was opened under the same number.
///
/// # Safety
/// A descriptor that is opened in this thread from now on must not be used in another thread, and one that
/// another thread opens must not be used in this one: the number names another file there.
///
/// # Errors
/// The kernel refuses a table or a descriptor, or /proc is not mounted.
pub(crate) unsafe fn isolate(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    // SAFETY: the copied table has the same descriptors under the same numbers, and below they are replaced
    // and not closed. So each value that owns a descriptor owns one here, too. The caller answers for later
    // ones.
    unsafe { unshare_unsafe(UnshareFlags::FILES)? };
    IS_ISOLATED.set(true);
    let keep: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    let inherited: Vec<RawFd> = std::fs::read_dir(DESCRIPTORS)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > libc::STDERR_FILENO && !keep.contains(fd))
        .collect();
    let nothing = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open("/")?;
    for fd in inherited {
        // The directory's own has been closed meanwhile, and may be `nothing`.
        if is_open(fd) && fd != nothing.as_raw_fd() {
            replace(fd, nothing.as_raw_fd())?;
        }
    }
    Ok(())
}

/// Return whether the calling thread has called [`isolate`].
pub(crate) fn is_isolated() -> bool {
    IS_ISOLATED.get()
}

/// Return whether this process may give its threads tables of their own: some containers' system call
/// filters forbid it. Tried out in a thread that ends at once.
#[must_use]
pub fn can_isolate() -> bool {
    // SAFETY: no descriptor enters or leaves the thread.
    let attempt = std::thread::Builder::new().spawn(|| unsafe { isolate(&[]) }.is_ok());
    attempt.is_ok_and(|thread| thread.join().unwrap_or(false))
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: the descriptor is only asked for its flags.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

/// Have `fd` refer to what `to` refers to.
fn replace(fd: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: both are open in this thread's own table, so that no other thread's descriptors change; the
    // value that owns `fd`, if it is in this thread, owns the new descriptor then.
    if unsafe { libc::dup3(to, fd, libc::O_CLOEXEC) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Return how many descriptors one table may hold: the soft RLIMIT_NOFILE.
#[must_use]
pub fn limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::io::Errno;
    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn trying_out_leaves_this_table_alone() {
        let (reader, writer) = pipe().expect("pipe");
        assert!(can_isolate());
        assert!(!is_isolated());
        rustix::io::write(&writer, b"x").expect("still open");
        assert_eq!(rustix::io::read(&reader, &mut [0]), Ok(1));
    }

    #[test]
    fn only_what_is_kept_can_be_used_in_the_thread() {
        let (lost_reader, lost_writer) = pipe().expect("pipe");
        let (kept_reader, kept_writer) = pipe().expect("pipe");
        let (ready, is_ready) = std::sync::mpsc::sync_channel(0);
        let (end, may_end) = std::sync::mpsc::sync_channel::<()>(0);
        let (kept, lost) = (&kept_writer, &lost_writer);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                // SAFETY: what is opened here stays here.
                unsafe { isolate(&[kept.as_fd()]) }.expect("isolate");
                assert!(is_isolated());
                rustix::io::write(kept, b"x").expect("kept");
                assert_eq!(rustix::io::write(lost, b"x"), Err(Errno::BADF));
                // Its number is not given to another file, whose owner this value would then use.
                let opened = pipe().expect("pipe");
                let taken = lost.as_raw_fd();
                assert!(opened.0.as_raw_fd() != taken && opened.1.as_raw_fd() != taken);
                ready.send(()).expect("the test waits");
                may_end.recv().expect("the test tells");
            });
            is_ready.recv().expect("no panic");
            let mut byte = [0];
            assert_eq!(rustix::io::read(&kept_reader, &mut byte), Ok(1));
            end.send(()).expect("the thread waits");
        });
        drop(lost_writer);
        assert_eq!(rustix::io::read(&lost_reader, &mut [0]), Ok(0));
    }

    #[test]
    fn what_the_process_closes_does_not_stay_open_in_the_thread() {
        let (reader, writer) = pipe().expect("pipe");
        let (end, may_end) = std::sync::mpsc::sync_channel::<()>(0);
        let (ready, is_ready) = std::sync::mpsc::sync_channel(0);
        let thread = std::thread::spawn(move || {
            // SAFETY: no descriptor enters or leaves the thread.
            unsafe { isolate(&[]) }.expect("isolate");
            ready.send(()).expect("the test waits");
            may_end.recv().expect("the test tells");
        });
        is_ready.recv().expect("no panic");
        drop(writer);
        assert_eq!(rustix::io::read(&reader, &mut [0]), Ok(0));
        end.send(()).expect("the thread waits");
        thread.join().expect("no panic");
    }
}
