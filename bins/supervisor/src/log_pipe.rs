//! Standard output and error of a process: a pipe that the supervisor holds, so
//! that the last words of a crash are kept.
//!
//! Lines go to a file of bounded size, to the supervisor's own standard error,
//! and the last of them stay in memory for the record of a crash.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::net::unix::pipe;
use tokio::time::{Duration, sleep};
use topology::Process;

use crate::failure::Failure;

/// Lines that the record of a crash keeps.
pub(crate) const KEPT_LINES: usize = 20;

/// Longest line; what follows becomes the next line.
pub(crate) const MAX_LINE_BYTES: usize = 1024;

/// Stands for what cannot be shown.
const REPLACEMENT: char = '\u{fffd}';

/// Size at which a log file becomes `<name>.1`, replacing an older one.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Bytes that are read at once, and the rest after so many: 6 MiB/s, which a
/// process in trouble may well fill, without the supervisor doing nothing else.
const READ_BYTES: usize = 64 << 10;
const REST_AFTER_FULL_READ: Duration = Duration::from_millis(10);

/// The pipe of one process; it outlives the process.
#[derive(Debug)]
pub(crate) struct LogPipe {
    process: Process,
    reader: pipe::Receiver,
    writer: OwnedFd,
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    lines: LineSplitter,
    kept: VecDeque<String>,
    file: LogFile,
    /// Lines that standard error did not take.
    unshown: u64,
}

impl LogPipe {
    /// Makes the pipe and opens `<directory>/<process>.log`.
    pub(crate) fn open(process: Process, directory: &Path) -> Result<LogPipe, Failure> {
        let system = |source: io::Error| Failure::System {
            action: "make a pipe",
            source,
        };
        let (reader, writer) =
            nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| system(errno.into()))?;
        let reader = pipe::Receiver::from_owned_fd(reader).map_err(system)?;
        let path = directory.join(format!("{process}.log"));
        let file = LogFile::open(path.clone()).map_err(|source| Failure::Io {
            action: "open",
            path,
            source,
        })?;
        let state = LogState {
            lines: LineSplitter::default(),
            kept: VecDeque::new(),
            file,
            unshown: 0,
        };
        Ok(LogPipe {
            process,
            reader,
            writer,
            state: Mutex::new(state),
        })
    }

    /// Where the process writes.
    pub(crate) fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// Reads until it is dropped.
    pub(crate) async fn pump(&self) {
        loop {
            // The writer is held by us, so there is no end; an error would come
            // again at once and must not become a busy loop.
            if self.reader.readable().await.is_err() || self.read_once() >= READ_BYTES {
                sleep(REST_AFTER_FULL_READ).await;
            }
        }
    }

    /// Reads what there is now, at most what a pipe holds, and returns the last
    /// lines: the record of a crash.
    pub(crate) fn last_words(&self) -> Vec<String> {
        self.read_once();
        let mut state = self.lock();
        if let Some(rest) = state.lines.finish() {
            state.take(self.process, rest);
        }
        state.kept.drain(..).collect()
    }

    fn read_once(&self) -> usize {
        let mut buffer = vec![0; READ_BYTES];
        let mut total = 0;
        while total < READ_BYTES {
            // Past tokio's own readiness, so that what was written just now is
            // seen; it is told when there is nothing more.
            let Ok(bytes @ 1..) = nix::unistd::read(&self.reader, &mut buffer) else {
                let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                drop(self.reader.try_io(empty));
                break;
            };
            total += bytes;
            let mut state = self.lock();
            let lines = state.lines.push(buffer.get(..bytes).unwrap_or_default());
            for line in lines {
                state.take(self.process, line);
            }
        }
        total
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    fn take(&mut self, process: Process, line: String) {
        self.file.write(process, &line);
        self.show(process, &line);
        if self.kept.len() == KEPT_LINES {
            self.kept.pop_front();
        }
        self.kept.push_back(line);
    }

    /// To our own standard error, unless that would block: whoever reads it may
    /// be stuck, and the supervisor must not be.
    fn show(&mut self, process: Process, line: &str) {
        let stderr = io::stderr();
        let mut ready = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        let writable = poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0);
        if !writable {
            self.unshown = self.unshown.saturating_add(1);
            return;
        }
        let mut text = String::new();
        if self.unshown > 0 {
            text = format!("{process}: ({} lines not shown)\n", self.unshown);
            self.unshown = 0;
        }
        text.push_str(&format!("{process}: {line}\n"));
        // Less than what a pipe takes at once after POLLOUT. When it is closed
        // there is nobody to tell.
        drop(stderr.lock().write_all(text.as_bytes()));
    }
}

