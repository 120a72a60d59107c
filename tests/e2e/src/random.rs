//! Numbers that follow from a seed, for tests that choose their moments (xorshift).

use std::hash::{BuildHasher as _, RandomState};

/// A sequence of them.
#[derive(Debug)]
pub struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// With another seed each time.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        let seed = RandomState::new().hash_one("seed") | 1;
        Self { seed, state: seed }
    }

    /// For reports.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next number, less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % limit
    }

    /// One of them. They must not be none.
    pub fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        let index = self.below(all.len() as u64);
        all[usize::try_from(index).unwrap_or_default()]
    }
}
