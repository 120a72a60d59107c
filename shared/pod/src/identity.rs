//! Who a pod is: UID, namespace, name, and where it came from. An identity
//! that exists has been checked, so it may become part of a path or a cgroup.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use thiserror::Error;

use crate::metadata::{CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION};

/// Longest pod name: a DNS-1123 subdomain, as the API server has it.
pub const MAX_NAME_LENGTH: usize = 253;
/// Longest namespace or container name: a DNS-1123 label.
pub const MAX_LABEL_LENGTH: usize = 63;
/// Longest UID. A UUID has 36 characters and a static pod's UID 32; twice that
/// leaves room for a manifest's own and keeps paths short.
pub const MAX_UID_LENGTH: usize = 64;

/// Why something cannot identify a pod or container.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// A part is empty.
    #[error("{part} is empty")]
    Empty {
        /// Which part: uid, namespace, name, container name.
        part: &'static str,
    },
    /// A part is too long.
    #[error("{part} has {length} characters, more than {limit}")]
    TooLong {
        /// Which part.
        part: &'static str,
        /// How long it is, in bytes.
        length: usize,
        /// The longest that is accepted.
        limit: usize,
    },
    /// A part has a character, or a shape, that its kind of name may not have.
    #[error("{part} {value:?} is not {expected}")]
    Malformed {
        /// Which part.
        part: &'static str,
        /// The offending value; it passed the length check.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// Which kind of source a pod came from, by the kubelet's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodSource {
    /// The manifest directory.
    File,
    /// The manifest URL.
    Http,
    /// The API server.
    Api,
}

impl PodSource {
    /// All sources, in the order in which they are reported.
    pub const ALL: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];

    /// The word in annotations and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            PodSource::File => "file",
            PodSource::Http => "http",
            PodSource::Api => "api",
        }
    }

    /// The source named by `word`, if it is one.
    pub fn parse(word: &str) -> Option<PodSource> {
        PodSource::ALL
            .into_iter()
            .find(|source| source.as_str() == word)
    }
}

impl fmt::Display for PodSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A pod's UID, namespace and name, all checked and bounded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodIdentity {
    uid: String,
    namespace: String,
    name: String,
}

impl PodIdentity {
    /// Checks the three parts and joins them.
    pub fn new(
        uid: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Result<Self, IdentityError> {
        let identity = Self {
            uid: uid.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        check_uid(&identity.uid)?;
        check_label("namespace", &identity.namespace)?;
        check_name("name", &identity.name)?;
        Ok(identity)
    }

    /// The identity in a pod's metadata.
    pub fn of(pod: &Pod) -> Result<Self, IdentityError> {
        let metadata = &pod.metadata;
        Self::new(
            metadata.uid.clone().unwrap_or_default(),
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
        )
    }

    /// The UID: unique over time, the key of everything.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `<name>_<namespace>`: what a static pod and its mirror have in common.
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.name, self.namespace)
    }
}

/// `<namespace>/<name>(<uid>)`, as the kubelet logs it.
impl fmt::Display for PodIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}({})", self.namespace, self.name, self.uid)
    }
}

impl From<&PodIdentity> for bulkhead_api::v1::PodReference {
    fn from(identity: &PodIdentity) -> Self {
        Self {
            uid: identity.uid.clone(),
            namespace: identity.namespace.clone(),
            name: identity.name.clone(),
        }
    }
}

impl TryFrom<bulkhead_api::v1::PodReference> for PodIdentity {
    type Error = IdentityError;

    fn try_from(reference: bulkhead_api::v1::PodReference) -> Result<Self, IdentityError> {
        Self::new(reference.uid, reference.namespace, reference.name)
    }
}

/// Checks a UID: ASCII letters, digits and dashes, alphanumeric at both ends.
/// That covers UUIDs and the 32 hexadecimal digits of static pods, and can
/// neither leave a directory nor end a cgroup name early.
pub fn check_uid(uid: &str) -> Result<(), IdentityError> {
    check_length("uid", uid, MAX_UID_LENGTH)?;
    let bytes = uid.as_bytes();
    let inner = bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    if !inner || !ends_alphanumeric(bytes) {
        return Err(malformed(
            "uid",
            uid,
            "made of letters, digits and inner dashes",
        ));
    }
    Ok(())
}

/// Checks a container's name (a DNS-1123 label).
pub fn check_container_name(name: &str) -> Result<(), IdentityError> {
    check_label("container name", name)
}

/// Checks that `value` is a DNS-1123 label.
pub fn check_label(part: &'static str, value: &str) -> Result<(), IdentityError> {
    check_length(part, value, MAX_LABEL_LENGTH)?;
    if !is_dns1123_label(value) {
        return Err(malformed(part, value, "a DNS-1123 label"));
    }
    Ok(())
}

