//! Random numbers for choices and masking keys.

use std::hash::{BuildHasher, Hasher, RandomState};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64 (Steele, Lea, Flood 2014): a bijection that scatters its input.
#[inline]
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64: fast, determined by its seed, not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The sequence of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence that nobody can repeat.
    pub(crate) fn from_entropy() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias is at most `bound` / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }

    /// A number in [0, 1) with 53 random bits.
    #[inline]
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A masking key.
    #[inline]
    pub(crate) fn key(&mut self) -> [u8; 4] {
        ((self.next() >> 32) as u32).to_ne_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_sequence() {
        let mut rng = Rng::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!([rng.next(), rng.next(), rng.next()], expected);
    }

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
