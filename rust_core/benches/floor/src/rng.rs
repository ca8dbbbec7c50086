//! Which user asks next.

/// A small generator (SplitMix64) whose sequence its seed fixes.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`; 0 for a limit of 0.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        // The upper half of a 32 by 32 bit product: no division, and a bias below 2^-10 for ten
        // million users.
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_its_turn() {
        let mut rng = Rng::new(1);
        let mut turns = [0u32; 10];
        for _ in 0..10_000 {
            turns[rng.below(10) as usize] += 1;
        }
        assert!(turns.iter().all(|n| (800..1200).contains(n)), "{turns:?}");
        assert_eq!(rng.below(0), 0);
    }
}