/// Checks that `value` is a DNS-1123 subdomain.
pub fn check_name(part: &'static str, value: &str) -> Result<(), IdentityError> {
    check_length(part, value, MAX_NAME_LENGTH)?;
    if !is_dns1123_subdomain(value) {
        return Err(malformed(part, value, "a DNS-1123 subdomain"));
    }
    Ok(())
}

/// Lower-case letters, digits and inner dashes, 1 to 63 characters.
pub fn is_dns1123_label(value: &str) -> bool {
    value.len() <= MAX_LABEL_LENGTH && is_dns1123_part(value)
}

/// DNS-1123 parts joined by dots, at most 253 characters. A part may be longer
/// than a label may: the API server does not bound it either.
pub fn is_dns1123_subdomain(value: &str) -> bool {
    value.len() <= MAX_NAME_LENGTH && value.split('.').all(is_dns1123_part)
}

fn is_dns1123_part(value: &str) -> bool {
    let bytes = value.as_bytes();
    !bytes.iter().any(u8::is_ascii_uppercase)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && ends_alphanumeric(bytes)
}

fn ends_alphanumeric(bytes: &[u8]) -> bool {
    matches!(
        (bytes.first(), bytes.last()),
        (Some(first), Some(last)) if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric()
    )
}

fn check_length(part: &'static str, value: &str, limit: usize) -> Result<(), IdentityError> {
    if value.is_empty() {
        return Err(IdentityError::Empty { part });
    }
    if value.len() > limit {
        return Err(IdentityError::TooLong {
            part,
            length: value.len(),
            limit,
        });
    }
    Ok(())
}

fn malformed(part: &'static str, value: &str, expected: &'static str) -> IdentityError {
    IdentityError::Malformed {
        part,
        value: value.to_owned(),
        expected,
    }
}

/// The value of an annotation of the pod.
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}

/// Where the pod came from. A pod without the annotation came from the API
/// server; an unknown word is `None`.
pub fn source_of(pod: &Pod) -> Option<PodSource> {
    match annotation(pod, CONFIG_SOURCE_ANNOTATION) {
        Some(word) => PodSource::parse(word),
        None => Some(PodSource::Api),
    }
}

/// Whether the pod comes from this node's own sources (file or HTTP).
pub fn is_static(pod: &Pod) -> bool {
    matches!(source_of(pod), Some(PodSource::File | PodSource::Http))
}

/// Whether the pod only mirrors a static pod in the API server.
pub fn is_mirror(pod: &Pod) -> bool {
    !is_static(pod) && annotation(pod, CONFIG_MIRROR_ANNOTATION).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn full_name_joins_name_and_namespace() {
        let identity = PodIdentity::new(UID, "kube-system", "web-node1").unwrap();
        assert_eq!(identity.full_name(), "web-node1_kube-system");
        assert_eq!(
            identity.to_string(),
            format!("kube-system/web-node1({UID})")
        );
    }

    #[test]
    fn uids_that_could_leave_a_directory_are_refused() {
        for uid in [
            "", "..", ".", "a/b", "-a", "a-", "a b", "a\0", "ä", "a.slice",
        ] {
            assert!(check_uid(uid).is_err(), "{uid:?}");
        }
        for uid in [UID, "f0f78eb2-1f3c-4d5c-9d2c-0d7f3f6c9a10", "Abc"] {
            assert_eq!(check_uid(uid), Ok(()), "{uid:?}");
        }
        assert!(matches!(
            check_uid(&"a".repeat(65)),
            Err(IdentityError::TooLong { .. })
        ));
    }

    #[test]
    fn names_follow_dns_1123() {
        for name in ["a", "1", "a.b", "a-b.c-d", &"a".repeat(253)] {
            assert!(is_dns1123_subdomain(name), "{name:?}");
        }
        for name in [
            "",
            "A",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a/b",
            "ä",
            "a.-b",
            &"a".repeat(254),
        ] {
            assert!(!is_dns1123_subdomain(name), "{name:?}");
        }
        assert!(is_dns1123_label(&"a".repeat(63)));
        assert!(!is_dns1123_label(&"a".repeat(64)));
        assert!(!is_dns1123_label("a.b"));
    }

    #[test]
    fn a_pod_is_static_by_its_source_annotation() {
        for (word, expected) in [
            ("file", true),
            ("http", true),
            ("api", false),
            ("moon", false),
        ] {
            let mut pod = Pod::default();
            pod.metadata.annotations =
                Some([(CONFIG_SOURCE_ANNOTATION.to_owned(), word.to_owned())].into());
            assert_eq!(is_static(&pod), expected, "{word}");
        }
        assert!(!is_static(&Pod::default()));
        assert!(!is_mirror(&Pod::default()));
    }
}
