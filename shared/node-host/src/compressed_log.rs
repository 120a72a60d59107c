//! A compressed log file that stays open while it is read, as if it were not compressed.
//!
//! Nothing of it is kept: to go back means to begin anew.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use flate2::bufread::GzDecoder;

use crate::blocking::joined;
use crate::error::{IoContext as _, NodeError};
use crate::host::LogFile;

/// A compressed log file on disk.
pub(super) struct CompressedLog {
    reading: Arc<Mutex<Reading>>,
    path: PathBuf,
    identity: (u64, u64),
}

struct Reading {
    decoder: GzDecoder<BufReader<File>>,
    /// How much was decompressed.
    position: u64,
}

impl Reading {
    fn begin(file: File) -> Reading {
        Reading {
            decoder: GzDecoder::new(BufReader::new(file)),
            position: 0,
        }
    }

    fn read_at(&mut self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        if offset < self.position {
            let mut file = self.decoder.get_ref().get_ref().try_clone()?;
            file.seek(SeekFrom::Start(0))?;
            *self = Reading::begin(file);
        }
        let skipped = offset - self.position;
        let skipped = io::copy(&mut (&mut self.decoder).take(skipped), &mut io::sink())?;
        self.position += skipped;
        let mut bytes = Vec::new();
        if self.position == offset {
            let wanted = u64::try_from(length).unwrap_or(u64::MAX);
            (&mut self.decoder).take(wanted).read_to_end(&mut bytes)?;
            self.position += bytes.len() as u64;
        }
        Ok(bytes)
    }
}

impl CompressedLog {
    pub(super) fn new(file: File, path: PathBuf) -> Result<CompressedLog, NodeError> {
        let metadata = file.metadata().context("inspect", &path)?;
        Ok(CompressedLog {
            reading: Arc::new(Mutex::new(Reading::begin(file))),
            path,
            identity: (metadata.dev(), metadata.ino()),
        })
    }
}

#[async_trait]
impl LogFile for CompressedLog {
    async fn size(&self) -> Result<Option<u64>, NodeError> {
        Ok(None)
    }

    async fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, NodeError> {
        let (reading, path) = (Arc::clone(&self.reading), self.path.clone());
        let work = move || {
            let mut reading = reading.lock().unwrap_or_else(PoisonError::into_inner);
            reading.read_at(offset, length).context("decompress", &path)
        };
        joined(tokio::task::spawn_blocking(work).await)
    }

    fn identity(&self) -> (u64, u64) {
        self.identity
    }
}
