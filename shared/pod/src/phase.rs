//! Words of the pod's life: restart policy and phase.

use std::fmt;

/// What to do with a container that has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RestartPolicy {
    /// Start it again, whatever its exit code.
    #[default]
    Always,
    /// Start it again unless it exited with 0.
    OnFailure,
    /// Leave it.
    Never,
}

impl RestartPolicy {
    /// The policy named by the API's word.
    pub fn parse(word: &str) -> Option<RestartPolicy> {
        match word {
            "Always" => Some(RestartPolicy::Always),
            "OnFailure" => Some(RestartPolicy::OnFailure),
            "Never" => Some(RestartPolicy::Never),
            _ => None,
        }
    }

    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            RestartPolicy::Always => "Always",
            RestartPolicy::OnFailure => "OnFailure",
            RestartPolicy::Never => "Never",
        }
    }

    /// Whether a container that exited with this code is to be started again.
    pub fn restarts(self, exit_code: i32) -> bool {
        match self {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        }
    }
}

impl fmt::Display for RestartPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Reason of a pod that the node has ended, or refused to start, because it is short of
/// something.
pub const EVICTED: &str = "Evicted";

/// A pod's phase, as in its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PodPhase {
    /// Not all containers have been started once.
    #[default]
    Pending,
    /// Bound to a node, at least one container runs or will.
    Running,
    /// All containers have exited with 0 and none will start again.
    Succeeded,
    /// All containers have exited, at least one not with 0.
    Failed,
    /// The state could not be found out.
    Unknown,
}

impl PodPhase {
    /// The phase named by the API's word.
    pub fn parse(word: &str) -> Option<PodPhase> {
        match word {
            "Pending" => Some(PodPhase::Pending),
            "Running" => Some(PodPhase::Running),
            "Succeeded" => Some(PodPhase::Succeeded),
            "Failed" => Some(PodPhase::Failed),
            "Unknown" => Some(PodPhase::Unknown),
            _ => None,
        }
    }

    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            PodPhase::Pending => "Pending",
            PodPhase::Running => "Running",
            PodPhase::Succeeded => "Succeeded",
            PodPhase::Failed => "Failed",
            PodPhase::Unknown => "Unknown",
        }
    }

    /// Whether the pod has ended for good: no later phase may follow.
    pub fn is_terminal(self) -> bool {
        matches!(self, PodPhase::Succeeded | PodPhase::Failed)
    }
}

impl fmt::Display for PodPhase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_policy_and_the_exit_code_decide_a_restart() {
        for (policy, on_success, on_failure) in [
            (RestartPolicy::Always, true, true),
            (RestartPolicy::OnFailure, false, true),
            (RestartPolicy::Never, false, false),
        ] {
            assert_eq!(policy.restarts(0), on_success, "{policy}");
            assert_eq!(policy.restarts(1), on_failure, "{policy}");
            assert_eq!(policy.restarts(-1), on_failure, "{policy}");
            assert_eq!(RestartPolicy::parse(policy.as_str()), Some(policy));
        }
        assert_eq!(RestartPolicy::parse("always"), None);
    }

    #[test]
    fn succeeded_and_failed_are_terminal() {
        for word in ["Pending", "Running", "Succeeded", "Failed", "Unknown"] {
            let phase = PodPhase::parse(word).unwrap();
            assert_eq!(phase.to_string(), word);
            assert_eq!(phase.is_terminal(), matches!(word, "Succeeded" | "Failed"));
        }
    }
}
