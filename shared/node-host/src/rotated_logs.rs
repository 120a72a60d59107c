//! Sizes of logs and the steps of their rotation. Blocking.
//!
//! Rotated files are beside the log, called as a kubelet calls them. Which steps are
//! made, and when, is decided elsewhere. Nothing here follows a link.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use pod::identity::check_container_name;

use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};
use crate::host::{LogChange, LogSize, LogTarget};
use crate::pod_logs::{file_name, of_container};
use crate::shared::Shared;

/// What a compressed file's name ends with.
const COMPRESSED: &str = ".gz";

/// What the name of a file ends with while it is compressed. A kubelet and we clear away
/// what was left of another's.
const TEMPORARY: &str = ".tmp";

fn directory(node: &Shared, log: &LogTarget) -> Result<Option<Directory>, NodeError> {
    check_container_name(&log.container)?;
    of_container(node, &log.pod, &log.container)
}

/// How big a log is.
pub(super) fn size(node: &Shared, log: &LogTarget) -> LogSize {
    match directory(node, log)? {
        Some(directory) => directory.file_size(&file_name(log.attempt)),
        None => Ok(None),
    }
}

/// The files beside a log: what follows its name and a dot in theirs.
pub(super) fn list(node: &Shared, log: &LogTarget) -> Result<Vec<String>, NodeError> {
    let Some(directory) = directory(node, log)? else {
        return Ok(Vec::new());
    };
    let prefix = file_name(log.attempt) + ".";
    let names = directory.names()?.into_iter();
    Ok(names
        .filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned))
        .collect())
}

/// Makes a step of a log's rotation; of a compression its end, after [`compress`].
pub(super) fn change(node: &Shared, log: &LogTarget, change: &LogChange) -> Result<(), NodeError> {
    let Some(directory) = directory(node, log)? else {
        return Ok(());
    };
    let current = file_name(log.attempt);
    let beside = |suffix: &str| format!("{current}.{suffix}");
    match change {
        LogChange::Remove(suffix) => directory.remove_file(&beside(suffix)),
        LogChange::Compress(suffix) => put_compressed(&directory, &beside(suffix)),
        LogChange::SetAside(suffix) => directory.rename(&current, &beside(suffix)),
        LogChange::PutBack(suffix) => match directory.rename(&beside(suffix), &current) {
            Err(NodeError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                Ok(())
            }
            outcome => outcome,
        },
    }
}

/// Writes the compressed form of a file beside it, which takes as long as the file is big.
/// [`change`] puts it in the place of the other.
pub(super) fn compress(node: &Shared, log: &LogTarget, suffix: &str) -> Result<(), NodeError> {
    let Some(directory) = directory(node, log)? else {
        return Ok(());
    };
    let name = format!("{}.{suffix}", file_name(log.attempt));
    let Some(source) = directory.open_file(&name)? else {
        return Ok(());
    };
    let temporary = format!("{name}{TEMPORARY}");
    let written = write_compressed(&directory, source, &temporary);
    if written.is_err() {
        // On a full disk what was written of it is what is missing.
        let _ = directory.remove_file(&temporary);
    }
    written
}

fn put_compressed(directory: &Directory, name: &str) -> Result<(), NodeError> {
    let temporary = format!("{name}{TEMPORARY}");
    if directory.file_size(name)?.is_none() {
        // It was removed meanwhile.
        return directory.remove_file(&temporary);
    }
    if directory.file_size(&temporary)?.is_none() {
        return Ok(());
    }
    // From an earlier try that was cut short after its rename.
    let compressed = format!("{name}{COMPRESSED}");
    directory.remove_file(&compressed)?;
    directory.rename(&temporary, &compressed)?;
    directory.remove_file(name)
}

fn write_compressed(
    directory: &Directory,
    mut source: File,
    temporary: &str,
) -> Result<(), NodeError> {
    let path = directory.path().join(temporary);
    let mode = source.metadata().context("inspect", &path)?.mode();
    let file = directory.create_file(temporary, mode & 0o777)?;
    let mut encoder = GzEncoder::new(file, Compression::default());
    io::copy(&mut source, &mut encoder).context("write", &path)?;
    // The uncompressed file goes next: not before this one would survive a power cut.
    let file = encoder.finish().context("write", &path)?;
    file.sync_data().context("write", &path)
}

#[cfg(test)]
mod tests;
