//! Why a container could not be started.

use cri::{RuntimeError, RuntimeErrorKind};

use super::error::{Retry, StepError};

/// Why a container could not be started, as its waiting state shows it.
#[derive(Clone, Debug)]
pub(crate) struct StartError {
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) retry: Retry,
    /// What the event says; the message if absent.
    pub(super) announced_as: Option<&'static str>,
    pub(super) has_name_conflict: bool,
    /// A call of an earlier process is why: it does the same, or spoilt the instance.
    pub(super) was_forestalled: bool,
    /// The instance that the runtime refused to start, because of its program or for
    /// another reason of its own.
    pub(super) refused_start: Option<String>,
}

impl StartError {
    pub(super) fn new(reason: &str, message: impl Into<String>, retry: Retry) -> StartError {
        StartError {
            reason: reason.to_owned(),
            message: message.into(),
            retry,
            announced_as: None,
            has_name_conflict: false,
            was_forestalled: false,
            refused_start: None,
        }
    }

    /// The same with another text in its event.
    pub(super) fn announced_as(self, text: &'static str) -> StartError {
        StartError {
            announced_as: Some(text),
            ..self
        }
    }

    pub(super) fn of_step(reason: &str, error: &StepError) -> StartError {
        StartError::new(reason, error.message.clone(), error.retry)
    }

    /// The runtime's own words where it answered, as with a kubelet: the reason says what failed.
    pub(super) fn of_call(reason: &str, error: RuntimeError) -> StartError {
        let has_name_conflict = error.kind == RuntimeErrorKind::AlreadyExists;
        let has_words = !error.is_no_answer() && !error.message.is_empty();
        let words = has_words.then(|| error.message.clone());
        let error = StepError::from(error);
        StartError {
            has_name_conflict,
            ..StartError::new(reason, words.unwrap_or(error.message), error.retry)
        }
    }

    /// An earlier process has started the instance that this start was to replace.
    pub(super) fn of_other_start() -> StartError {
        let message = "the instance that it replaces has just been started";
        StartError {
            was_forestalled: true,
            ..StartError::new("CreateContainerError", message, Retry::SOON)
        }
    }

    /// Why an instance was not started. One that was made earlier may not be fit to be
    /// started any more, which is nothing that the runtime has against its program.
    pub(super) fn of_start(id: &str, is_resumed: bool, error: RuntimeError) -> StartError {
        let was_forestalled = match error.kind {
            RuntimeErrorKind::NotStartable => true,
            RuntimeErrorKind::NoSandboxProcess => is_resumed,
            _ => false,
        };
        // What is asked before the start says nothing of the instance when it fails.
        let is_answered = error.is_of("StartContainer") && !error.is_no_answer();
        let is_refused = is_answered && !was_forestalled;
        let error = StartError::of_call("RunContainerError", error);
        StartError {
            was_forestalled,
            refused_start: is_refused.then(|| id.to_owned()),
            retry: match was_forestalled {
                true => Retry::SOON,
                false => error.retry,
            },
            has_name_conflict: false,
            ..error
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_of_the_start_itself_counts_as_one() {
        for (method, kind, expected) in [
            ("StartContainer", RuntimeErrorKind::Other, Some("a")),
            ("StartContainer", RuntimeErrorKind::NotStartable, None),
            ("StartContainer", RuntimeErrorKind::Unavailable, None),
            ("ContainerStatus", RuntimeErrorKind::Other, None),
        ] {
            let error = RuntimeError::new(method, kind, "");
            let refused = StartError::of_start("a", true, error).refused_start;
            assert_eq!(refused.as_deref(), expected, "{method} {kind:?}");
        }
    }

    #[test]
    fn of_an_answer_the_runtimes_own_words_are_reported() {
        for (kind, expected) in [
            (RuntimeErrorKind::Other, "no such file"),
            (RuntimeErrorKind::NotStartable, "no such file"),
            (
                RuntimeErrorKind::Unavailable,
                "StartContainer: runtime unavailable: no such file",
            ),
        ] {
            let error = RuntimeError::new("StartContainer", kind, "no such file");
            let message = StartError::of_start("a", true, error).message;
            assert_eq!(message, expected, "{kind:?}");
        }
    }
}
