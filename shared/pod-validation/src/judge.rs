//! Everything that keeps a pod from being run, for a pod that somebody hands over: another
//! process, or a state file.

use pod::identity::check_uid;
use pod::runtime_class::RuntimeClasses;
use pod::{Pod, PodSource};

use crate::field::{FieldError, Reason};
use crate::runtime_class::runtime_class_errors;
use crate::support::api_pods;
use crate::validate::{ephemeral, validate};
use crate::{defaults, support};

/// Everything that is wrong with a pod that has its identity. What it leaves to the API
/// server has the default.
///
/// A static pod is judged by the same rules as its manifest was, also for what it asks for and
/// Bulkhead does not do. `classes` are those of the node, and the pod has the overhead of its
/// class already. What a pod from an API server asks for in vain is [`unmet`].
#[must_use]
pub fn judge(pod: &Pod, source: PodSource, classes: &RuntimeClasses) -> Vec<FieldError> {
    let mut found = support::unsupported_fields(pod);
    match source {
        PodSource::File | PodSource::Http => {
            found.extend(support::static_pod_restrictions(pod));
            found.extend(runtime_class_errors(pod, classes, ""));
        }
        PodSource::Api => found.retain(api_pods::is_refused),
    }
    found.extend(uid_error(pod, ""));
    let mut with_defaults = pod.clone();
    if source == PodSource::Api {
        // They are judged as what was added to a pod, and the pod as it was made.
        found.extend(ephemeral::validate(pod));
        if let Some(spec) = &mut with_defaults.spec {
            spec.ephemeral_containers = None;
        }
    }
    defaults::apply(&mut with_defaults);
    found.extend(validate(&with_defaults));
    found
}

/// What a pod asks for that this node does not offer, and that is no reason to refuse it: it
/// waits. A pod from a manifest is refused for it.
#[must_use]
pub fn unmet(pod: &Pod, source: PodSource, classes: &RuntimeClasses) -> Vec<FieldError> {
    match source {
        PodSource::File | PodSource::Http => Vec::new(),
        PodSource::Api => {
            let unsupported = support::unsupported_fields(pod).into_iter();
            let mut unmet: Vec<FieldError> = unsupported.filter_map(api_pods::wait).collect();
            // Its overhead is the API server's to judge.
            let class = runtime_class_errors(pod, classes, "").into_iter();
            unmet.extend(class.filter(|it| matches!(it.reason, Reason::NotFound { .. })));
            unmet
        }
    }
}

