//! A file-descriptor table for each thread.
//!
//! RLIMIT_NOFILE bounds one table, not one process: a thread that leaves the shared table with
//! `unshare(CLONE_FILES)` may open as many descriptors again. See unshare(2), close_range(2).

use std::io;
use std::os::fd::RawFd;

/// Gives the calling thread a descriptor table of its own that holds only `keep` and the standard
/// streams. Every other inherited descriptor is closed in the copy, or else a pipe or socket that
/// the rest of the process closes would stay open here.
///
/// # Errors
/// The kernel refuses `unshare` or `close_range`.
pub fn isolate(keep: &[RawFd]) -> io::Result<()> {
    // SAFETY: unshare(CLONE_FILES) copies this thread's table and touches no memory. Descriptors
    // closed below are copies: the values that own the originals live in other threads, which
    // still have them in their own table, and this thread holds none but `keep`.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut keep: Vec<u32> = keep
        .iter()
        .filter_map(|fd| u32::try_from(*fd).ok())
        .collect();
    keep.extend([0, 1, 2]);
    keep.sort_unstable();
    let mut first = 0;
    for fd in keep {
        if first < fd {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

/// Whether this process may give its threads tables of their own: some containers' system call
/// filters forbid it. Tried out in a thread that ends at once.
#[must_use]
pub fn can_isolate() -> bool {
    let attempt = std::thread::Builder::new().spawn(|| isolate(&[]).is_ok());
    attempt.is_ok_and(|thread| thread.join().unwrap_or(false))
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: as above; the call only closes descriptors of this thread's private table.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Descriptors that one table may hold: the soft RLIMIT_NOFILE.
#[must_use]
pub fn limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::pipe::pipe;

    #[test]
    fn trying_out_leaves_this_table_alone() {
        let (reader, writer) = pipe().expect("pipe");
        assert!(super::can_isolate());
        rustix::io::write(&writer, b"x").expect("still open");
        assert_eq!(rustix::io::read(&reader, &mut [0]), Ok(1));
    }

    #[test]
    fn only_what_is_kept_stays_open_in_the_thread() {
        let (closed_reader, closed_writer) = pipe().expect("pipe");
        let (kept_reader, kept_writer) = pipe().expect("pipe");
        let kept = [kept_writer.as_raw_fd()];
        let lost = closed_writer.as_raw_fd();
        let writer = kept_writer;
        std::thread::spawn(move || {
            super::isolate(&kept).expect("isolate");
            rustix::io::write(&writer, b"x").expect("kept");
            // SAFETY: the descriptor is only asked for its flags, in this thread's table.
            assert_eq!(unsafe { libc::fcntl(lost, libc::F_GETFD) }, -1);
            std::mem::forget(writer);
        })
        .join()
        .expect("thread");
        let mut byte = [0];
        assert_eq!(rustix::io::read(&kept_reader, &mut byte), Ok(1));
        drop(closed_writer);
        assert_eq!(rustix::io::read(&closed_reader, &mut byte), Ok(0));
    }
}
