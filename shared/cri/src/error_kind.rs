//! What kinds of failures calls to the runtime can end in.

/// What kind of failure a [`RuntimeError`](crate::RuntimeError) is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuntimeErrorKind {
    /// The runtime does not know the sandbox, container or image.
    NotFound,
    /// The name is taken, by an earlier attempt of ours as a rule.
    AlreadyExists,
    /// The runtime could not be reached, or the connection broke during the call.
    Unavailable,
    /// No answer within the deadline; the call may still have taken effect.
    DeadlineExceeded,
    /// This runtime does not have the method.
    Unimplemented,
    /// StartContainer: the instance is not in the state to be started. Another call
    /// starts it, or has ended meanwhile, well or not.
    NotStartable,
    /// RemoveContainer: another call starts the instance.
    BeingStarted,
    /// StartContainer: the sandbox of the instance has no process. That is said of an
    /// instance whose creation lost its caller, which can never be started. It may also
    /// be the words of a program's name, so it counts only for an instance that an
    /// earlier call made.
    NoSandboxProcess,
    /// The call was never made: the request asks for what its pod may not have, so
    /// the gate in front of the runtime refused it. Trying again changes nothing.
    Forbidden,
    /// The runtime has no room for more of these.
    Exhausted,
    /// Everything else; the message is for people.
    Other,
}

impl std::fmt::Display for RuntimeErrorKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::Unavailable => "runtime unavailable",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::Unimplemented => "not implemented by this runtime",
            Self::NotStartable => "not in the state to be started",
            Self::BeingStarted => "being started",
            Self::NoSandboxProcess => "the sandbox has no process",
            Self::Forbidden => "forbidden",
            Self::Exhausted => "no room for more",
            Self::Other => "failed",
        })
    }
}
