//! How many tables of descriptors the connections need: RLIMIT_NOFILE bounds a table, not a process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::{Context, Failure};

/// Descriptors of a table that are neither connections nor other threads' mailboxes: standard streams,
/// listeners, signals, the driver's own.
const RESERVED: u32 = 64;

/// SO_REUSEPORT spreads a million connections over dozens of listeners within a few percent: a table
/// must have room for a tenth more than its share.
const IMBALANCE_PERCENT: u64 = 110;

/// A process's connections, divided among tables: one for each thread (epoll) or ring (uring).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tables {
    /// Number of tables.
    pub(crate) count: u32,
    /// Slots of a ring's table: more than its share, since the kernel divides fewer connections less
    /// evenly.
    pub(crate) slots: u32,
}

impl Tables {
    /// For `connections`, of which `trunks` are all in the first table, divided exactly or, if
    /// `by_kernel`, by SO_REUSEPORT. `count` of them, or as few as possible.
    pub(crate) fn plan(
        connections: u32,
        trunks: u32,
        by_kernel: bool,
        count: Option<u32>,
        limit: u32,
    ) -> Result<Self, Failure> {
        let size = |count: u32| {
            let spread = if by_kernel && count > 1 {
                u64::from(connections) * IMBALANCE_PERCENT / 100
            } else {
                u64::from(connections)
            };
            spread.div_ceil(u64::from(count)) + u64::from(trunks)
        };
        let fits = |count: &u32| size(*count) + u64::from(RESERVED + count) <= u64::from(limit);
        let fewest = (1..=1024).find(fits).ok_or_else(|| {
            Failure::new(format!(
                "{connections} connections do not fit into 1024 tables under RLIMIT_NOFILE {limit}"
            ))
        })?;
        let count = count.unwrap_or(fewest);
        if !fits(&count) {
            return Err(Failure::new(format!(
                "{connections} connections need at least {fewest} threads or rings under \
                 RLIMIT_NOFILE {limit}, not {count}"
            )));
        }
        let ample = size(count) * 2 + 64;
        let slots = u32::try_from(ample).map_or(limit, |ample| ample.min(limit));
        Ok(Self { count, slots })
    }
}

/// Raises RLIMIT_NOFILE as far as is allowed without privileges and returns it.
pub(crate) fn raise_limit() -> Result<u32, Failure> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).context("raise RLIMIT_NOFILE to its hard limit")?;
    let limit = limit.maximum.unwrap_or(u64::MAX);
    // The kernel's own bound of a ring's table (IORING_MAX_FIXED_FILES), and of a process by default.
    Ok(u32::try_from(limit).unwrap_or(u32::MAX).min(1 << 20))
}

/// Part number `index` of `whole` divided into `parts` that differ by one at most.
pub(crate) fn share(whole: u32, parts: u32, index: u32) -> u32 {
    whole / parts + u32::from(index < whole % parts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn as_few_tables_as_hold_all() {
        let plan = |n, by_kernel| Tables::plan(n, 16, by_kernel, None, 20_000).unwrap();
        assert_eq!(plan(1, true).count, 1);
        assert_eq!(plan(19_000, true).count, 1);
        assert_eq!(plan(20_000, true).count, 2);
        let million = plan(1_000_000, true);
        assert_eq!(million.count, 56);
        assert_eq!(million.slots, 20_000);
        assert_eq!(plan(1_000_000, false).count, 51);
    }

    #[test]
    fn too_few_are_refused_with_what_would_do() {
        let error = Tables::plan(30_000, 16, true, Some(1), 20_000).unwrap_err();
        assert!(error.to_string().contains("at least 2"), "{error}");
        assert!(Tables::plan(1000, 16, true, None, 100).is_err());
        let more = Tables::plan(1000, 16, true, Some(3), 20_000).unwrap();
        assert_eq!(
            more,
            Tables {
                count: 3,
                slots: 830
            }
        );
    }

    #[test]
    fn shares_add_up() {
        let shares: Vec<_> = (0..3).map(|index| share(11, 3, index)).collect();
        assert_eq!(shares, [4, 4, 3]);
    }
}
