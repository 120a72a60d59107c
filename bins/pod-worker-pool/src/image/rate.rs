//! How many pulls may begin: a token bucket. Pure.

use std::time::Duration;

/// What a pull takes from the bucket, in parts that flow in one by one.
const TOKEN: u64 = 1_000_000_000;

/// Tokens that flow in at a steady rate, up to a limit. It is full at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenBucket {
    per_second: u32,
    burst: u32,
    /// What is in it, in parts of a token.
    parts: u64,
    /// When that was, since the bucket was made.
    at: Duration,
}

impl TokenBucket {
    /// A full bucket. None is needed where the rate is zero: that is no limit.
    pub(super) fn new(per_second: u32, burst: u32) -> Option<TokenBucket> {
        (per_second > 0).then_some(TokenBucket {
            per_second,
            burst,
            parts: u64::from(burst) * TOKEN,
            at: Duration::ZERO,
        })
    }

    /// Takes a token, if there is one. `now` is the time since the bucket was made.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at).as_nanos();
        let flowed = passed.saturating_mul(u128::from(self.per_second));
        let flowed = u64::try_from(flowed).unwrap_or(u64::MAX);
        let full = u64::from(self.burst) * TOKEN;
        self.parts = self.parts.saturating_add(flowed).min(full);
        self.at = self.at.max(now);
        let Some(left) = self.parts.checked_sub(TOKEN) else {
            return false;
        };
        self.parts = left;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        assert_eq!(TokenBucket::new(0, 10), None);
    }

    #[test]
    fn as_many_tokens_are_there_as_flowed_in_and_no_more_than_fit() {
        // Rate, burst, and at which milliseconds how many of so many tries succeed.
        type Tries = &'static [(u64, u32, u32)];
        let cases: &[(u32, u32, Tries)] = &[
            (5, 10, &[(0, 12, 10)]),
            (5, 10, &[(0, 10, 10), (199, 1, 0), (200, 2, 1), (400, 2, 1)]),
            // A part of a token is kept, also when a try finds it too little.
            (5, 10, &[(0, 10, 10), (300, 1, 1), (399, 1, 0), (400, 1, 1)]),
            (5, 10, &[(0, 10, 10), (1_000, 9, 5), (3_600_000, 12, 10)]),
            (
                1,
                1,
                &[(0, 2, 1), (999, 1, 0), (1_000, 2, 1), (9_000, 2, 1)],
            ),
            (u32::MAX, 2, &[(0, 3, 2), (1, 3, 2), (u64::MAX, 3, 2)]),
            // Nothing fits into it.
            (5, 0, &[(0, 1, 0), (10_000, 1, 0)]),
            // Time does not go back; if it did, nothing would flow twice.
            (
                1,
                1,
                &[(5_000, 1, 1), (0, 1, 0), (5_000, 1, 0), (6_000, 1, 1)],
            ),
        ];
        for (per_second, burst, tries) in cases {
            let mut bucket = TokenBucket::new(*per_second, *burst).unwrap();
            for &(at, count, expected) in *tries {
                let now = Duration::from_millis(at);
                let taken = (0..count).filter(|_| bucket.take(now)).count();
                assert_eq!(
                    taken, expected as usize,
                    "{per_second} {burst} {tries:?}: at {at}"
                );
            }
        }
    }
}
