//! emptyDir volumes: a directory on the node's disk, or in memory.

use std::path::PathBuf;

use nix::mount::{MsFlags, mount};
use pod::Quantity;
use pod::core::EmptyDirVolumeSource;

use super::MountTable;
use crate::directory::Directory;
use crate::error::IoContext;
use crate::error::NodeError;

/// Anyone in the pod may write there.
const MODE: u32 = 0o777;

const TMPFS: &str = "tmpfs";

/// Makes the volume's directory in that of its kind; one in memory gets a file system
/// of its own, no larger than its limit.
pub(super) fn set_up(
    kind: &Directory,
    name: &str,
    source: &EmptyDirVolumeSource,
    mounts: &MountTable,
    memory_bytes: u64,
) -> Result<PathBuf, NodeError> {
    let path = kind.path().join(name);
    match source.medium.as_deref().unwrap_or_default() {
        "" => {
            kind.make_child(name, MODE)?;
        }
        "Memory" => match mounts.filesystem(&kind.real_path()?.join(name)) {
            Some(TMPFS) => {}
            Some(other) => {
                return Err(NodeError::refused(
                    path,
                    format!("{other} is mounted there"),
                ));
            }
            None => {
                kind.make_child(name, MODE)?;
                let options = format!("size={}", size(source, memory_bytes)?);
                let source = Some(TMPFS);
                let none = MsFlags::empty();
                mount(source, &path, source, none, Some(options.as_str()))
                    .context("mount", &path)?;
            }
        },
        other => {
            return Err(NodeError::refused(
                name,
                format!("medium {other:?} is not supported"),
            ));
        }
    }
    Ok(path)
}

/// The smaller one of the volume's own limit and what the pod may use in all.
fn size(source: &EmptyDirVolumeSource, memory_bytes: u64) -> Result<u64, NodeError> {
    let Some(limit) = &source.size_limit else {
        return Ok(memory_bytes);
    };
    let limit = Quantity::from_api(limit)
        .map_err(|error| NodeError::refused("sizeLimit", error.to_string()))?;
    let limit = u64::try_from(limit.value()).ok().filter(|limit| *limit > 0);
    Ok(limit.map_or(memory_bytes, |limit| limit.min(memory_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_in_memory_is_as_large_as_the_smallest_limit() {
        let source = |limit: &str| -> EmptyDirVolumeSource {
            serde_json::from_str(&format!(r#"{{"medium":"Memory"{limit}}}"#)).unwrap()
        };
        for (limit, bytes) in [
            ("", 1 << 30),
            (r#","sizeLimit":"1Mi""#, 1 << 20),
            (r#","sizeLimit":"2Gi""#, 1 << 30),
            (r#","sizeLimit":"0""#, 1 << 30),
        ] {
            assert_eq!(size(&source(limit), 1 << 30).unwrap(), bytes, "{limit}");
        }
        assert!(size(&source(r#","sizeLimit":"x""#), 1).is_err());
    }
}
