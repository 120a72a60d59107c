//! Signals that a container may be stopped with (`lifecycle.stopSignal`): their names, and
//! their numbers between a node agent and a container runtime, which are not the kernel's.

/// The names of Linux, in the order of the runtimes' interface (Kubernetes 1.33): the first
/// has the number 1 there.
pub const NAMES: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMAX-14",
    "SIGRTMAX-13",
    "SIGRTMAX-12",
    "SIGRTMAX-11",
    "SIGRTMAX-10",
    "SIGRTMAX-9",
    "SIGRTMAX-8",
    "SIGRTMAX-7",
    "SIGRTMAX-6",
    "SIGRTMAX-5",
    "SIGRTMAX-4",
    "SIGRTMAX-3",
    "SIGRTMAX-2",
    "SIGRTMAX-1",
    "SIGRTMAX",
];

/// The number of a signal in the runtimes' interface.
#[must_use]
pub fn number(name: &str) -> Option<i32> {
    let (_, number) = NAMES.iter().zip(1..).find(|(known, _)| **known == name)?;
    Some(number)
}

/// The name of a signal by its number in the runtimes' interface; `None` for 0, where
/// nobody has chosen one, and for what is no number of a signal.
#[must_use]
pub fn name(number: i32) -> Option<&'static str> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    NAMES.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `api.proto` of cri-api, `enum Signal`.
    #[test]
    fn numbers_are_those_of_the_interface() {
        for (name, expected) in [
            ("SIGABRT", Some(1)),
            ("SIGHUP", Some(8)),
            ("SIGINT", Some(10)),
            ("SIGKILL", Some(13)),
            ("SIGQUIT", Some(18)),
            ("SIGTERM", Some(23)),
            ("SIGUSR1", Some(29)),
            ("SIGWINCH", Some(32)),
            ("SIGRTMIN", Some(35)),
            ("SIGRTMIN+3", Some(38)),
            ("SIGRTMIN+15", Some(50)),
            ("SIGRTMAX-14", Some(51)),
            ("SIGRTMAX", Some(65)),
            ("TERM", None),
            ("sigterm", None),
            ("", None),
        ] {
            assert_eq!(number(name), expected, "{name}");
        }
    }

    #[test]
    fn every_number_has_its_name_and_no_other_number_has_one() {
        for known in NAMES {
            assert_eq!(name(number(known).unwrap()), Some(known));
        }
        for number in [i32::MIN, -1, 0, 66, i32::MAX] {
            assert_eq!(name(number), None, "{number}");
        }
    }
}
