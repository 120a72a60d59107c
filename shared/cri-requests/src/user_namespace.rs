//! The user namespace of a pod with `hostUsers: false`, and how its containers see the
//! owners of what is mounted into them: files keep the ids on the node that the pod has
//! inside, so that volumes are as those of any other pod.

use cri::v1::{IdMapping, Mount, NamespaceMode, UserNamespace};
use node_layout::IdRange;
use pod::{Pod, PodExt};

use crate::error::BuildError;

/// Whether a pod is to have users of its own.
pub fn has_user_namespace(pod: &Pod) -> bool {
    pod.spec_or_default().host_users == Some(false)
}

/// Of a sandbox or container; absent for a pod with the node's users.
///
/// # Errors
/// When the pod is to have users of its own and nobody says which ids these are.
pub(super) fn user_namespace(
    pod: &Pod,
    ids: Option<IdRange>,
) -> Result<Option<UserNamespace>, BuildError> {
    match (has_user_namespace(pod), ids) {
        (false, _) => Ok(None),
        (true, None) => Err(BuildError::invalid("spec.hostUsers", "the pod has no ids")),
        (true, Some(range)) => Ok(Some(UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: vec![mapping(range)],
            gids: vec![mapping(range)],
        })),
    }
}

/// Has a container see the owners of all that is mounted as they are on the node.
pub(super) fn map_owners(namespace: Option<&UserNamespace>, mounts: &mut [Mount]) {
    for mount in mounts {
        let (uids, gids) = namespace
            .map(|namespace| (namespace.uids.clone(), namespace.gids.clone()))
            .unwrap_or_default();
        mount.uid_mappings = uids;
        mount.gid_mappings = gids;
    }
}

fn mapping(range: IdRange) -> IdMapping {
    IdMapping {
        host_id: range.first,
        container_id: 0,
        length: range.count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods::{ContainerCase, node, pod};
    use crate::{container_config, pod_sandbox_config};

    const RANGE: IdRange = IdRange {
        first: 131_072,
        count: 65_536,
    };

    fn pod_with(field: &str) -> Pod {
        pod(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u"}},
                "spec":{{"containers":[{{"name":"c","image":"i"}}]{field}}}}}"#
        ))
    }

    fn own() -> UserNamespace {
        let mapping = IdMapping {
            host_id: 131_072,
            container_id: 0,
            length: 65_536,
        };
        UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: vec![mapping],
            gids: vec![mapping],
        }
    }

    #[test]
    fn sandbox_containers_and_mounts_of_a_pod_have_its_ids() {
        for (field, ids, expected) in [
            ("", None, None),
            (r#","hostUsers":true"#, None, None),
            (r#","hostUsers":false"#, Some(RANGE), Some(own())),
        ] {
            let mut case = ContainerCase::new(pod_with(field));
            let sandbox = pod_sandbox_config(&case.pod, 0, &node(), (None, ids)).unwrap();
            let security = sandbox.config.linux.unwrap().security_context.unwrap();
            let options = security.namespace_options.unwrap();
            assert_eq!(options.userns_options, expected, "{field}");
            case.ids = ids;
            let config = container_config(&case.input()).unwrap();
            let security = config.linux.unwrap().security_context.unwrap();
            let options = security.namespace_options.unwrap();
            assert_eq!(options.userns_options, expected, "{field}");
            // The hosts file and the termination log.
            assert_eq!(config.mounts.len(), 2);
            let mappings = expected.unwrap_or_default();
            for mount in config.mounts {
                assert_eq!(mount.uid_mappings, mappings.uids, "{field}");
                assert_eq!(mount.gid_mappings, mappings.gids, "{field}");
            }
        }
    }

    #[test]
    fn without_ids_nothing_is_made_for_a_pod_that_is_to_have_its_own() {
        let case = ContainerCase::new(pod_with(r#","hostUsers":false"#));
        let sandbox = pod_sandbox_config(&case.pod, 0, &node(), (None, None)).unwrap_err();
        let container = container_config(&case.input()).unwrap_err();
        for error in [sandbox, container] {
            assert_eq!(error.to_string(), "spec.hostUsers: the pod has no ids");
        }
    }
}
