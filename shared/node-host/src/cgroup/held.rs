//! Killing a process that may end at any moment, whose number may then be another's.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Kills a process that is the right one, as `is_right` says once it is held: from then on
/// the signal reaches it or nobody. Whether there was one; what cannot be killed shows
/// when its cgroup is removed.
pub(super) fn kill_held(number: i32, is_right: impl FnOnce() -> bool) -> bool {
    // 0 is one of another PID namespace.
    let Some(pid) = Some(number).filter(|it| *it > 0).and_then(Pid::from_raw) else {
        return false;
    };
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    if !is_right() {
        return false;
    }
    // Gone already is as good.
    let _ = pidfd_send_signal(&held, Signal::KILL);
    true
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    use super::*;

    /// The number that the kernel gave last in this PID namespace.
    const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    fn number(child: &Child) -> i32 {
        child.id().cast_signed()
    }

    /// Ends it by SIGTERM, and tells by what it ended: SIGKILL comes before that.
    fn end(mut child: Child) -> Option<i32> {
        let pid = nix::unistd::Pid::from_raw(number(&child));
        nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).unwrap();
        child.wait().unwrap().signal()
    }

    /// Another process with this number; others that start meanwhile may take it, so it is
    /// tried until it is got.
    fn successor(wanted: i32) -> Child {
        loop {
            fs::write(LAST_NUMBER, (wanted - 1).to_string()).unwrap();
            let child = sleeper();
            if number(&child) == wanted {
                return child;
            }
            end(child);
        }
    }

    #[test]
    fn the_right_one_is_killed_and_another_is_not() {
        let child = sleeper();
        assert!(!kill_held(number(&child), || false));
        assert!(kill_held(number(&child), || true));
        assert_eq!(end(child), Some(9));
        for nobody in [-1, 0, i32::MAX] {
            assert!(!kill_held(nobody, || true));
        }
    }

    #[test]
    fn who_gets_the_number_of_a_process_that_ended_in_that_moment_is_spared() {
        let first = sleeper();
        let wanted = number(&first);
        let mut successors = Vec::new();
        kill_held(wanted, || {
            end(first);
            successors.push(successor(wanted));
            true
        });
        let second = successors.pop().unwrap();
        assert_eq!(number(&second), wanted);
        assert_eq!(end(second), Some(15));
    }
}
