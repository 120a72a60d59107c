//! Why a pod may not run.

/// Why a pod may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// The kubelet's word: `OutOfcpu`, `NodeAffinity` ...
    pub reason: String,
    /// The kubelet's sentence.
    pub message: String,
}

impl Rejection {
    /// A check of the scheduler's that this node repeats has failed.
    pub(super) fn predicate(name: &str, description: &str) -> Rejection {
        Rejection {
            reason: name.to_owned(),
            message: format!("Predicate {name} failed: {description}"),
        }
    }
}
