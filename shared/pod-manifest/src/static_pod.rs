//! Static pods: the identity that a node gives to the pods of its manifests, and
//! the one way from a manifest's bytes to pods that may run. config-sourcer and
//! `bulkhead check` both go it, so they always agree.

use pod::core::{PodStatus, Toleration};
use pod::meta::ObjectMeta;
use pod::metadata::{CONFIG_HASH_ANNOTATION, CONFIG_SOURCE_ANNOTATION};
use pod::runtime_class::RuntimeClasses;
use pod::wire::{MAX_POD_BYTES, content_hash};
use pod::{Pod, PodSource};
use pod_validation::{
    FieldError, MAX_ERRORS, Reason, apply_runtime_class, runtime_class_errors, uid_error,
};

use crate::manifest::{DecodedPod, ManifestError, read};

/// Namespace of a pod that names none.
const DEFAULT_NAMESPACE: &str = "default";

/// Where a manifest came from; part of the identity of its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A file, by its path.
    File(&'a str),
    /// A URL.
    Url(&'a str),
}

impl Origin<'_> {
    fn source(self) -> PodSource {
        match self {
            Origin::File(_) => PodSource::File,
            Origin::Url(_) => PodSource::Http,
        }
    }
}

/// What the pods of manifests get from their node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestNode {
    /// Ends the names of the pods.
    pub name: String,
    /// Those that pods may name.
    pub runtime_classes: RuntimeClasses,
}

/// A node of this name without runtime classes.
impl From<&str> for ManifestNode {
    fn from(name: &str) -> ManifestNode {
        ManifestNode {
            name: name.to_owned(),
            runtime_classes: RuntimeClasses::new(),
        }
    }
}

/// The static pods of a manifest, ready to run, or everything that is wrong
/// with it. They lack only when they were first seen.
pub fn static_pods(
    manifest: &[u8],
    origin: Origin<'_>,
    node: &ManifestNode,
) -> Result<Vec<Pod>, Vec<ManifestError>> {
    let mut pods = Vec::new();
    let (all, mut errors) = read(manifest);
    let in_decoding = errors.clone();
    for mut decoded in all {
        let mut found = judge(&mut decoded, origin, node);
        found.retain(|error| !follows(error, &decoded, &in_decoding));
        if found.is_empty() {
            pods.push(decoded.pod);
        } else {
            errors.extend(found.into_iter().map(|error| decoded.located(error)));
        }
        if errors.len() >= MAX_ERRORS {
            break;
        }
    }
    if errors.is_empty() {
        Ok(pods)
    } else {
        Err(errors)
    }
}

