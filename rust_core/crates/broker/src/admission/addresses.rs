//! The connections of each address.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tables with a lock each, so that shards seldom wait for each other.
const PARTITIONS: usize = 64;

/// Bits of an IPv6 address that name a site: its hosts choose the other ones.
const SITE_BITS: u32 = 64;

/// The number of connections of each address, exact for the whole broker.
pub(crate) struct Addresses {
    /// Connections that an address may have; 0 for any number, which is not counted then.
    most: usize,
    hasher: RandomState,
    partitions: Box<[Mutex<HashMap<IpAddr, usize>>]>,
}

impl Addresses {
    pub(crate) fn new(most: usize) -> Self {
        let partitions = if most > 0 { PARTITIONS } else { 0 };
        Self {
            most,
            hasher: RandomState::new(),
            partitions: (0..partitions).map(|_| Mutex::default()).collect(),
        }
    }

    /// Count a connection of an address, if it may have one more.
    pub(crate) fn add(&self, address: IpAddr) -> bool {
        if self.most == 0 {
            return true;
        }
        let address = subject_of_limit(address);
        let mut partition = self.partition(address);
        let count = partition.entry(address).or_default();
        let has_room = *count < self.most;
        *count += usize::from(has_room);
        has_room
    }

    /// Count a connection that has ended.
    pub(crate) fn remove(&self, address: IpAddr) {
        if self.most == 0 {
            return;
        }
        let address = subject_of_limit(address);
        let mut partition = self.partition(address);
        if let Entry::Occupied(mut entry) = partition.entry(address) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    /// Return the number of connections that are counted.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn len(&self) -> usize {
        let lock = |one: &Mutex<HashMap<IpAddr, usize>>| -> usize {
            let counts = one.lock().unwrap_or_else(PoisonError::into_inner);
            counts.values().sum()
        };
        self.partitions.iter().map(lock).sum()
    }

    fn partition(&self, address: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        let index = self.hasher.hash_one(address) as usize % self.partitions.len();
        let partition = &self.partitions[index];
        partition.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Return the address that connections are counted by: of IPv6 the site's.
fn subject_of_limit(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let mask = u128::MAX << (u128::BITS - SITE_BITS);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_so_many_and_the_others_theirs() {
        let addresses = Addresses::new(2);
        let one = address("10.0.0.1");
        assert!(addresses.add(one) && addresses.add(address("::ffff:10.0.0.1")));
        assert!(!addresses.add(one) && !addresses.add(one));
        assert!(addresses.add(address("10.0.0.2")));
        assert_eq!(addresses.len(), 3);
        addresses.remove(one);
        assert!(addresses.add(one) && !addresses.add(one));
        addresses.remove(one);
        addresses.remove(one);
        addresses.remove(address("10.0.0.2"));
        assert_eq!(addresses.len(), 0);
        let is_empty = |one: &Mutex<HashMap<_, _>>| one.lock().expect("unpoisoned").is_empty();
        assert!(addresses.partitions.iter().all(is_empty));
    }

    #[test]
    fn the_hosts_of_an_ipv6_site_are_one() {
        let addresses = Addresses::new(1);
        assert!(addresses.add(address("2001:db8:1:2::1")));
        assert!(!addresses.add(address("2001:db8:1:2:ffff:ffff:ffff:ffff")));
        assert!(addresses.add(address("2001:db8:1:3::1")));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let addresses = Addresses::new(0);
        let one = address("10.0.0.1");
        assert!((0..1000).all(|_| addresses.add(one)));
        addresses.remove(one);
        assert_eq!(addresses.len(), 0);
    }
}
