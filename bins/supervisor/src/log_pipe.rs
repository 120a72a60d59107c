//! Standard output and error of a process: a pipe that the supervisor holds, so
//! that the last words of a crash are kept.
//!
//! Lines go to the supervisor's own standard error, which is not waited for, and the
//! last of them stay in memory for the record of a crash.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::OFlag;
use tokio::net::unix::pipe;
use tokio::time::{Duration, sleep};
use topology::Process;

use crate::failure::Failure;
use crate::standard_error;

/// Lines that the record of a crash keeps.
pub(crate) const KEPT_LINES: usize = 17;

/// Longest line; what follows becomes the next line.
pub(crate) const MAX_LINE_BYTES: usize = 1024;

/// Stands for what cannot be shown.
const REPLACEMENT: char = '\u{fffd}';

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
}

impl LogPipe {
    /// Makes the pipe.
    pub(crate) fn open(process: Process) -> Result<LogPipe, Failure> {
        let system = |source: io::Error| Failure::System {
            action: "make a pipe",
            source,
        };
        let (reader, writer) =
            nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| system(errno.into()))?;
        let reader = pipe::Receiver::from_owned_fd(reader).map_err(system)?;
        let state = LogState {
            lines: LineSplitter::default(),
            kept: VecDeque::new(),
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
        standard_error::show(format!("{process}: {line}\n").as_bytes());
        if self.kept.len() == KEPT_LINES {
            self.kept.pop_front();
        }
        self.kept.push_back(line);
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

/// Without control characters, and what turns or hides text: nobody's terminal is
/// reprogrammed by a log, and none of its lines looks like another.
fn printable(bytes: &[u8]) -> String {
    let mut line = String::new();
    for character in String::from_utf8_lossy(bytes).chars() {
        // What replaces a byte may be longer than it.
        if line.len() + character.len_utf8().max(REPLACEMENT.len_utf8()) > MAX_LINE_BYTES {
            break;
        }
        line.push(match character {
            '\t' => ' ',
            character if telemetry::misleads(character) => REPLACEMENT,
            character => character,
        });
    }
    line
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
        let turned = "a\u{202e}b\u{2066}c\u{200b}d\u{2028}e\n";
        assert_eq!(
            splitter.push(turned.as_bytes()),
            ["a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e"]
        );
        let long = splitter.push(&[b'x'; 2 * MAX_LINE_BYTES + 1]);
        assert_eq!(long.len(), 2);
        assert_eq!(splitter.finish().as_deref(), Some("x"));
        let strange = splitter.push(&[b"\x1b".repeat(MAX_LINE_BYTES), vec![b'\n']].concat());
        assert!(strange.iter().all(|line| line.len() <= MAX_LINE_BYTES));
    }

    #[tokio::test]
    async fn last_words_hold_what_was_written_just_before_the_end() {
        let pipe = LogPipe::open(Process::Pleg).unwrap();
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