/// Whether an error may be there only because something in its document could not be decoded:
/// it is about that, or about what is missing beside it or anywhere.
fn follows(error: &FieldError, decoded: &DecodedPod, in_decoding: &[ManifestError]) -> bool {
    let mut of_document = in_decoding
        .iter()
        .filter(|it| it.document == decoded.document || it.document == 0)
        .map(|it| it.error.field.as_str());
    let parent = |path: &str| path.rsplit_once('.').map(|(parent, _)| parent.to_owned());
    let is_within = |path: &str, of: &str| {
        let rest = path.strip_prefix(of);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    of_document.any(|wrong| {
        let is_at = is_within(&error.field, wrong) || is_within(wrong, &error.field);
        match error.reason {
            Reason::NotFound { .. } => true,
            Reason::Required => is_at || parent(wrong) == parent(&error.field),
            _ => is_at,
        }
    })
}

/// Gives a pod its node's identity, and tells everything that is wrong with it.
fn judge(decoded: &mut DecodedPod, origin: Origin<'_>, node: &ManifestNode) -> Vec<FieldError> {
    let mut found = decoded.static_pod_restrictions();
    found.extend(decoded.unsupported_fields());
    identify(decoded, origin, &node.name.to_lowercase());
    apply_runtime_class(&mut decoded.pod, &node.runtime_classes);
    if let Some(error) = size_error(decoded) {
        return vec![error];
    }
    let (pod, prefix) = (&decoded.pod, &decoded.prefix);
    found.extend(runtime_class_errors(pod, &node.runtime_classes, prefix));
    found.extend(uid_error(pod, prefix));
    found.extend(decoded.validate());
    found
}

/// Gives a pod what a kubelet gives it: UID, name with the node's, namespace,
/// node, annotations, and for a file's pod the toleration of every eviction.
///
/// The UID is a hash of the pod as written (formatting aside), the node and the
/// origin. It does not depend on defaults, so an upgrade that adds one restarts
/// nothing. Its 32 hexadecimal digits look like the kubelet's, whose exact value
/// depends on Go's types and is not reproduced.
fn identify(decoded: &mut DecodedPod, origin: Origin<'_>, node_name: &str) {
    let pod = &mut decoded.pod;
    let uid = match &pod.metadata.uid {
        Some(uid) => uid.clone(),
        None => {
            let place = match origin {
                Origin::File(path) => format!("host:{node_name}file:{path}"),
                Origin::Url(url) => format!("url:{url}"),
            };
            content_hash(format!("{}{place}", decoded.canonical_json).as_bytes())
        }
    };
    let metadata = &mut pod.metadata;
    drop_what_an_api_server_wrote(metadata);
    if let Some(name) = metadata.name.as_mut().filter(|name| !name.is_empty()) {
        *name = format!("{name}-{node_name}");
    }
    metadata
        .namespace
        .get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_HASH_ANNOTATION.to_owned(), uid.clone());
    annotations.insert(
        CONFIG_SOURCE_ANNOTATION.to_owned(),
        origin.source().as_str().to_owned(),
    );
    metadata.uid = Some(uid);

    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.to_owned());
    if origin.source() == PodSource::File {
        tolerate_eviction(spec.tolerations.get_or_insert_default());
    }
    pod.status = Some(PodStatus {
        phase: Some("Pending".to_owned()),
        ..PodStatus::default()
    });
}

/// A manifest that was copied from a cluster carries what the API server there
/// noted of its own object. It is no wish of an author, and taken over it would
/// act: pods are admitted in the order of `creationTimestamp`.
fn drop_what_an_api_server_wrote(metadata: &mut ObjectMeta) {
    metadata.creation_timestamp = None;
    metadata.generate_name = None;
    metadata.generation = None;
    metadata.managed_fields = None;
    metadata.resource_version = None;
    metadata.self_link = None;
}

/// A taint of the node never evicts a pod that belongs to it.
fn tolerate_eviction(tolerations: &mut Vec<Toleration>) {
    let toleration = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    if !tolerations.contains(&toleration) {
        tolerations.push(toleration);
    }
}

/// A pod that no message can carry is not judged further: that takes long.
fn size_error(decoded: &DecodedPod) -> Option<FieldError> {
    if decoded.canonical_json.len() <= MAX_POD_BYTES {
        return None;
    }
    // Without what is not kept of a pod that was copied from a cluster.
    let bytes = serde_json::to_vec(&decoded.pod).map_or(0, |json| json.len());
    (bytes > MAX_POD_BYTES).then(|| FieldError {
        field: decoded.prefix.trim_end_matches('.').to_owned(),
        reason: Reason::Malformed,
        detail: format!("the pod has {bytes} bytes, more than {MAX_POD_BYTES}"),
    })
}

#[cfg(test)]
mod tests {
    use pod::PodExt;

    use super::*;

