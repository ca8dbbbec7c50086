//! Random numbers that cannot be predicted: for reply subjects, ids, nonces and the seeds of other generators.

use std::io;

/// Bytes that are drawn at once, so that a number does not cost a system call of its own.
const BLOCK: usize = 512;

/// Numbers from the operating system's generator.
pub(crate) struct SystemRandom {
    block: [u8; BLOCK],
    /// Bytes of the block that have been handed out.
    used: usize,
    /// The generator of a simulation.
    #[cfg(feature = "sim")]
    seed: Option<fastrand::Rng>,
}

impl SystemRandom {
    /// Return a generator that draws its first block when it is asked for a number.
    pub(crate) const fn new() -> Self {
        Self {
            block: [0; BLOCK],
            used: BLOCK,
            #[cfg(feature = "sim")]
            seed: None,
        }
    }

    /// Return a generator whose sequence `seed` determines, for a simulation.
    #[cfg(feature = "sim")]
    pub(crate) fn seeded(seed: u64) -> Self {
        let mut simulated = Self::new();
        simulated.seed = Some(fastrand::Rng::with_seed(seed));
        simulated
    }

    /// Return a number whose 64 bits are all random.
    ///
    /// # Errors
    /// The kernel's. A process that has drawn a block before never sees one.
    pub(crate) fn next(&mut self) -> io::Result<u64> {
        #[cfg(feature = "sim")]
        if let Some(seed) = &mut self.seed {
            return Ok(seed.u64(..));
        }
        if self.used == BLOCK {
            getrandom::fill(&mut self.block).map_err(io::Error::from)?;
            self.used = 0;
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.block[self.used..][..8]);
        self.used += 8;
        Ok(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_differ_within_and_between_blocks() {
        let (mut one, mut other) = (SystemRandom::new(), SystemRandom::new());
        let count = 3 * BLOCK / 8;
        let drawn: HashSet<_> = (0..count)
            .flat_map(|_| [one.next().unwrap(), other.next().unwrap()])
            .collect();
        assert_eq!(drawn.len(), 2 * count);
        // Each bit is 0 in some number and 1 in another.
        assert_eq!(drawn.iter().fold(0, |bits, number| bits | number), u64::MAX);
        assert_eq!(drawn.iter().fold(u64::MAX, |bits, number| bits & number), 0);
    }
}
