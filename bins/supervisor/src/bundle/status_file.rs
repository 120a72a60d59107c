//! Files that tell what was found, for `bulkhead status`: systemd tells everybody of its
//! services as much.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bulkhead_api::v1;
use ipc::Message as _;

/// One that is written anew when what is found changes.
pub(super) struct StatusFile {
    path: PathBuf,
    last: Option<v1::SupervisorStatus>,
}

impl StatusFile {
    pub(super) fn new(path: PathBuf) -> StatusFile {
        StatusFile { path, last: None }
    }

    pub(super) fn tell(&mut self, status: &v1::SupervisorStatus) {
        if self.last.as_ref() == Some(status) {
            return;
        }
        match write(&self.path, status) {
            Ok(()) => self.last = Some(status.clone()),
            Err(error) => tracing::error!(%error, "cannot tell what was found"),
        }
    }
}

/// Replaces the file.
pub(super) fn write(path: &Path, status: &v1::SupervisorStatus) -> io::Result<()> {
    let bytes = status.encode_length_delimited_to_vec();
    state_file::write_atomically(path, &bytes, |file| {
        file.set_permissions(Permissions::from_mode(0o644))
    })
}

/// Reads what root has written.
pub(super) fn read(path: &Path) -> io::Result<v1::SupervisorStatus> {
    let read = v1::SupervisorStatus::decode_length_delimited(&*fs::read(path)?);
    read.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_told_once_and_anew_when_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("told");
        let mut file = StatusFile::new(path.clone());
        for text in ["pleg keeps too much", "nothing"] {
            let status = v1::SupervisorStatus {
                degradations: vec![text.to_owned()],
                ..v1::SupervisorStatus::default()
            };
            file.tell(&status);
            assert_eq!(read(&path).unwrap(), status);
            fs::remove_file(&path).unwrap();
            file.tell(&status);
            assert!(!path.exists(), "it says nothing new");
        }
    }
}
