//! What kernel and runtime have that not every pod needs.

use bulkhead_api::v1::NodeCapacity;
use pod::sysctl::KernelVersion;

use super::rejection::Rejection;
use crate::dispatcher::pod_facts::PodFacts;

/// What kernel and runtime have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFeatures {
    /// `None` when it was not told in a known form.
    pub(super) kernel: Option<KernelVersion>,
    /// Whether the kernel enforces AppArmor profiles.
    pub(super) app_armor: bool,
    /// Whether the runtime can keep the groups of images away; `None` as long as it has
    /// not said.
    pub(super) strict_groups: Option<bool>,
}

impl NodeFeatures {
    /// What the pool has told. A runtime that was away has said nothing: what is known
    /// from before stays.
    pub(super) fn told(&self, capacity: &NodeCapacity) -> NodeFeatures {
        let has_answered = capacity.runtime_error.is_empty();
        NodeFeatures {
            kernel: KernelVersion::parse(&capacity.kernel_release),
            app_armor: capacity.app_armor,
            strict_groups: match has_answered {
                true => Some(capacity.supplemental_groups_policy),
                false => self.strict_groups,
            },
        }
    }

    /// Whether the pod can be judged: a rejection is for good.
    pub(super) fn can_judge(&self, pod: &PodFacts) -> bool {
        self.strict_groups.is_some() || !pod.wants_strict_groups
    }
}

/// Refuses a pod whose groups must be exactly those that it names, where the runtime
/// would add the image's.
pub(super) fn check_groups(pod: &PodFacts, features: &NodeFeatures) -> Result<(), Rejection> {
    if pod.wants_strict_groups && features.strict_groups != Some(true) {
        return Err(Rejection {
            reason: "SupplementalGroupsPolicyNotSupported".to_owned(),
            message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
        });
    }
    Ok(())
}

/// Refuses a pod with an AppArmor profile that nobody would enforce.
pub(super) fn check_app_armor(pod: &PodFacts, features: &NodeFeatures) -> Result<(), Rejection> {
    if pod.wants_app_armor && !features.app_armor {
        return Err(Rejection {
            reason: "AppArmor".to_owned(),
            message: "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned(),
        });
    }
    Ok(())
}
