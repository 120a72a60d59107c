//! The ids that pods with user namespaces of their own are given.

use serde::{Deserialize, Serialize};

/// Ranges of pods are multiples of this: what a container image can use.
pub const ID_RANGE_UNIT: u32 = 65_536;

/// Which ids of users and groups of the node are set aside for pods with `hostUsers:
/// false`: from `first` on, `pods` ranges of `ids_per_pod` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserNamespaceSettings {
    /// The first id of the first range; a multiple of `ids_per_pod`, and never 0.
    pub first: u32,
    /// `userNamespaces.idsPerPod`, 65536 by default.
    pub ids_per_pod: u32,
    /// How many ranges there are: `maxPods` unless the node's files of subordinate ids
    /// give the user `kubelet` others.
    pub pods: u32,
}

impl Default for UserNamespaceSettings {
    fn default() -> UserNamespaceSettings {
        UserNamespaceSettings {
            first: ID_RANGE_UNIT,
            ids_per_pod: ID_RANGE_UNIT,
            pods: 110,
        }
    }
}
