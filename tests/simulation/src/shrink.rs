//! Finds what of a failing scenario has to happen for it to fail.

use std::collections::BTreeSet;

use crate::play::{Played, STEPS, run_steps};

/// Most lines that are shown of what was done to a node.
const MOST_LINES: usize = 30;

/// A scenario of which nothing can be left out: it would not fail in the same way.
#[derive(Debug)]
pub struct Shrunk {
    /// The numbers of what happens in it.
    pub steps: BTreeSet<u32>,
    /// What happens then.
    pub played: Played,
}

/// Leaves out of the scenario of a seed, which fails, what does not matter.
#[must_use]
pub fn shrink(seed: u64, failed: Played) -> Shrunk {
    let all = (0..STEPS).collect();
    shrink_by(all, failed, |steps| run_steps(seed, steps))
}

/// Leaves out halves, then smaller parts, then single steps, as long as what is left fails
/// in the same way.
fn shrink_by(
    steps: BTreeSet<u32>,
    failed: Played,
    play: impl Fn(&BTreeSet<u32>) -> Played,
) -> Shrunk {
    let wanted = kind(&failed);
    let mut shrunk = Shrunk {
        steps,
        played: failed,
    };
    let mut size = shrunk.steps.len().div_ceil(2);
    while size > 0 {
        let before: Vec<u32> = shrunk.steps.iter().copied().collect();
        for part in before.chunks(size) {
            let mut fewer = shrunk.steps.clone();
            fewer.retain(|step| !part.contains(step));
            let played = play(&fewer);
            if played.problem.is_some() && kind(&played) == wanted {
                shrunk = Shrunk {
                    steps: fewer,
                    played,
                };
            }
        }
        let has_shrunk = shrunk.steps.len() < before.len();
        size = match size {
            // One that mattered may not matter without another.
            1 if has_shrunk => 1,
            size => size / 2,
        };
    }
    shrunk
}

/// How it failed: the beginning of its first line, without numbers and names.
fn kind(played: &Played) -> String {
    let problem = played.problem.as_deref().unwrap_or_default();
    let line = problem.lines().next().unwrap_or_default();
    let end = line.find(|it: char| it.is_ascii_digit() || it == '"' || it == ':');
    line[..end.unwrap_or(line.len())].to_owned()
}

impl Shrunk {
    /// For people: what went wrong, what was done to the node, and how to see it again.
    #[must_use]
    pub fn report(&self, seed: u64) -> String {
        let problem = self.played.problem.as_deref().unwrap_or_default();
        let steps: Vec<String> = self.steps.iter().map(u32::to_string).collect();
        let again = format!(
            "again: cargo xtask sim -- --from {seed} --seeds 1 --steps {} --show",
            steps.join(",")
        );
        let lines = problem
            .lines()
            .chain(self.played.log.iter().map(String::as_str));
        let mut lines: Vec<&str> = lines.take(MOST_LINES - 2).collect();
        lines.push(&again);
        format!("seed {seed} fails:\n{}", lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scenario that fails when all of these steps happen.
    fn failing(needed: &'static [u32]) -> impl Fn(&BTreeSet<u32>) -> Played {
        move |steps| {
            let fails = needed.iter().all(|step| steps.contains(step));
            // With only a few steps something else goes wrong.
            let other = (steps.len() < 3).then(|| "not converged: other".to_owned());
            Played {
                story: String::new(),
                problem: fails.then(|| format!("late: {} ms", steps.len())).or(other),
                log: steps.iter().map(u32::to_string).collect(),
            }
        }
    }

    #[test]
    fn what_does_not_matter_is_left_out() {
        for needed in [&[0][..], &[39], &[3, 4, 17, 38], &[0, 10, 20, 30, 39]] {
            let play = failing(needed);
            let all: BTreeSet<u32> = (0..STEPS).collect();
            let shrunk = shrink_by(all.clone(), play(&all), &play);
            assert_eq!(shrunk.steps, needed.iter().copied().collect(), "{needed:?}");
        }
    }

    #[test]
    fn a_report_is_short_and_says_how_to_see_it_again() {
        let all: BTreeSet<u32> = (0..STEPS).collect();
        let shrunk = Shrunk {
            played: failing(&[1])(&all),
            steps: [1, 7].into(),
        };
        let report = shrunk.report(5);
        assert_eq!(report.lines().count(), MOST_LINES);
        assert!(
            report.ends_with("--from 5 --seeds 1 --steps 1,7 --show"),
            "{report}"
        );
    }

    #[test]
    fn a_scenario_without_half_of_its_steps_passes_and_does_less() {
        let steps: BTreeSet<u32> = (0..STEPS).step_by(2).collect();
        let played = run_steps(3, &steps);
        assert_eq!(played.problem, None);
        assert!(played.log.len() < crate::play::run(3).log.len());
    }
}
