//! How many clients the limit of open files allows, and how many shards they need.

use reactor::fdtable;

use crate::config::{Auto, Config, ConfigError};

/// Most shards that may be set.
pub(crate) const MAX_SHARDS: usize = 1024;

/// Descriptors of a table that are not connections: standard streams, listeners, the backend's own.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Of a thread or a ring (IORING_MAX_FIXED_FILES).
const MOST_IN_ONE_TABLE: u64 = 1 << 20;

/// SO_REUSEPORT spreads a million connections over dozens of listeners within a few percent: a
/// shard's table must have room for more than its share.
const IMBALANCE: f64 = 1.1;

/// Connections of a shard that are not clients: of the monitor, and those that are told that there is
/// no room for them.
const SPARE_CONNECTIONS: usize = 1024;

/// Clients of a broker whose connections are not bounded by descriptors.
const MOST_CLIENTS: usize = 1 << 26;

/// What the limit of open files holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tables {
    /// The process: its threads may not have tables of their own.
    One,
    /// Each shard.
    PerShard,
    /// Each ring of a shard, which has as many as it needs.
    PerRing,
}

/// What the broker consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) shards: usize,
    /// Clients at once, all shards together.
    pub(crate) max_connections: usize,
    /// Connections that each shard needs room for.
    pub(crate) connections_of_a_shard: usize,
}

/// The size that fits the configuration and the machine.
pub(crate) fn size(config: &Config, tables: Tables) -> Result<Size, ConfigError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let capacity = Capacity {
        limit: fdtable::limit(),
        tables,
    };
    let (shards, max_connections) = match (tables, config.shards, config.max_connections) {
        (Tables::PerRing, shards, Auto::Value(wanted)) if wanted <= MOST_CLIENTS => {
            (shards.or(cores), wanted)
        }
        (Tables::PerRing, _, Auto::Value(wanted)) => {
            return unusable(format!("{wanted} are more than {MOST_CLIENTS}"));
        }
        (_, shards, Auto::Auto) => capacity.largest(shards.or(cores))?,
        (_, Auto::Auto, Auto::Value(wanted)) => capacity.enough_shards(cores, wanted)?,
        (_, Auto::Value(shards), Auto::Value(wanted)) => capacity.check(shards, wanted)?,
    };
    let share = max_connections as f64 / shards as f64;
    let imbalance = if shards > 1 { IMBALANCE } else { 1.0 };
    Ok(Size {
        shards,
        max_connections,
        connections_of_a_shard: (share * imbalance).ceil() as usize + SPARE_CONNECTIONS,
    })
}

/// Bytes of memory that this process may use: the machine's, or less where a control group says so
/// (memory.max in cgroups(7), version 2).
pub(crate) fn memory() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = machine
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<usize>().ok())
        .map_or(usize::MAX, |kilobytes| kilobytes.saturating_mul(1024));
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(|path| format!("/sys/fs/cgroup{path}/memory.max"))
        .and_then(|path| std::fs::read_to_string(path).ok())
        .and_then(|text| text.trim().parse().ok());
    machine.min(group.unwrap_or(usize::MAX))
}

/// How many clients the limit of open files allows.
struct Capacity {
    limit: u64,
    tables: Tables,
}

impl Capacity {
    /// What `shards` shards can hold; with io_uring, what one ring of each can.
    fn of(&self, shards: usize) -> usize {
        // Each table holds every shard's wake-up descriptor.
        let taken = match self.tables {
            // So that one ring holds them all, unless it is small.
            Tables::PerRing => (SPARE_CONNECTIONS as u64).min(self.limit / 4),
            _ => RESERVED_DESCRIPTORS + shards as u64,
        };
        let room = self.limit.min(MOST_IN_ONE_TABLE).saturating_sub(taken) as f64;
        let tables = if self.tables == Tables::One {
            1
        } else {
            shards
        };
        let imbalance = if tables > 1 { IMBALANCE } else { 1.0 };
        (room * tables as f64 / imbalance) as usize
    }

    fn largest(&self, shards: usize) -> Result<(usize, usize), ConfigError> {
        match self.of(shards) {
            0 => unusable(format!(
                "the limit of {} open files leaves none for clients of {shards} shards",
                self.limit
            )),
            clients => Ok((shards, clients)),
        }
    }

    fn enough_shards(&self, cores: usize, wanted: usize) -> Result<(usize, usize), ConfigError> {
        match self.shards_for(cores, wanted) {
            Some(shards) => Ok((shards, wanted)),
            None => unusable(format!(
                "{wanted} are more than the limit of {} open files allows, at most {}: raise \
                 the limit (ulimit -n)",
                self.limit,
                (cores..=MAX_SHARDS).map(|n| self.of(n)).max().unwrap_or(0)
            )),
        }
    }

    fn check(&self, shards: usize, wanted: usize) -> Result<(usize, usize), ConfigError> {
        if self.of(shards) >= wanted {
            return Ok((shards, wanted));
        }
        let enough = match self.shards_for(1, wanted) {
            Some(needed) => format!("set shards to {needed} or raise the limit (ulimit -n)"),
            None => "raise the limit (ulimit -n)".into(),
        };
        unusable(format!(
            "{wanted} are more than {shards} shards can hold at the limit of {} open files, {}: \
             {enough}",
            self.limit,
            self.of(shards)
        ))
    }

    /// The fewest shards, at least `least`, that can hold `clients`.
    fn shards_for(&self, least: usize, clients: usize) -> Option<usize> {
        (least..=MAX_SHARDS).find(|shards| self.of(*shards) >= clients)
    }
}

fn unusable<T>(what: String) -> Result<T, ConfigError> {
    Err(ConfigError {
        key: "max_connections",
        what,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_clients_need_more_shards_where_each_has_a_table() {
        let capacity = Capacity {
            limit: 20_000,
            tables: Tables::PerShard,
        };
        assert_eq!(capacity.of(1), 19_935);
        assert_eq!(capacity.shards_for(2, 15_000), Some(2));
        let million = capacity.shards_for(2, 1_000_016).expect("enough");
        assert!((50..60).contains(&million), "{million}");
        let shared = Capacity {
            limit: 20_000,
            tables: Tables::One,
        };
        assert!(shared.of(8) < shared.of(1));
        assert_eq!(shared.shards_for(1, 20_000), None);
        let none = Capacity {
            limit: 60,
            tables: Tables::PerShard,
        };
        assert_eq!(none.of(1), 0);
        assert!(none.largest(1).is_err());
    }

    #[test]
    fn rings_hold_any_number_of_clients() {
        let config = Config {
            shards: Auto::Value(1),
            max_connections: Auto::Value(10_000_000),
            ..Config::default()
        };
        let size = size(&config, Tables::PerRing).expect("possible");
        assert_eq!((size.shards, size.max_connections), (1, 10_000_000));
        assert!(size.connections_of_a_shard > 10_000_000);
        let config = Config {
            shards: Auto::Value(2),
            ..config
        };
        let size = super::size(&config, Tables::PerRing).expect("possible");
        assert!(size.connections_of_a_shard > 5_400_000);
        let small = Capacity {
            limit: 1024,
            tables: Tables::PerRing,
        };
        assert_eq!(small.largest(1), Ok((1, 768)));
        assert!(size.connections_of_a_shard < 5_600_000);
    }
}
