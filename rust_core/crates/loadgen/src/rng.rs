//! Random numbers for choices and masking keys.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Return the output function of SplitMix64 (Steele, Lea, Flood 2014): a bijection that scatters
/// its input.
#[inline]
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A fast generator that its seed determines; not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Rng(fastrand::Rng);

impl Rng {
    /// Return the sequence of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Return a sequence that cannot be repeated.
    pub(crate) fn from_entropy() -> Self {
        Self::new(RandomState::new().build_hasher().finish())
    }

    /// Return 64 random bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Return a number below `bound`, or 0 if `bound` is 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0.u32(..bound.max(1))
    }

    /// Return a number in [0, 1) with 53 random bits.
    #[inline]
    pub(crate) fn fraction(&mut self) -> f64 {
        self.0.f64()
    }

    /// Return a masking key.
    #[inline]
    pub(crate) fn key(&mut self) -> [u8; 4] {
        self.0.u32(..).to_ne_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_even_and_in_range() {
        let mut rng = Rng::new(7);
        assert_eq!(rng.below(0), 0);
        let mut seen = [0u32; 5];
        for _ in 0..10_000 {
            seen[rng.below(5) as usize] += 1;
        }
        assert!(
            seen.iter().all(|count| (1_800..2_200).contains(count)),
            "{seen:?}"
        );
        let mean: f64 = (0..10_000).map(|_| rng.fraction()).sum::<f64>() / 10_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
    }

    #[test]
    fn entropy_differs() {
        assert_ne!(Rng::from_entropy().next(), Rng::from_entropy().next());
    }
}
