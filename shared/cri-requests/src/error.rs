//! Why no request can be made of a pod.

use pod::identity::IdentityError;

/// Why no request can be made of a pod. What validation let through ends here at most
/// when the pod changed under us or the sender is hostile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// UID, namespace or a name cannot be part of a path.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A field has a value that cannot be used.
    #[error("{field}: {reason}")]
    Invalid {
        /// Path of the field in the pod.
        field: String,
        /// Why not.
        reason: String,
    },
    /// A ConfigMap or Secret, or a key of it, is not there, or nobody knows.
    #[error("{message}")]
    Object {
        /// In the kubelet's words.
        message: String,
    },
    /// A volume that a container mounts is not set up.
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    VolumeMissing {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// `runAsNonRoot` holds and the container would be root, or it cannot be told.
    #[error("{reason} (pod: \"{pod}\", container: {container})")]
    RunsAsRoot {
        /// What is wrong, in the kubelet's words.
        reason: String,
        /// The pod, as logs name it.
        pod: String,
        /// The container.
        container: String,
    },
    /// The fully qualified host name does not fit.
    #[error(
        "Failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long \
         ({limit} characters is the max, {length} characters requested)"
    )]
    HostNameTooLong {
        /// The name.
        name: String,
        /// The longest that the kernel takes.
        limit: usize,
        /// Its length.
        length: usize,
    },
    /// Variables expand to more than any process could be given.
    #[error("{field}: expands to more than {limit} bytes")]
    ExpansionTooLarge {
        /// Path of the field in the pod.
        field: String,
        /// The bound.
        limit: usize,
    },
}

impl BuildError {
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> BuildError {
        BuildError::Invalid {
            field: field.into(),
            reason: reason.into(),
        }
    }
}
