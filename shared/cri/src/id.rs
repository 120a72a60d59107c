//! Which ids of the runtime are usable.

/// Longest id: containerd's have 64 characters, others may be longer.
pub(crate) const MAX_ID_BYTES: usize = 256;

/// Whether an id of the runtime's is one that can be a file name, a cgroup name or a
/// log field.
pub(crate) fn is_valid_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_ID_BYTES
        && !id.starts_with('.')
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
