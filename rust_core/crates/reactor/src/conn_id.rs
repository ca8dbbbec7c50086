//! The names of connections.

use std::fmt;

use slab::{Generation, Id};

/// The number of connections that a slot has had.
///
/// Slot and generation together leave 8 bits of a 64-bit token for what a driver marks its operations
/// with. An id is forgotten long before its slot has been reused 2^24 times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Uses(u32);

impl Uses {
    const BITS: u32 = 24;
    const MAX: Self = Self((1 << Self::BITS) - 1);
}

impl Generation for Uses {
    #[inline]
    fn next(self) -> Self {
        Self(self.0.wrapping_add(1) & Self::MAX.0)
    }

    #[inline]
    fn steps_since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & Self::MAX.0
    }
}

/// The name of one connection of one shard. It never names a later connection in the same slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub(crate) Id<Uses>);

impl ConnId {
    /// The id of no connection, for timers that belong to the shard itself.
    pub const NONE: Self = Self(Id::new(u32::MAX, Uses::MAX));

    /// The slot's index, dense from 0; reused after a connection ends.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.0.slot()
    }

    /// The id as one integer below 2^56, for tokens that the kernel carries.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        ((self.0.generation().0 as u64) << 32) | self.slot() as u64
    }

    /// The inverse of [`ConnId::to_bits`]; bits from the 56th on are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Id::new(
            bits as u32,
            Uses((bits >> 32) as u32 & Uses::MAX.0),
        ))
    }
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.0.generation().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip() {
        for bits in [0, 7, 1 << 32, 0x00ab_cdef_1234_5678, (1 << 56) - 1] {
            let id = ConnId::from_bits(bits);
            assert_eq!(id.to_bits(), bits);
            assert_eq!(ConnId::from_bits(bits | 0xff << 56), id);
        }
        assert!(ConnId::NONE.to_bits() < 1 << 56);
        assert_eq!(ConnId::from_bits(ConnId::NONE.to_bits()), ConnId::NONE);
    }

    #[test]
    fn generations_wrap() {
        let first = Uses::default();
        assert_eq!(Uses::MAX.next(), first);
        assert_eq!(first.next().steps_since(Uses::MAX), 2);
        assert_eq!(Uses::MAX.steps_since(first), Uses::MAX.0);
    }
}