    const PATH: Origin<'_> = Origin::File("/etc/manifests/a.yaml");
    const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: 'i:1'}\n";

    fn one(manifest: &str, origin: Origin<'_>, node: &str) -> Pod {
        let mut pods = static_pods(manifest.as_bytes(), origin, &node.into())
            .unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(pods.len(), 1);
        pods.remove(0)
    }

    fn uid(manifest: &str, origin: Origin<'_>, node: &str) -> String {
        one(manifest, origin, node).uid().to_owned()
    }

    fn errors(manifest: &str) -> Vec<String> {
        static_pods(manifest.as_bytes(), PATH, &"node".into())
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_pod_gets_its_nodes_identity() {
        let pod = one(MANIFEST, PATH, "Node-1");
        assert_eq!(pod.name(), "web-node-1");
        assert_eq!(pod.namespace(), "default");
        assert_eq!(pod.uid().len(), 32);
        assert_eq!(pod.annotation("kubernetes.io/config.hash"), Some(pod.uid()));
        assert_eq!(pod.annotation("kubernetes.io/config.source"), Some("file"));
        assert_eq!(pod.annotation("kubernetes.io/config.seen"), None);
        let spec = pod.spec_or_default();
        assert_eq!(spec.node_name.as_deref(), Some("node-1"));
        let tolerations = spec.tolerations.as_ref().unwrap();
        assert_eq!(tolerations.len(), 1);
        assert_eq!(tolerations[0].effect.as_deref(), Some("NoExecute"));
        assert!(pod.is_static());
    }

    #[test]
    fn a_url_is_another_source_without_the_toleration() {
        let pod = one(MANIFEST, Origin::Url("http://a/b"), "node");
        assert_eq!(pod.annotation("kubernetes.io/config.source"), Some("http"));
        assert_eq!(pod.spec_or_default().tolerations, None);
    }

    #[test]
    fn the_uid_follows_content_node_and_origin_only() {
        let base = uid(MANIFEST, PATH, "node");
        assert_eq!(uid(MANIFEST, PATH, "node"), base);
        let reformatted = r#"{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"image":"i:1","name":"c","tty":false}]},"metadata":{"name":"web","labels":{}}}"#;
        assert_eq!(uid(reformatted, PATH, "node"), base);
        assert_ne!(uid(MANIFEST, PATH, "other"), base);
        assert_ne!(
            uid(MANIFEST, Origin::File("/etc/manifests/b.yaml"), "node"),
            base
        );
        assert_ne!(
            uid(MANIFEST, Origin::Url("/etc/manifests/a.yaml"), "node"),
            base
        );
        assert_ne!(uid(&MANIFEST.replace("i:1", "i:2"), PATH, "node"), base);
    }

    #[test]
    fn the_uid_of_a_known_manifest_never_changes() {
        // If this fails, an upgrade would restart every static pod.
        assert_eq!(
            uid(MANIFEST, PATH, "node"),
            "6a218b812b2d8e6f7ed24a11e86781b9"
        );
    }

    #[test]
    fn a_uid_of_the_author_is_kept_and_checked() {
        let manifest = MANIFEST.replace("name: web", "name: web, uid: my-uid");
        let pod = one(&manifest, PATH, "node");
        assert_eq!(pod.uid(), "my-uid");
        assert_eq!(pod.annotation("kubernetes.io/config.hash"), Some("my-uid"));
        let found = errors(&MANIFEST.replace("name: web", "name: web, uid: ../x"));
        assert!(
            found[0].starts_with("metadata.uid: Invalid value"),
            "{found:?}"
        );
    }

    #[test]
    fn the_status_of_a_manifest_is_dropped() {
        let manifest = format!("{MANIFEST}status: {{phase: Running, podIP: 1.2.3.4}}\n");
        let status = one(&manifest, PATH, "node").status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        assert_eq!(status.pod_ip, None);
    }

    #[test]
    fn what_an_api_server_wrote_into_a_copied_manifest_is_dropped() {
        let copied = MANIFEST.replace(
            "{name: web}",
            "{name: web, generateName: web-, uid: a-b, creationTimestamp: '2024-01-01T00:00:00Z', \
             generation: 3, resourceVersion: '7', selfLink: /x, labels: {app: web}, \
             managedFields: [{manager: kubectl, operation: Update}]}",
        );
        let plain = MANIFEST.replace("{name: web}", "{name: web, uid: a-b, labels: {app: web}}");
        assert_eq!(one(&copied, PATH, "node"), one(&plain, PATH, "node"));
    }

    #[test]
    fn a_toleration_that_is_there_is_not_repeated() {
        let manifest =
            format!("{MANIFEST}  tolerations: [{{operator: Exists, effect: NoExecute}}]\n");
        let pod = one(&manifest, PATH, "node");
        assert_eq!(pod.spec_or_default().tolerations.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn a_pod_that_was_accepted_is_accepted_again() {
        // By whoever gets it next, and by this process after its restart.
        for origin in [PATH, Origin::Url("http://a/b")] {
            let mut pod = one(MANIFEST, origin, "node");
            let judge =
                |pod: &Pod| pod_validation::judge(pod, origin.source(), &RuntimeClasses::new());
            assert_eq!(judge(&pod), []);
            pod.spec.get_or_insert_default().containers[0].image = None;
            let found = judge(&pod);
            assert_eq!(found[0].field, "spec.containers[0].image", "{found:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_reported_at_once() {
        let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: Web}\nspec:\n  containers:\n  - {name: c, image: '', volumeDevices: [{name: v, devicePath: /d}]}\n  volumes: [{name: v, csi: {driver: d.example}}]\n";
        let found = errors(manifest);
        for text in [
            "metadata.name: Invalid value: \"Web-node\"",
            "spec.containers[0].image: Required value",
            "spec.containers[0].volumeDevices: not supported",
            "spec.volumes[0].csi: not supported",
        ] {
            assert!(
                found.iter().any(|error| error.starts_with(text)),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn a_pod_that_no_message_can_carry_is_refused_for_its_size_alone() {
        let gate = format!("{{\"name\":\"{}\"}},", "x".repeat(120)).repeat(9_000);
        let pod = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"web\"}},\
              \"spec\":{{\"containers\":[],\"schedulingGates\":[{}]}}}}",
            gate.trim_end_matches(',')
        );
        let list = format!("{{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[{pod}]}}");
        let bytes = format!("more than {MAX_POD_BYTES}");
        for (manifest, start) in [(pod, "the pod has "), (list, "items[0]: the pod has ")] {
            let found = errors(&manifest);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(start), "{found:?}");
            assert!(found[0].ends_with(&bytes), "{found:?}");
        }
    }

    #[test]
    fn what_is_not_kept_of_a_pod_does_not_count_for_its_size() {
        let message = "x".repeat(MAX_POD_BYTES);
        let manifest = format!("{MANIFEST}status: {{message: {message}}}\n");
        assert_eq!(one(&manifest, PATH, "node").name(), "web-node");
    }

    #[test]
    fn a_static_pod_needs_a_name_of_its_own() {
        let found = errors(&MANIFEST.replace("name: web", "generateName: web-"));
        assert!(
            found
                .iter()
                .any(|error| error.starts_with("metadata.name: Required")),
            "{found:?}"
        );
    }

    #[test]
    fn one_bad_pod_makes_the_manifest_bad() {
        let second = MANIFEST.replace("name: web", "name: x").replace("i:1", "");
        let found = errors(&format!("{MANIFEST}---\n{second}"));
        assert_eq!(
            found,
            ["document 2: spec.containers[0].image: Required value"]
        );
    }

    #[test]
    fn a_pod_gets_the_overhead_of_its_class_and_keeps_its_uid() {
        let overhead = r#"{"kata":{"handler":"kata","overhead":{"memory":"64Mi"}}}"#;
        let node = ManifestNode {
            runtime_classes: serde_json::from_str(overhead).unwrap(),
            ..ManifestNode::from("node")
        };
        let manifest = MANIFEST.replace("spec:\n", "spec:\n  runtimeClassName: kata\n");
        let pods = static_pods(manifest.as_bytes(), PATH, &node).unwrap();
        let overhead = pods[0].spec_or_default().overhead.clone().unwrap();
        assert_eq!(overhead["memory"].0, "64Mi");
        let mut other = node.clone();
        let class = other.runtime_classes.get_mut("kata").unwrap();
        class.overhead.clear();
        let again = static_pods(manifest.as_bytes(), PATH, &other).unwrap();
        assert_eq!(again[0].spec_or_default().overhead, None);
        assert_eq!(again[0].uid(), pods[0].uid());
        assert_eq!(
            errors(&manifest),
            [r#"spec.runtimeClassName: Not found: "kata""#]
        );
    }
}
