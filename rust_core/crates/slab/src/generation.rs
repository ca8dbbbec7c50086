//! What tells the values of one slot apart.

/// The part of an [`Id`](crate::Id) that tells a value from earlier ones in its slot.
///
/// It wraps: an id is mistaken for a later one after as many values in the same slot as the type
/// has numbers. `()` is for owners that never ask for a value that they removed.
pub trait Generation: Copy + Default + PartialEq {
    /// Return the generation of the slot's next value.
    #[must_use]
    fn next(self) -> Self;

    /// Return how many steps this generation is ahead of `earlier`.
    fn steps_since(self, earlier: Self) -> u32;
}

impl Generation for () {
    #[inline]
    fn next(self) {}

    #[inline]
    fn steps_since(self, (): ()) -> u32 {
        0
    }
}

impl Generation for u16 {
    #[inline]
    fn next(self) -> Self {
        self.wrapping_add(1)
    }

    #[inline]
    fn steps_since(self, earlier: Self) -> u32 {
        self.wrapping_sub(earlier).into()
    }
}

impl Generation for u32 {
    #[inline]
    fn next(self) -> Self {
        self.wrapping_add(1)
    }

    #[inline]
    fn steps_since(self, earlier: Self) -> u32 {
        self.wrapping_sub(earlier)
    }
}
