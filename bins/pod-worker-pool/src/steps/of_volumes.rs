//! What a container that is about to be made needs of its pod's volumes, beyond their
//! places.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cri_requests::{ContainerInput, EnvFileContent, EnvFiles, MAX_ENV_FILE_BYTES};
use pod::core::Container;
use pod_volumes::MountedVolume;

use super::context::StepContext;
use super::error::StepError;
use super::target::Target;
use super::volumes::in_time;

/// What is said of a volume that has not answered in time.
const LATE: &str = "it takes too long";

/// Binds the parts of volumes that a container mounts, by index of the mount.
pub(super) async fn bind_sub_paths(
    context: &StepContext,
    target: &Target<'_>,
    input: &ContainerInput<'_>,
) -> Result<BTreeMap<usize, PathBuf>, StepError> {
    let container = &input.container.name;
    let mut bound = BTreeMap::new();
    for sub_path in cri_requests::sub_paths(input)? {
        let path = context
            .host
            .bind_sub_path(target.identity, container, &sub_path);
        let path = in_time(LATE, path).await.map_err(|error| {
            let volume = &sub_path.volume;
            let what = format!(
                "failed to prepare subPath for volumeMount {volume:?} of container {container:?}"
            );
            error.while_doing(&what)
        })?;
        bound.insert(sub_path.index, path);
    }
    Ok(bound)
}

/// Reads the files of volumes that variables of a container come from.
pub(super) async fn read_env_files(
    context: &StepContext,
    target: &Target<'_>,
    container: &Container,
    volumes: &BTreeMap<String, MountedVolume>,
) -> Result<EnvFiles, StepError> {
    let mut files = EnvFiles::new();
    // No container has more variables than this, so all of its files together have to do.
    let mut left = MAX_ENV_FILE_BYTES;
    for wanted in cri_requests::env_files(container) {
        // The error of a volume that is not there is the request's.
        let Some(volume) = volumes.get(&wanted.volume) else {
            continue;
        };
        let (place, path) = (&volume.host_path, &wanted.path);
        let read = context
            .host
            .read_volume_file(target.identity, place, path, left);
        let content = in_time(LATE, read).await.map_err(|error| {
            let what = format!(
                "couldn't read env file {path:?} of volume {:?}",
                wanted.volume
            );
            error.while_doing(&what)
        })?;
        left -= content.as_ref().map_or(0, Vec::len).min(left);
        files.insert(wanted, content.map(EnvFileContent::from));
    }
    Ok(files)
}
