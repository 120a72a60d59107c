//! The audit line: one for each decision about a pod, or about what one of its volumes
//! leads to, at a bounded rate.

use std::time::Duration;

use clock::UnixNanos;
use pod::{PodIdentity, PodSource};

/// Most lines in a window: a full node that restarts has a line for each pod.
const MAX_LINES: u32 = 500;
const WINDOW: Duration = Duration::from_secs(10);

/// Writes audit lines.
#[derive(Debug, Default)]
pub(super) struct Audit {
    began: Option<UnixNanos>,
    written: u32,
    left_out: u32,
}

impl Audit {
    /// A decision that differs from the one before: in a word, and by which rule.
    pub(super) fn decided(
        &mut self,
        now: UnixNanos,
        pod: &PodIdentity,
        source: PodSource,
        decision: &str,
        rule: &str,
    ) {
        if !self.may_write(now) {
            return;
        }
        tracing::info!(
            %pod,
            %source,
            decision,
            rule,
            "node policy"
        );
    }

    /// Whether there is room for a line. Lines that were left out are counted, and the
    /// count is written as soon as there is room again.
    fn may_write(&mut self, now: UnixNanos) -> bool {
        // It also is where the clock was set back.
        let is_over = |began: UnixNanos| now < began || now.since(began) >= WINDOW;
        if self.began.is_none_or(is_over) {
            if self.left_out > 0 {
                let left_out = self.left_out;
                tracing::warn!(left_out, "decisions were not written");
            }
            *self = Audit {
                began: Some(now),
                ..Audit::default()
            };
        }
        if self.written >= MAX_LINES {
            self.left_out += 1;
            return false;
        }
        self.written += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_by_window() {
        let mut audit = Audit::default();
        let at = |seconds: i64| UnixNanos(seconds * 1_000_000_000);
        for _ in 0..MAX_LINES {
            assert!(audit.may_write(at(1)));
        }
        assert!(!audit.may_write(at(2)));
        assert!(!audit.may_write(at(10)));
        assert_eq!(audit.left_out, 2);
        assert!(audit.may_write(at(11)));
        assert_eq!(audit.left_out, 0);
    }

    /// As where a clock that said 2036 at boot is put right.
    #[test]
    fn a_clock_that_is_set_back_does_not_silence_it() {
        let mut audit = Audit::default();
        let at = |seconds: i64| UnixNanos(seconds * 1_000_000_000);
        let year = 365 * 24 * 3600;
        while audit.may_write(at(10 * year)) {}
        assert_eq!(audit.left_out, 1);
        assert!(audit.may_write(at(1)));
        assert_eq!(audit.left_out, 0, "what was left out is told");
        for _ in 1..MAX_LINES {
            assert!(audit.may_write(at(1)));
        }
        assert!(!audit.may_write(at(2)), "and it is bounded as ever");
    }
}
