//! How many clients the limit of open files allows, and how many shards they need.

use reactor::fdtable;

use crate::config::{Auto, Config, ConfigError};

/// Most shards that may be set.
pub(crate) const MAX_SHARDS: usize = 1024;

/// Descriptors of a table that are not connections: standard streams, listeners, the backend's own.
const RESERVED_DESCRIPTORS: u64 = 64;

/// SO_REUSEPORT spreads a million connections over dozens of listeners within a few percent: a
/// shard's table must have room for more than its share.
const IMBALANCE: f64 = 1.1;

/// Number of shards, and of clients that they may hold.
pub(crate) fn size(config: &Config, own_tables: bool) -> Result<(usize, usize), ConfigError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let capacity = Capacity {
        limit: fdtable::limit(),
        own_tables,
    };
    let unusable = |what| {
        Err(ConfigError {
            key: "max_connections",
            what,
        })
    };
    let limit = capacity.limit;
    match (config.shards, config.max_connections) {
        (shards, Auto::Auto) => {
            let shards = match shards {
                Auto::Auto => cores,
                Auto::Value(shards) => shards,
            };
            match capacity.of(shards) {
                0 => unusable(format!(
                    "the limit of {limit} open files leaves none for clients of {shards} shards"
                )),
                clients => Ok((shards, clients)),
            }
        }
        (Auto::Auto, Auto::Value(wanted)) => match capacity.shards_for(cores, wanted) {
            Some(shards) => Ok((shards, wanted)),
            None => unusable(format!(
                "{wanted} are more than the limit of {limit} open files allows, at most {}: raise \
                 the limit (ulimit -n)",
                (cores..=MAX_SHARDS)
                    .map(|n| capacity.of(n))
                    .max()
                    .unwrap_or(0)
            )),
        },
        (Auto::Value(shards), Auto::Value(wanted)) => {
            if capacity.of(shards) >= wanted {
                return Ok((shards, wanted));
            }
            let enough = match capacity.shards_for(1, wanted) {
                Some(needed) => format!("set shards to {needed} or raise the limit (ulimit -n)"),
                None => "raise the limit (ulimit -n)".into(),
            };
            unusable(format!(
                "{wanted} are more than {shards} shards can hold at the limit of {limit} open \
                 files, {}: {enough}",
                capacity.of(shards)
            ))
        }
    }
}

/// How many clients the limit of open files allows.
struct Capacity {
    limit: u64,
    /// Whether the limit holds for each shard, rather than for all.
    own_tables: bool,
}

impl Capacity {
    /// What `shards` shards can hold.
    fn of(&self, shards: usize) -> usize {
        // Each table holds every shard's wake-up descriptor.
        let taken = RESERVED_DESCRIPTORS + shards as u64;
        let room = self.limit.min(1 << 32).saturating_sub(taken) as f64;
        let tables = if self.own_tables { shards } else { 1 };
        let imbalance = if tables > 1 { IMBALANCE } else { 1.0 };
        (room * tables as f64 / imbalance) as usize
    }

    /// The fewest shards, at least `least`, that can hold `clients`.
    fn shards_for(&self, least: usize, clients: usize) -> Option<usize> {
        (least..=MAX_SHARDS).find(|shards| self.of(*shards) >= clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_clients_need_more_shards_where_each_has_a_table() {
        let capacity = Capacity {
            limit: 20_000,
            own_tables: true,
        };
        assert_eq!(capacity.of(1), 19_935);
        assert_eq!(capacity.shards_for(2, 15_000), Some(2));
        let million = capacity.shards_for(2, 1_000_016).expect("enough");
        assert!((50..60).contains(&million), "{million}");
        let shared = Capacity {
            limit: 20_000,
            own_tables: false,
        };
        assert!(shared.of(8) < shared.of(1));
        assert_eq!(shared.shards_for(1, 20_000), None);
        let none = Capacity {
            limit: 60,
            own_tables: true,
        };
        assert_eq!(none.of(1), 0);
    }
}
