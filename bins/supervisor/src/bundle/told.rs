//! Files that tell what was found, for `bulkhead status`: systemd tells everybody of its
//! services as much.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bulkhead_api::v1;
use ipc::Message as _;

/// One that changes.
pub(super) struct Told {
    path: PathBuf,
    last: Option<v1::SupervisorStatus>,
}

impl Told {
    pub(super) fn new(path: PathBuf) -> Told {
        Told { path, last: None }
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
    let new = path.with_extension("new");
    fs::write(&new, status.encode_length_delimited_to_vec())?;
    fs::set_permissions(&new, Permissions::from_mode(0o644))?;
    fs::rename(new, path)
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
        let mut told = Told::new(path.clone());
        for text in ["pleg keeps too much", "nothing"] {
            let status = v1::SupervisorStatus {
                degradations: vec![text.to_owned()],
                ..v1::SupervisorStatus::default()
            };
            told.tell(&status);
            assert_eq!(read(&path).unwrap(), status);
            fs::remove_file(&path).unwrap();
            told.tell(&status);
            assert!(!path.exists(), "it says nothing new");
        }
    }
}
