//! The connections of a shard that hold much memory, by size.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use reactor::ConnId;

/// Connections that hold fewer bytes are not listed.
const LEAST: usize = 1024;

/// Return the size class of so many bytes: their power of two, or 0 for few.
pub(super) fn size_class(bytes: usize) -> u8 {
    if bytes < LEAST {
        0
    } else {
        bytes.ilog2() as u8
    }
}

/// Connections by the size class of what they hold, and the order in which they came.
#[derive(Default)]
pub(super) struct Holders(BTreeMap<(Reverse<u8>, u64), ConnId>);

impl Holders {
    /// List the connection with the number `cid`, unless it holds little.
    pub(super) fn insert(&mut self, cid: u64, class: u8, id: ConnId) {
        if class > 0 {
            self.0.insert((Reverse(class), cid), id);
        }
    }

    /// Take a connection out that was listed under this class.
    pub(super) fn remove(&mut self, cid: u64, class: u8) {
        if class > 0 {
            self.0.remove(&(Reverse(class), cid));
        }
    }

    /// Return the oldest connection of the largest class.
    pub(super) fn first(&self) -> Option<ConnId> {
        self.0.first_key_value().map(|(_, id)| *id)
    }

    /// Return the largest class; 0 when none is listed.
    pub(super) fn largest_class(&self) -> u8 {
        let first = self.0.first_key_value();
        first.map_or(0, |((Reverse(class), _), _)| *class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_largest_is_first() {
        let mut holders = Holders::default();
        assert_eq!((holders.first(), holders.largest_class()), (None, 0));
        let sizes = [(7, 500), (8, 5000), (5, 70_000), (3, 100_000), (9, 131_072)];
        for (cid, bytes) in sizes {
            holders.insert(cid, size_class(bytes), ConnId::from_bits(cid));
        }
        let mut order = Vec::new();
        while let Some(id) = holders.first() {
            let cid = id.to_bits();
            let bytes = sizes
                .iter()
                .find(|size| size.0 == cid)
                .map_or(0, |size| size.1);
            assert_eq!(holders.largest_class(), size_class(bytes));
            holders.remove(cid, size_class(bytes));
            order.push(cid);
        }
        assert_eq!(order, [9, 3, 5, 8], "7 holds too little");
    }
}