/// Cuts bytes into lines of bounded length.
#[derive(Debug, Default)]
struct LineSplitter(Vec<u8>);

impl LineSplitter {
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                lines.push(printable(&self.0));
                self.0.clear();
                continue;
            }
            if self.0.len() == MAX_LINE_BYTES {
                lines.push(printable(&self.0));
                self.0.clear();
            }
            self.0.push(byte);
        }
        lines
    }

    /// What came without a newline, as when a process dies in a line.
    fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.0);
        (!rest.is_empty()).then(|| printable(&rest))
    }
}

/// Without control characters: nobody's terminal is reprogrammed by a log.
fn printable(bytes: &[u8]) -> String {
    let mut line = String::new();
    for character in String::from_utf8_lossy(bytes).chars() {
        // What replaces a byte may be longer than it.
        if line.len() + character.len_utf8().max(REPLACEMENT.len_utf8()) > MAX_LINE_BYTES {
            break;
        }
        line.push(match character {
            '\t' => ' ',
            character if character.is_control() => REPLACEMENT,
            character => character,
        });
    }
    line
}

/// A log file with one older generation.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<LogFile> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile {
            path,
            file: Some(file),
            bytes,
        })
    }

    /// Writes a line. A full disk costs lines in the file, nothing else.
    fn write(&mut self, process: Process, line: &str) {
        if self.bytes >= MAX_FILE_BYTES {
            self.rotate(process);
        }
        let Some(file) = &mut self.file else {
            return;
        };
        if file.write_all(format!("{line}\n").as_bytes()).is_ok() {
            self.bytes += line.len() as u64 + 1;
        }
    }

    fn rotate(&mut self, process: Process) {
        let old = self.path.with_extension("log.1");
        let rotated =
            std::fs::rename(&self.path, old).and_then(|()| LogFile::open(self.path.clone()));
        match rotated {
            Ok(file) => *self = file,
            Err(error) => {
                tracing::warn!(%process, %error, "cannot rotate the log; it is begun again");
                let emptied = self.file.as_ref().map(|file| file.set_len(0));
                drop(emptied);
                self.bytes = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_kept_and_made_printable() {
        let mut splitter = LineSplitter::default();
        assert_eq!(splitter.push(b"one\ntw"), ["one"]);
        assert_eq!(splitter.push(b"o\x1b[2J\n\nrest"), ["two\u{fffd}[2J", ""]);
        assert_eq!(splitter.finish().as_deref(), Some("rest"));
        assert_eq!(splitter.finish(), None);
        let long = splitter.push(&[b'x'; 2 * MAX_LINE_BYTES + 1]);
        assert_eq!(long.len(), 2);
        assert_eq!(splitter.finish().as_deref(), Some("x"));
        let strange = splitter.push(&[b"\x1b".repeat(MAX_LINE_BYTES), vec![b'\n']].concat());
        assert!(strange.iter().all(|line| line.len() <= MAX_LINE_BYTES));
    }

    #[test]
    fn a_log_file_has_one_older_generation_and_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.log");
        let mut file = LogFile::open(path.clone()).unwrap();
        file.write(Process::Pleg, "old");
        file.bytes = MAX_FILE_BYTES;
        file.write(Process::Pleg, "new");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        let old = std::fs::read_to_string(path.with_extension("log.1"));
        assert_eq!(old.unwrap(), "old\n");
    }

    #[tokio::test]
    async fn last_words_hold_what_was_written_just_before_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = LogPipe::open(Process::Pleg, directory.path()).unwrap();
        for number in 0..KEPT_LINES + 5 {
            let line = format!("line {number}\n");
            nix::unistd::write(pipe.writer(), line.as_bytes()).unwrap();
        }
        nix::unistd::write(pipe.writer(), b"panicked at").unwrap();
        let words = pipe.last_words();
        assert_eq!(words.len(), KEPT_LINES);
        assert_eq!(words.last().map(String::as_str), Some("panicked at"));
        assert!(pipe.last_words().is_empty());
    }
}
