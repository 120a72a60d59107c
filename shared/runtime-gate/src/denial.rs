//! Why the gate refuses a call.

use cri::{RuntimeError, RuntimeErrorKind};
use node_policy::Refusal;

/// Why a call is refused. Each of them means a mistake of ours or an attack: the pod
/// was judged before, so no request should ever ask for more.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Denial {
    /// The request does not say what it is about.
    #[error("{field} is missing")]
    Missing { field: &'static str },
    /// Nobody has taken this pod.
    #[error("no pod with the UID {pod_uid:?} may have requests")]
    UnknownPod { pod_uid: String },
    /// The policy in force refuses the pod as a whole.
    #[error("the node policy refuses the pod: {reason}")]
    PodRefused { reason: String },
    /// A field names what is another pod's, or nobody's.
    #[error("{field} is {found:?}, which is not the pod's own")]
    NotThePods { field: String, found: String },
    /// A field names a place of a volume that the pod does not have, or of which nobody
    /// knows yet what it is.
    #[error("{field} is of the volume {volume:?}, which is not known as the pod's own")]
    UnknownVolume { field: &'static str, volume: String },
    /// A field has a value that the gate does not know how to judge.
    #[error("{field} is {found:?}, which may not be asked for")]
    NotJudged { field: String, found: String },
    /// The policy does not permit what a field asks for.
    #[error("{field}: {refusal}")]
    NotPermitted {
        field: String,
        refusal: Box<Refusal>,
    },
    /// The command is none that the container was created with.
    #[error("the command is none of those that container {container:?} was created with")]
    NotItsCommand { container: String },
    /// Whom the container runs as is known by name only.
    #[error("the runtime does not tell which user {user:?} is in the container")]
    UserUnknown { user: String },
}

impl Denial {
    pub(crate) fn not_the_pods(field: impl Into<String>, found: impl Into<String>) -> Denial {
        Denial::NotThePods {
            field: field.into(),
            found: found.into(),
        }
    }

    pub(crate) fn not_judged(field: impl Into<String>, found: impl Into<String>) -> Denial {
        Denial::NotJudged {
            field: field.into(),
            found: found.into(),
        }
    }

    /// The error that the caller of `method` gets.
    pub(crate) fn into_error(self, method: &'static str) -> RuntimeError {
        RuntimeError::new(method, RuntimeErrorKind::Forbidden, self.to_string())
    }
}
