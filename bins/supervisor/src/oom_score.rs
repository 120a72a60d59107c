//! How likely the kernel is to kill each process when the node is short of memory
//! (`oom_score_adj`). To make that less likely takes `CAP_SYS_RESOURCE`, or a starter
//! that has done it: a unit with `OOMScoreAdjust=`.

use std::io;

use topology::{Process, row};

const OWN_FILE: &str = "/proc/self/oom_score_adj";

/// The least score that processes can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OomScores {
    least: i16,
}

impl OomScores {
    /// Gives the supervisor its own, which is the least of all, and says where that is
    /// refused.
    pub(crate) fn open() -> (OomScores, Option<String>) {
        let wanted = row(Process::Supervisor).oom_score_adj;
        match std::fs::write(OWN_FILE, wanted.to_string()) {
            Ok(()) => (OomScores { least: wanted }, None),
            Err(error) => {
                let least = inherited().unwrap_or(0);
                let text = format!(
                    "the kernel is as likely to kill processes of Bulkhead as others when \
                     memory is short: cannot set oom_score_adj below {least}: {error}"
                );
                (OomScores { least }, Some(text))
            }
        }
    }

    /// That of a process, as far as it can have it.
    pub(crate) fn of(self, process: Process) -> i16 {
        row(process).oom_score_adj.max(self.least)
    }
}

fn inherited() -> io::Result<i16> {
    let text = std::fs::read_to_string(OWN_FILE)?;
    text.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use topology::PROCESSES;

    use super::*;

    #[test]
    fn the_supervisor_has_the_least_score_and_all_are_below_those_of_pods() {
        let least = row(Process::Supervisor).oom_score_adj;
        for row in PROCESSES {
            assert!((least..0).contains(&row.oom_score_adj), "{}", row.process);
        }
    }

    #[test]
    fn who_may_not_be_spared_has_what_the_supervisor_has() {
        let refused = OomScores { least: 0 };
        let granted = OomScores { least: -999 };
        for process in Process::ALL {
            assert_eq!(refused.of(process), 0);
            assert_eq!(granted.of(process), row(process).oom_score_adj);
        }
    }
}
