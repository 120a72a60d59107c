//! What to do about failures, by their reason and by words in their message.

/// About the error of a worker that nothing else explains.
pub(super) const OF_A_SYNC: &str =
    "it is tried again by itself; the log of pod-worker-pool says more";

/// Reason, a word of the message, and what to do. The first row that fits counts.
const OF_PODS: &[(&str, &str, &str)] = &[
    (
        "FailedMount",
        "still being",
        "see why the file system of the volume does not answer; it is waited for",
    ),
    (
        "FailedMount",
        "",
        "make what the message names (a path of this type, a claim's volume, an object or a \
         key), or correct the volume in the manifest; it is tried again by itself",
    ),
    (
        "FailedCreatePodSandBox",
        "spec.hostUsers",
        "upgrade the runtime as the message says, or take hostUsers: false out of the manifest: \
         waiting does not help",
    ),
    (
        "FailedCreatePodSandBox",
        "no handler",
        "give the runtime this handler, or the pod another runtimeClassName; it is tried again by \
         itself",
    ),
    (
        "FailedCreatePodSandBox",
        "",
        "check what the message names: the pod's securityContext, the runtime or its network \
         plugin; it is tried again by itself",
    ),
    (
        "NetworkNotReady",
        "",
        "give the runtime a network plugin (CNI) and its configuration; pods on the node's own \
         network start without one",
    ),
    (
        "FailedMountPodDir",
        "",
        "check the disk of the node's root directory; it is tried again by itself",
    ),
    (
        "FailedCreatePodContainer",
        "",
        "check the node's cgroups and the pod's resources; it is tried again by itself",
    ),
];

/// What to do about a failure of a whole pod.
pub(super) fn of_pod(reason: &str, message: &str) -> &'static str {
    let mut rows = OF_PODS.iter();
    let row = rows.find(|(of, word, _)| *of == reason && message.contains(word));
    row.map_or(OF_A_SYNC, |(_, _, remedy)| remedy)
}

/// A word of the message, and what to do about a container that cannot be made as its spec
/// says. The first row that fits counts.
const OF_SPECS: &[(&str, &str)] = &[
    (
        "not found",
        "add the object, or the key, that the message names, or correct its name in the manifest",
    ),
    (
        "couldn't find key",
        "add the key that the message names, or correct its name in the manifest",
    ),
    ("runAsNonRoot", OF_USERS),
    ("non-root policy", OF_USERS),
    (
        "runtime",
        "change the field that the message names, or upgrade the runtime",
    ),
    (
        "",
        "correct what the message names in the manifest or on the node",
    ),
];

const OF_USERS: &str = "have it run as another user than root: give its securityContext a \
                        runAsUser other than 0, or the image such a number as its USER; or take \
                        runAsNonRoot out of the manifest";

/// What to do about a container that cannot be made as its spec says.
fn of_spec(message: &str) -> &'static str {
    let mut rows = OF_SPECS.iter();
    let row = rows.find(|(word, _)| message.contains(word));
    row.map_or(OF_A_SYNC, |(_, remedy)| remedy)
}

/// About a program that the runtime could not start.
pub(super) const OF_A_PROGRAM: &str = "check command, image, mounts and limits against the message; this start ran no \
     program, so it has no logs";

/// What a container waits for by the reason in its status, and what to do.
pub(super) fn of_waiting(reason: &str, message: &str, image: &str) -> (String, &'static str) {
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" => (
            format!("the image {image} cannot be pulled"),
            "check the image's name, the registry, the way to it and the pod's imagePullSecrets; \
             it is tried again by itself",
        ),
        "SignatureValidationFailed" => (
            format!("the runtime does not trust the image {image}"),
            "sign the image as the runtime's policy for signatures asks for, or change that \
             policy; it is tried again by itself",
        ),
        "ErrImageNeverPull" => (
            format!("the node has no image {image} for this pod"),
            "import the image, or let imagePullPolicy be other than Never; one that is there was \
             pulled by the Secret of another pod: give this one the same imagePullSecrets",
        ),
        "InvalidImageName" => (
            format!("{image:?} is no name of an image"),
            "correct the image in the manifest",
        ),
        "CreateContainerConfigError" => (
            "it cannot be made as its spec says".to_owned(),
            of_spec(message),
        ),
        "CreateContainerError" | "RunContainerError" | "StartError" => {
            ("the runtime refuses it".to_owned(), OF_A_PROGRAM)
        }
        "RefusedByNodePolicy" => (
            "the node policy does not allow the pod".to_owned(),
            "bulkhead policy check MANIFEST tells which grant would",
        ),
        _ => ("it is not started".to_owned(), "read the events below"),
    }
}
