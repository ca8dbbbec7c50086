//! How many clients the limit of open files allows, and how many shards they need.

use reactor::fdtable;

use crate::config::{Auto, Config, ConfigError};

/// Most shards that may be set.
pub(crate) const MAX_SHARDS: usize = 1024;

/// Descriptors of a table that are not connections: standard streams, listeners, the backend's own.
const RESERVED_DESCRIPTORS: usize = 64;

/// Most descriptors of a thread or a ring (IORING_MAX_FIXED_FILES).
const MOST_IN_ONE_TABLE: usize = 1 << 20;

/// SO_REUSEPORT spreads a million connections over dozens of listeners within a few percent: a
/// shard's table must have room for more than its share.
const IMBALANCE: f64 = 1.1;

/// Connections of a shard beyond that: few connections are spread less evenly.
const FEW: usize = 512;

/// Connections of a shard that have no place among the clients, where its table is not small; see
/// [`Room`].
pub(crate) const SPARE_CONNECTIONS: usize = 1024;

/// Clients of a broker whose connections are not bounded by descriptors.
const MOST_CLIENTS: usize = 1 << 26;

/// The tables that the limit of open files holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tables {
    /// The process: its threads may not have tables of their own.
    One,
    /// Each shard.
    PerShard,
    /// Each ring of a shard, which has as many as it needs.
    PerRing,
}

/// The size of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) shards: usize,
    /// Clients at once, all shards together.
    pub(crate) max_connections: usize,
    /// Connections that each shard has room for.
    pub(crate) room: Room,
}

/// The connections that one shard has descriptors for, by purpose: none of them can use up those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Clients that have a place.
    pub(crate) clients: usize,
    /// Clients that are told why they have none.
    pub(crate) told: usize,
    /// Clients that are closed for newcomers within a turn.
    pub(crate) ending: usize,
    /// Callers of the monitor, those that are closed for newcomers included.
    pub(crate) monitor: usize,
}

impl Room {
    /// Divide `spare` connections besides those of the clients, of a table that `shards` shards have in common.
    pub(crate) fn new(clients: usize, spare: usize, shards: usize) -> Self {
        let monitor = (spare / 4).clamp(8, 128);
        let rest = spare.saturating_sub(monitor) / shards;
        let told = (rest * 2 / 3).max(1);
        Self {
            clients,
            told,
            ending: rest.saturating_sub(told).max(1),
            monitor,
        }
    }

    /// Return the number of all connections.
    pub(crate) fn all(&self) -> usize {
        self.clients + self.told + self.ending + self.monitor
    }
}

/// Return the size that fits the configuration and the machine.
pub(crate) fn size(config: &Config, tables: Tables) -> Result<Size, ConfigError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let capacity = Capacity {
        limit: usize::try_from(fdtable::limit()).unwrap_or(usize::MAX),
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
    let table = match tables {
        Tables::PerRing => (share * imbalance).ceil() as usize + FEW,
        Tables::PerShard => capacity.room(shards),
        // The places themselves are the bound.
        Tables::One => max_connections,
    };
    let spare = match tables {
        // There are as many rings as it takes.
        Tables::PerRing => SPARE_CONNECTIONS,
        Tables::PerShard | Tables::One => capacity.spare(),
    };
    let sharing = if tables == Tables::One { shards } else { 1 };
    Ok(Size {
        shards,
        max_connections,
        room: Room::new(table.min(max_connections), spare, sharing),
    })
}

/// How many clients the limit of open files allows.
struct Capacity {
    limit: usize,
    tables: Tables,
}

impl Capacity {
    /// Return the clients that `shards` shards can hold; with io_uring, those that one ring of each can.
    fn of(&self, shards: usize) -> usize {
        let tables = if self.tables == Tables::One {
            1
        } else {
            shards
        };
        let imbalance = if tables > 1 { IMBALANCE } else { 1.0 };
        (self.room(shards) as f64 * tables as f64 / imbalance) as usize
    }

    /// Return the clients that a table has room for when there are so many shards.
    fn room(&self, shards: usize) -> usize {
        let besides = match self.tables {
            // So that one ring holds them all, unless it is small.
            Tables::PerRing if shards > 1 => FEW.min(self.limit / 32),
            Tables::PerRing => 0,
            // Each table holds every shard's wake-up descriptor.
            Tables::PerShard | Tables::One => RESERVED_DESCRIPTORS + shards,
        };
        let table = self.limit.min(MOST_IN_ONE_TABLE);
        table.saturating_sub(besides + self.spare())
    }

    /// Return the connections without a place that a table has room for.
    fn spare(&self) -> usize {
        let part = match self.tables {
            Tables::PerRing => 4,
            Tables::PerShard | Tables::One => 8,
        };
        SPARE_CONNECTIONS.min(self.limit / part)
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

    /// Return the fewest shards, at least `least`, that can hold `clients`.
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
        assert_eq!(capacity.of(1), 18_911);
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
        assert_eq!(size.room.clients, 10_000_000);
        assert_eq!(size.room.all(), 10_000_000 + SPARE_CONNECTIONS);
        let config = Config {
            shards: Auto::Value(2),
            ..config
        };
        let size = super::size(&config, Tables::PerRing).expect("possible");
        assert_eq!(size.room.clients, 5_500_000 + FEW);
        let few = Config {
            max_connections: Auto::Value(5),
            ..config
        };
        // All of them may come to one shard.
        let size = super::size(&few, Tables::PerRing).expect("possible");
        assert_eq!(size.room.clients, 5);
        let small = Capacity {
            limit: 1024,
            tables: Tables::PerRing,
        };
        assert_eq!(small.largest(1), Ok((1, 768)));
    }

    #[test]
    fn a_table_has_room_for_all_purposes_at_once() {
        for (limit, tables, shards) in [
            (100, Tables::PerShard, 1),
            (400, Tables::PerShard, 1),
            (1024, Tables::PerShard, 4),
            (20_000, Tables::PerShard, 59),
            (1 << 20, Tables::PerShard, 2),
            (1024, Tables::One, 2),
            (20_000, Tables::One, 64),
            (20_000, Tables::PerRing, 1),
            (20_000, Tables::PerRing, 2),
        ] {
            let capacity = Capacity { limit, tables };
            let (_, clients) = capacity.largest(shards).expect("room");
            let sharing = if tables == Tables::One { shards } else { 1 };
            let room = Room::new(capacity.room(shards), capacity.spare(), sharing);
            let of_a_shard = room.told + room.ending;
            let used = room.clients + of_a_shard * sharing + room.monitor;
            assert!(used <= limit, "{used} of {limit} for {shards} shards");
            assert!(clients > 0 && room.monitor >= 8, "{room:?}");
        }
        let large = Room::new(1, SPARE_CONNECTIONS, 1);
        assert_eq!((large.monitor, large.told, large.ending), (128, 597, 299));
    }
}