/// A UID becomes part of paths. `prefix` is that of the paths of the pod's fields.
#[must_use]
pub fn uid_error(pod: &Pod, prefix: &str) -> Option<FieldError> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let problem = check_uid(uid).err()?;
    Some(FieldError {
        field: format!("{prefix}metadata.uid"),
        reason: Reason::Invalid {
            value: uid.chars().take(64).collect(),
        },
        detail: problem.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fields(change: impl FnOnce(&mut Value), source: PodSource) -> Vec<String> {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
        });
        change(&mut pod);
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let found = judge(&pod, source, &RuntimeClasses::new());
        found.into_iter().map(|error| error.field).collect()
    }

    /// The fields that keep a pod from running, by its spec's and its container's.
    fn in_the_way(fields_of_spec: &str, fields_of_container: &str) -> Vec<String> {
        let spec = format!(
            r#"{{"containers":[{{"name":"c","image":"i:1"{fields_of_container}}}]{fields_of_spec}}}"#
        );
        let spec: Value = serde_json::from_str(&spec).unwrap();
        let mut found = fields(|pod| pod["spec"] = spec.clone(), PodSource::Api);
        let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let unmet = unmet(&pod, PodSource::Api, &RuntimeClasses::new()).into_iter();
        found.extend(unmet.map(|error| error.field));
        found
    }

    #[test]
    fn ephemeral_containers_are_an_api_servers_to_add() {
        let with = |ephemeral: Value| {
            move |pod: &mut Value| pod["spec"]["ephemeralContainers"] = ephemeral
        };
        let good = json!([{"name": "e", "image": "i:1", "targetContainerName": "c"}]);
        for source in [PodSource::File, PodSource::Http] {
            let found = fields(with(good.clone()), source);
            assert_eq!(found, ["spec.ephemeralContainers"]);
        }
        assert!(fields(with(good), PodSource::Api).is_empty());
        let bad = json!([{"name": "c", "image": "i:1"}]);
        let found = fields(with(bad), PodSource::Api);
        let field = "spec.ephemeralContainers[0].name".to_owned();
        assert!(found.contains(&field), "{found:?}");
    }

    /// Kinds of volumes that are refused whatever they say.
    const REFUSED_KINDS: &str = "awsElasticBlockStore azureDisk azureFile cephfs cinder csi ephemeral fc \
        flexVolume flocker gcePersistentDisk gitRepo glusterfs iscsi nfs \
        photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume";

    #[test]
    fn what_is_never_supported_is_refused_once_by_its_name_whatever_it_says() {
        let mut attempts = vec![
            ("readinessGates".to_owned(), json!([{"conditionType": ""}])),
            ("resourceClaims".to_owned(), json!([{"name": ""}])),
            ("schedulingGates".to_owned(), json!([{"name": ""}])),
            ("serviceAccountName".to_owned(), json!("builder")),
        ];
        let volume = |kind: &str, value: Value| json!([{"name": "v", kind: value}]);
        for kind in REFUSED_KINDS.split(' ') {
            attempts.push((format!("volumes[0].{kind}"), volume(kind, json!({}))));
        }
        for kind in [
            "clusterTrustBundle",
            "podCertificate",
            "serviceAccountToken",
        ] {
            let field = format!("volumes[0].projected.sources[0].{kind}");
            let sources = json!({"sources": [{kind: {"expirationSeconds": 1}}]});
            attempts.push((field, volume("projected", sources)));
        }
        let container =
            |field: &str, value: Value| json!([{"name": "c", "image": "i:1", field: value}]);
        for (field, key, value) in [
            ("volumeDevices", "volumeDevices", json!([{"name": ""}])),
            (
                "resources.claims",
                "resources",
                json!({"claims": [{"name": ""}]}),
            ),
            (
                "securityContext.windowsOptions",
                "securityContext",
                json!({"windowsOptions": {}}),
            ),
        ] {
            attempts.push((format!("containers[0].{field}"), container(key, value)));
        }
        for source in [PodSource::File, PodSource::Http] {
            for (field, value) in &attempts {
                let key = field.split('[').next().unwrap();
                let set = |pod: &mut Value| {
                    pod["spec"]["os"] = json!({"name": "linux"});
                    pod["spec"][key] = value.clone();
                };
                assert_eq!(fields(set, source), [format!("spec.{field}")], "{source:?}");
            }
        }
    }

    #[test]
    fn what_only_an_api_server_honours_is_ordinary_in_its_pods_and_what_the_node_lacks_waits() {
        for (path, value, waits) in [
            ("readinessGates", json!([{"conditionType": "a/b"}]), None),
            ("schedulingGates", json!([{"name": "a/b"}]), None),
            ("serviceAccountName", json!("builder"), None),
            (
                "volumes",
                json!([{"name": "v", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token"}}]}}]),
                None,
            ),
            (
                "resourceClaims",
                json!([{"name": "gpu", "resourceClaimName": "g"}]),
                Some("spec.resourceClaims"),
            ),
            (
                "containers",
                json!([{"name": "c", "image": "i:1", "resources": {
                    "limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}}}]),
                Some("spec.containers[0].resources.limits[example.com/gpu]"),
            ),
            (
                "volumes",
                json!([{"name": "v", "nfs": {}}]),
                Some("spec.volumes[0].nfs"),
            ),
            (
                "runtimeClassName",
                json!("vm"),
                Some("spec.runtimeClassName"),
            ),
        ] {
            let set = |pod: &mut Value| pod["spec"][path] = value.clone();
            assert_eq!(fields(set, PodSource::Api), [""; 0], "{path}");
            assert!(!fields(set, PodSource::File).is_empty(), "{path}");
            let mut pod = json!({"metadata": {}, "spec": {"containers": []}});
            set(&mut pod);
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let classes = RuntimeClasses::new();
            let found = unmet(&pod, PodSource::Api, &classes);
            let first = found.first().map(|error| error.field.as_str());
            assert_eq!(first, waits, "{path}");
            assert_eq!(unmet(&pod, PodSource::File, &classes), []);
        }
    }

    #[test]
    fn fields_of_newer_api_servers_are_decided_one_by_one() {
        let responder = |name: &str, priority: i32| {
            format!(r#","evictionResponders":[{{"name":"{name}","priority":{priority}}}]"#)
        };
        for (fields, expected) in [
            (r#","hostnameOverride":"A""#, "spec.hostnameOverride"),
            (
                r#","hostnameOverride":"h","hostNetwork":true"#,
                "spec.hostnameOverride",
            ),
            (
                r#","hostnameOverride":"h","setHostnameAsFQDN":true"#,
                "spec.hostnameOverride",
            ),
            (
                &format!(r#","hostnameOverride":"{0}.{0}""#, "a".repeat(32)),
                "spec.hostnameOverride",
            ),
            (
                r#","volumes":[{"name":"v","emptyDir":{"mode":1024}}]"#,
                "spec.volumes[0].emptyDir.mode",
            ),
            (
                r#","schedulingGroup":{}"#,
                "spec.schedulingGroup.podGroupName",
            ),
            (
                r#","schedulingGroup":{"podGroupName":"A"}"#,
                "spec.schedulingGroup.podGroupName",
            ),
            (
                &responder("a.io/b", -1),
                "spec.evictionResponders[0].priority",
            ),
            (&responder("b", 1), "spec.evictionResponders[0].name"),
            (&responder("", 1), "spec.evictionResponders[0].name"),
        ] {
            assert_eq!(in_the_way(fields, ""), [expected], "{fields}");
        }
        // Nothing of the node's.
        for fields in [
            r#","schedulingGroup":{"podGroupName":"a"}"#,
            r#","volumes":[{"name":"v","emptyDir":{"mode":1023}}]"#,
            r#","hostnameOverride":"a.example.org","hostname":"h","subdomain":"s""#,
            &responder("acme.io/foo", 10_000),
        ] {
            assert_eq!(in_the_way(fields, ""), Vec::<String>::new(), "{fields}");
        }
    }

    #[test]
    fn fields_of_containers_of_newer_api_servers_are_decided_one_by_one() {
        let container = "spec.containers[0]";
        for (fields, expected) in [
            (
                r#","livenessProbe":{"httpGet":{"port":1,"protocol":"HTTP2"}}"#,
                "livenessProbe.httpGet.protocol",
            ),
            (
                r#","livenessProbe":{"grpc":{"port":1,"mode":"TLS"}}"#,
                "livenessProbe.grpc.mode",
            ),
            (
                r#","restartPolicyRules":[{"action":"Restart"}]"#,
                "restartPolicyRules[0].exitCodes",
            ),
            (
                r#","restartPolicyRules":[{"action":"RestartAll"}]"#,
                "restartPolicyRules[0].action",
            ),
        ] {
            let found = in_the_way("", fields);
            let expected = format!("{container}.{expected}");
            assert!(found.contains(&expected), "{fields}: {found:?}");
        }
        let mount =
            r#","volumeMounts":[{"name":"v","mountPath":"/v","bindMountOptions":["nodev"]}]"#;
        assert_eq!(
            in_the_way(r#","volumes":[{"name":"v","emptyDir":{}}]"#, mount),
            [format!("{container}.volumeMounts[0].bindMountOptions")]
        );
        let volumes =
            r#","volumes":[{"name":"v","emptyDir":{}},{"name":"h","hostPath":{"path":"/h"}}]"#;
        for (key, expected) in [
            (r#""key":"k","path":"d/p","volumeName":"v""#, None),
            (r#""key":"","path":"p","volumeName":"v""#, Some("key")),
            (r#""key":"a=b","path":"p","volumeName":"v""#, Some("key")),
            (
                &format!(r#""key":"{}","path":"p","volumeName":"v""#, "k".repeat(129)),
                Some("key"),
            ),
            (r#""key":"k","path":"","volumeName":"v""#, Some("path")),
            (r#""key":"k","path":"/p","volumeName":"v""#, Some("path")),
            (r#""key":"k","path":"../p","volumeName":"v""#, Some("path")),
            (
                r#""key":"k","path":"p","volumeName":"""#,
                Some("volumeName"),
            ),
            (
                r#""key":"k","path":"p","volumeName":"w""#,
                Some("volumeName"),
            ),
            (
                r#""key":"k","path":"p","volumeName":"h""#,
                Some("volumeName"),
            ),
        ] {
            let env = format!(r#","env":[{{"name":"A","valueFrom":{{"fileKeyRef":{{{key}}}}}}}]"#);
            let field = |field| format!("{container}.env[0].valueFrom.fileKeyRef.{field}");
            let expected: Vec<String> = expected.into_iter().map(field).collect();
            assert_eq!(in_the_way(volumes, &env), expected, "{key}");
        }
        let plain = r#","livenessProbe":{"grpc":{"port":1,"mode":"Plaintext"}}"#;
        assert_eq!(in_the_way("", plain), Vec::<String>::new());
    }

    #[test]
    fn an_unmasked_proc_needs_a_user_namespace() {
        let container = |mode: &str| format!(r#","securityContext":{{"procMount":"{mode}"}}"#);
        let field = "spec.containers[0].securityContext.procMount";
        for (pod, mode, expected) in [
            ("", "Default", &[][..]),
            ("", "Unmasked", &[field]),
            (r#","hostUsers":true"#, "Unmasked", &[field]),
            (r#","hostUsers":false"#, "Unmasked", &[]),
            ("", "x", &[field]),
        ] {
            assert_eq!(in_the_way(pod, &container(mode)), expected, "{pod} {mode}");
        }
    }

    #[test]
    fn users_of_its_own_go_with_no_namespace_of_the_nodes() {
        for (fields, expected) in [
            (r#","hostUsers":false"#, &[][..]),
            (r#","hostUsers":false,"hostNetwork":false"#, &[]),
            (
                r#","hostUsers":true,"hostPID":true,"hostNetwork":true"#,
                &[],
            ),
            (
                r#","hostUsers":false,"hostNetwork":true"#,
                &["spec.hostNetwork"],
            ),
            (
                r#","hostUsers":false,"hostPID":true,"hostIPC":true"#,
                &["spec.hostPID", "spec.hostIPC"],
            ),
        ] {
            assert_eq!(in_the_way(fields, ""), expected, "{fields}");
        }
    }

    #[test]
    fn a_pod_is_judged_by_all_rules_of_its_source() {
        let sources = [PodSource::File, PodSource::Http, PodSource::Api];
        for source in sources {
            assert_eq!(fields(|_| {}, source), Vec::<String>::new(), "{source:?}");
            for (pointer, value, expected) in [
                ("/metadata/uid", json!("../x"), "metadata.uid"),
                ("/metadata/name", json!("A/b"), "metadata.name"),
                (
                    "/spec/containers/0/image",
                    json!(""),
                    "spec.containers[0].image",
                ),
            ] {
                let set = |pod: &mut Value| *pod.pointer_mut(pointer).unwrap() = value;
                assert_eq!(fields(set, source), [expected], "{source:?}");
            }
            let finalizers = json!(["example.org/x"]);
            let found = fields(|pod| pod["metadata"]["finalizers"] = finalizers, source);
            let is_static = source != PodSource::Api;
            assert_eq!(!found.is_empty(), is_static, "{source:?}: {found:?}");
        }
    }

    #[test]
    fn what_a_pod_states_for_itself_covers_its_containers() {
        let container = |requests: &str, limits: &str| {
            format!(r#","resources":{{"requests":{{{requests}}},"limits":{{{limits}}}}}"#)
        };
        let of_pod = |requests: &str, limits: &str| {
            format!(r#","resources":{{"requests":{{{requests}}},"limits":{{{limits}}}}}"#)
        };
        for (pod, container, expected) in [
            (
                of_pod(r#""cpu":"1""#, r#""cpu":"2""#),
                container("", ""),
                None,
            ),
            (
                of_pod(r#""cpu":"1""#, ""),
                container(r#""cpu":"1001m""#, ""),
                Some("requests[cpu]"),
            ),
            (
                of_pod("", r#""memory":"1Mi""#),
                container(r#""memory":"1Ki""#, r#""memory":"2Mi""#),
                Some("limits[memory]"),
            ),
            (
                of_pod(r#""cpu":"2""#, r#""cpu":"1""#),
                container("", ""),
                Some("requests"),
            ),
            (
                of_pod("", r#""cpu":"1","hugepages-2Mi":"2Mi""#),
                container(r#""cpu":"1""#, r#""cpu":"1","hugepages-2Mi":"4Mi""#),
                Some("requests[hugepages-2Mi]"),
            ),
            (
                of_pod("", r#""hugepages-2Mi":"2Mi""#),
                container("", ""),
                Some(""),
            ),
            (
                of_pod(r#""ephemeral-storage":"1""#, ""),
                container("", ""),
                Some("requests[ephemeral-storage]"),
            ),
            (
                r#","resources":{"claims":[{"name":"c"}]}"#.to_owned(),
                container("", ""),
                Some("claims"),
            ),
        ] {
            let found = in_the_way(&pod, &container);
            let expected = expected.map(|field| match field {
                "" => "spec.resources".to_owned(),
                field => format!("spec.resources.{field}"),
            });
            let is_as_expected = match &expected {
                None => found.is_empty(),
                Some(field) => found.contains(field),
            };
            assert!(is_as_expected, "{pod} {container}: {found:?}");
        }
    }

    #[test]
    fn what_a_pod_leaves_out_of_what_it_states_for_itself_has_a_default() {
        let stated = |of_pod: &str, of_container: &str| {
            let text = format!(
                r#"{{"spec":{{"resources":{of_pod},"containers":[{{"name":"c","resources":{of_container}}}]}}}}"#
            );
            let mut pod: Pod = serde_json::from_str(&text).unwrap();
            defaults::apply(&mut pod);
            serde_json::to_value(pod.spec.unwrap().resources).unwrap()
        };
        for (of_pod, of_container, expected) in [
            (json!({}), json!({"limits": {"cpu": "1"}}), json!({})),
            (
                json!({"limits": {"cpu": "2", "memory": "1Gi"}}),
                json!({"requests": {"cpu": "500m"}}),
                json!({"limits": {"cpu": "2", "memory": "1Gi"},
                    "requests": {"cpu": "500m", "memory": "1Gi"}}),
            ),
            (
                json!({"requests": {"cpu": "2"}}),
                json!({"requests": {"cpu": "500m", "memory": "1Mi"}}),
                json!({"requests": {"cpu": "2"}}),
            ),
            (
                json!({"requests": {"cpu": "2"}}),
                json!({"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}}),
                json!({"limits": {"hugepages-2Mi": "4Mi"},
                    "requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}}),
            ),
        ] {
            let found = stated(&of_pod.to_string(), &of_container.to_string());
            assert_eq!(found, expected, "{of_pod} {of_container}");
        }
    }
}
