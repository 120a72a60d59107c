//! What the program in a simulated container does, told by its command.

use std::time::Duration;

/// What a program ends with that SIGTERM ends.
const SIGTERM_CODE: i32 = 143;

/// What the program in a container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Ends by itself after this time with this code; `None`: never.
    pub exit: Option<(Duration, i32)>,
    /// How long it takes to end after SIGTERM; `None`: it ignores it.
    pub on_terminate: Option<Duration>,
    /// With which code it ends then.
    pub terminate_code: i32,
    /// Whether it can be started at all.
    pub starts: bool,
}

impl Behaviour {
    /// Code and length of a command that is run in a container as a hook, written
    /// `hook MILLIS CODE`.
    #[must_use]
    pub fn of_hook(words: &[String]) -> Option<(i32, Duration)> {
        match words {
            [hook, millis, code] if hook == "hook" => {
                let after = Duration::from_millis(millis.parse().ok()?);
                Some((code.parse().ok()?, after))
            }
            _ => None,
        }
    }

    /// Reads the words of a command:
    ///
    /// - `exit CODE MILLIS`: ends by itself;
    /// - `ignore-term`: only SIGKILL ends it;
    /// - `slow-term MILLIS`: needs that long to end after SIGTERM;
    /// - `well-term MILLIS`: the same, and it ends with 0 then;
    /// - `cannot-start`: StartContainer fails;
    /// - anything else: runs until it is stopped.
    #[must_use]
    pub fn of_command(words: &[String]) -> Behaviour {
        let quick = Some(Duration::from_millis(2));
        let forever = Behaviour {
            exit: None,
            on_terminate: quick,
            terminate_code: SIGTERM_CODE,
            starts: true,
        };
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        match words.first().map(String::as_str) {
            Some("exit") => {
                let code = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
                let after = Duration::from_millis(number(2).unwrap_or(0));
                Behaviour {
                    exit: Some((after, code)),
                    ..forever
                }
            }
            Some("ignore-term") => Behaviour {
                on_terminate: None,
                ..forever
            },
            Some(word @ ("slow-term" | "well-term")) => {
                let after = Duration::from_millis(number(1).unwrap_or(1000));
                Behaviour {
                    on_terminate: Some(after),
                    terminate_code: if word == "well-term" { 0 } else { SIGTERM_CODE },
                    ..forever
                }
            }
            Some("cannot-start") => Behaviour {
                starts: false,
                ..forever
            },
            _ => forever,
        }
    }
}
