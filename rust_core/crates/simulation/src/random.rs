//! Random choices, determined by a seed.

/// A generator that its seed determines.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Return a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    /// Return a random element of `all`, which is not empty.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Return true once in `odds` times.
    pub(crate) fn once_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }
}
