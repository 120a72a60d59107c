//! What the failed tests said of themselves, cut short: read from the output of the test
//! programs.

/// Lines of a failure that are kept: those before its backtrace, where the cause is.
const MAX_LINES: usize = 6;

/// Characters of such a line.
const MAX_LINE: usize = 300;

/// The failures of one or more test programs.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    failures: Vec<Failure>,
    /// Whether lines are of the newest failure, before its backtrace.
    is_in_one: bool,
}

#[derive(Debug)]
struct Failure {
    test: String,
    lines: Vec<String>,
}

impl Failures {
    /// Takes in the next line of the output, of which `---- NAME stdout ----` begins what a
    /// failed test printed, and `failures:` the list of all names.
    pub(crate) fn add(&mut self, line: &str) {
        let heading = line.strip_prefix("---- ");
        if let Some(test) = heading.and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.is_in_one = true;
            self.failures.push(Failure {
                test: test.to_owned(),
                lines: Vec::new(),
            });
            return;
        }
        let is_end = line == "failures:" || line.trim().eq_ignore_ascii_case("stack backtrace:");
        self.is_in_one &= !is_end;
        if let Some(failure) = self.failures.last_mut()
            && self.is_in_one
            && !line.trim().is_empty()
        {
            if failure.lines.len() == MAX_LINES {
                failure.lines.remove(0);
            }
            failure.lines.push(line.chars().take(MAX_LINE).collect());
        }
    }

    /// Each with its name and the end of what it said.
    pub(crate) fn summaries(&self) -> impl Iterator<Item = String> {
        self.failures.iter().map(|failure| {
            let lines = failure.lines.iter().map(|line| format!("\n    {line}"));
            format!("failed: {}{}", failure.test, lines.collect::<String>())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_by_what_stands_before_its_backtrace() {
        let output = "\
running 2 tests
test a ... FAILED

failures:

---- a stdout ----
of the logs
Error: timed out

Caused by:
    it is not

Stack backtrace:
   0: anyhow::error

---- b stdout ----
thread 'b' panicked at b.rs:1:1:
no
stack backtrace:
   0: rust_begin_unwind


failures:
    a
    b

test result: FAILED. 0 passed; 2 failed
";
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.add(line));
        let told: Vec<String> = failures.summaries().collect();
        assert_eq!(
            told,
            [
                "failed: a\n    of the logs\n    Error: timed out\n    Caused by:\n        it is not",
                "failed: b\n    thread 'b' panicked at b.rs:1:1:\n    no",
            ]
        );
    }

    #[test]
    fn what_a_failure_says_is_cut_short() {
        let mut failures = Failures::default();
        failures.add("---- a stdout ----");
        for number in 0..100 {
            failures.add(&format!("{number}{}", "x".repeat(1000)));
        }
        let told: String = failures.summaries().collect();
        assert!(told.len() < (MAX_LINES + 1) * (MAX_LINE + 10), "{told}");
        assert!(told.contains("\n    99x"), "{told}");
    }
}
