//! The memory that this process may use: the machine's, or less inside a control group.

use std::fs;
use std::path::Path;

/// The mount point of the control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Return the bytes of memory that this process may use.
///
/// The least of the machine's memory (`MemTotal` of proc_meminfo(5)) and the bounds of the control groups
/// that the process is in and of all groups around them: `memory.max` of version 2, and
/// `memory.limit_in_bytes` of version 1, see cgroups(7).
pub(crate) fn available() -> usize {
    available_by(&|path| fs::read_to_string(path).unwrap_or_default())
}

/// Like [`available`], with the files that `read` knows; a file that does not exist is empty.
fn available_by(read: &dyn Fn(&Path) -> String) -> usize {
    let machine = read(Path::new("/proc/meminfo"));
    let machine = machine
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<usize>().ok())
        .map_or(usize::MAX, |kilobytes| kilobytes.saturating_mul(1024));
    read(Path::new("/proc/self/cgroup"))
        .lines()
        .filter_map(|line| group_limit(read, line))
        .fold(machine, usize::min)
}

/// Return the bound that a line of `/proc/self/cgroup` leads to: `hierarchy:controllers:path`.
fn group_limit(read: &dyn Fn(&Path) -> String, line: &str) -> Option<usize> {
    let mut fields = line.splitn(3, ':');
    let (hierarchy, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, file) = if hierarchy == "0" {
        (Path::new(GROUPS).to_path_buf(), "memory.max")
    } else if controllers.split(',').any(|one| one == "memory") {
        (Path::new(GROUPS).join("memory"), "memory.limit_in_bytes")
    } else {
        return None;
    };
    // Inside a container the path may be the host's, and the container's own group is the mount point.
    let group = mount.join(path.trim_start_matches('/'));
    group
        .ancestors()
        .take_while(|group| group.starts_with(&mount))
        .filter_map(|group| read(&group.join(file)).trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return what is available on a machine with these files.
    fn with(files: &[(&str, &str)]) -> usize {
        available_by(&|path| {
            let file = files.iter().find(|file| Path::new(file.0) == path);
            file.map_or("", |file| file.1).to_owned()
        })
    }

    const MACHINE: (&str, &str) = ("/proc/meminfo", "MemFree: 1 kB\nMemTotal:  4000 kB\n");

    #[test]
    fn the_machine_bounds_all() {
        assert_eq!(with(&[]), usize::MAX);
        assert_eq!(with(&[MACHINE]), 4_096_000);
        let group = ("/proc/self/cgroup", "0::/a\n");
        let unbound = ("/sys/fs/cgroup/a/memory.max", "max\n");
        assert_eq!(with(&[MACHINE, group, unbound]), 4_096_000);
        let more = ("/sys/fs/cgroup/a/memory.max", "9000000\n");
        assert_eq!(with(&[MACHINE, group, more]), 4_096_000);
    }

    #[test]
    fn groups_around_bound_too() {
        let group = ("/proc/self/cgroup", "0::/a/b/c\n");
        let own = ("/sys/fs/cgroup/a/b/c/memory.max", "3000000\n");
        let parent = ("/sys/fs/cgroup/a/memory.max", "2000000\n");
        assert_eq!(with(&[MACHINE, group, own]), 3_000_000);
        assert_eq!(with(&[MACHINE, group, own, parent]), 2_000_000);
    }

    #[test]
    fn version_1_is_read() {
        let groups = "12:cpu:/x\n5:memory:/docker/abc\n0::/\n";
        let group = ("/proc/self/cgroup", groups);
        let own = (
            "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes",
            "1000000\n",
        );
        assert_eq!(with(&[MACHINE, group, own]), 1_000_000);
        // Seen from inside a container.
        let mounted = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "900000\n");
        assert_eq!(with(&[MACHINE, group, mounted]), 900_000);
    }
}
