//! A log file that stays open while it is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use crate::blocking::joined;
use crate::error::IoContext as _;
use crate::error::NodeError;
use crate::host::LogFile;

/// A log file on disk.
#[derive(Debug)]
pub(super) struct OpenedLog {
    file: Arc<File>,
    path: PathBuf,
    identity: (u64, u64),
}

impl OpenedLog {
    pub(super) fn new(file: File, path: PathBuf) -> Result<OpenedLog, NodeError> {
        let metadata = file.metadata().context("inspect", &path)?;
        Ok(OpenedLog {
            file: Arc::new(file),
            path,
            identity: (metadata.dev(), metadata.ino()),
        })
    }

    async fn run<Value: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> io::Result<Value> + Send + 'static,
    ) -> Result<Value, NodeError> {
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        let work = move || work(&file).context("read", &path);
        joined(tokio::task::spawn_blocking(work).await)
    }
}

#[async_trait]
impl LogFile for OpenedLog {
    async fn size(&self) -> Result<u64, NodeError> {
        self.run(|file| file.metadata().map(|metadata| metadata.len()))
            .await
    }

    async fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, NodeError> {
        self.run(move |file| {
            let mut bytes = vec![0; length];
            let read = file.read_at(&mut bytes, offset)?;
            bytes.truncate(read);
            Ok(bytes)
        })
        .await
    }

    fn identity(&self) -> (u64, u64) {
        self.identity
    }
}
