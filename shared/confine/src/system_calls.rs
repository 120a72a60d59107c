//! Holding a process to the system calls that it needs, by seccomp (seccomp(2)).
//!
//! Who neither starts programs nor mounts may only make the calls of [`listed`]. The
//! others may make all calls but those of [`forbidden`]. A call that is not permitted
//! fails with EPERM instead of ending the process: another version of the C library, or
//! another processor, may try a call that is not listed and do well without it.
//!
//! What does not live here: who needs what (`topology`).

mod calls;
mod forbidden;
mod listed;
mod rule;

use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, sock_filter};

pub use calls::Calls;
use rule::Rules;
pub(crate) use seccompiler::Error;

/// Installs the filters for the calling thread, and all that it starts.
pub(crate) fn restrict(calls: Calls) -> Result<(), Error> {
    for program in filters(calls)? {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

/// The kernel runs all of them, and of two refusals the later one's counts.
fn filters(calls: Calls) -> Result<[BpfProgram; 2], Error> {
    let not_permitted = || SeccompAction::Errno(errno(libc::EPERM));
    // Its flags are out of sight, in memory. The C library goes back to clone(2).
    let rules = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let absent = SeccompAction::Errno(errno(libc::ENOSYS));
    let mut first = of_another_interface(&not_permitted());
    first.extend(filter(rules, SeccompAction::Allow, absent)?);
    let second = if calls.programs || calls.mounts {
        filter(
            forbidden::rules(calls)?,
            SeccompAction::Allow,
            not_permitted(),
        )?
    } else {
        filter(listed::rules(calls)?, not_permitted(), SeccompAction::Allow)?
    };
    Ok([first, second])
}

/// Answers calls of x32 and lets the others go on. They are those of this processor by other
/// numbers, which no list names; only some kernels have them.
fn of_another_interface(answer: &SeccompAction) -> BpfProgram {
    /// The bit that tells them, `__X32_SYSCALL_BIT`: no other call has so high a number.
    const FIRST: u32 = 0x4000_0000;
    let instruction = |code: u32, jf: u8, k: u32| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf,
        k,
    };
    vec![
        // The number of the call is what `seccomp_data` begins with.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, FIRST),
        instruction(libc::BPF_RET | libc::BPF_K, 0, answer.clone().into()),
    ]
}

fn filter(
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, Error> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, otherwise, matched, architecture)?;
    Ok(filter.try_into()?)
}

fn errno(number: i32) -> u32 {
    number.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: [bool; 2] = [false, true];

    fn all() -> Vec<Calls> {
        let mut all = Vec::new();
        for internet in NEEDS {
            for file_events in NEEDS {
                for programs in NEEDS {
                    for mounts in NEEDS {
                        for namespaces in NEEDS {
                            all.push(Calls {
                                internet,
                                file_events,
                                programs,
                                mounts,
                                namespaces,
                            });
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn there_are_filters_for_whatever_a_process_needs() {
        for calls in all() {
            assert!(filters(calls).is_ok(), "{calls:?}");
        }
    }

    #[test]
    fn nothing_that_is_forbidden_to_all_is_listed_for_anybody() {
        let forbidden = forbidden::rules(Calls {
            internet: true,
            file_events: true,
            programs: true,
            mounts: true,
            namespaces: true,
        });
        for calls in all() {
            let listed = listed::rules(calls).unwrap();
            for (call, rules) in forbidden.as_ref().unwrap() {
                // Some are forbidden with these arguments, and listed with others.
                if rules.is_empty() {
                    assert!(!listed.contains_key(call), "{call}");
                }
            }
            assert!(!listed.contains_key(&libc::SYS_execve));
            assert!(!listed.contains_key(&libc::SYS_mount));
        }
    }
}
