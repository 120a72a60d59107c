//! Reads one log from a position on, and follows it: to its end, into the file that takes
//! its place when it is rotated, and until its container has ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use node_host::{LogFile, Logs, NodeError};

use super::line::{self, LogStream};
use super::tail::start_of_last;
use super::{LogChunk, LogError, LogOptions, LogTarget};

/// How much of the file is read at a time.
const READ_BYTES: usize = 64 << 10;

/// When a chunk is handed on although more would be there: half of what a message
/// takes, so that one more line of the usual length fits.
const CHUNK_BYTES: usize = 32 << 10;

/// Longest line of the file. Runtimes break lines up at 16 KiB; a longer one is not
/// theirs, and is left out.
const MAX_LINE_BYTES: usize = 64 << 10;

/// How often the end of a followed log is looked at again.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Reads a log. `is_running` tells whether its container still writes; it is only
/// asked when following. Ends at the end of the log; a log that is not there is
/// [`LogError::NotFound`], unless it is followed and may still come.
pub(crate) fn read_log(
    host: Arc<dyn Logs>,
    target: LogTarget,
    options: LogOptions,
    is_running: Arc<dyn Fn() -> bool + Send + Sync>,
) -> impl Stream<Item = Result<LogChunk, LogError>> + Send {
    let reader = Reader::new(host, target, options, is_running);
    stream::try_unfold(reader, |mut reader| async move {
        Ok(reader.next_chunk().await?.map(|chunk| (chunk, reader)))
    })
}

struct Reader {
    host: Arc<dyn Logs>,
    target: LogTarget,
    options: LogOptions,
    is_running: Arc<dyn Fn() -> bool + Send + Sync>,
    opened: Option<Opened>,
    /// What was read and not yet handed on.
    pending: Pending,
    /// Whether a line of each stream has begun and not ended.
    open_lines: OpenLines,
}

struct Opened {
    log: Box<dyn LogFile>,
    /// Up to where it was read.
    position: u64,
}

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    /// Up to where `bytes` was handed on.
    done: usize,
    /// In the middle of a line that is too long: it goes up to the next line end.
    skipping: bool,
}

#[derive(Default)]
struct OpenLines {
    stdout: bool,
    stderr: bool,
}

impl OpenLines {
    fn of(&mut self, stream: LogStream) -> &mut bool {
        match stream {
            LogStream::Stdout => &mut self.stdout,
            LogStream::Stderr => &mut self.stderr,
        }
    }
}

/// What to do at the end of a file.
enum AtEnd {
    /// There is more, in this file or in the one that took its place.
    More,
    Wait,
    Over,
}

impl Reader {
    fn new(
        host: Arc<dyn Logs>,
        target: LogTarget,
        options: LogOptions,
        is_running: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Reader {
        Reader {
            host,
            target,
            options,
            is_running,
            opened: None,
            pending: Pending::default(),
            open_lines: OpenLines::default(),
        }
    }

    /// The next lines; `None` when there will be no more.
    pub(super) async fn next_chunk(&mut self) -> Result<Option<LogChunk>, LogError> {
        loop {
            if let Some(chunk) = self.take_chunk() {
                return Ok(Some(chunk));
            }
            if self.opened.is_none() && !self.open_first().await? {
                return Ok(None);
            }
            if self.read_more().await? {
                continue;
            }
            // Asked before the last look: what was written before it ended is seen then.
            let was_running = self.options.follow && (self.is_running)();
            match self.at_end(was_running).await? {
                AtEnd::More => {}
                AtEnd::Wait => tokio::time::sleep(POLL_INTERVAL).await,
                AtEnd::Over => return Ok(None),
            }
        }
    }

    /// Opens the log where its wanted part begins; `false` when it will never be there.
    async fn open_first(&mut self) -> Result<bool, LogError> {
        loop {
            let was_running = self.options.follow && (self.is_running)();
            if let Some(log) = self.open().await? {
                let position = match self.options.tail_lines {
                    Some(lines) => start_of_last(&*log, lines).await?,
                    None => 0,
                };
                self.opened = Some(Opened { log, position });
                return Ok(true);
            }
            if !self.options.follow {
                let LogTarget {
                    pod,
                    container,
                    attempt,
                } = self.target.clone();
                return Err(LogError::NotFound {
                    pod,
                    container,
                    attempt,
                });
            }
            if !was_running {
                return Ok(false);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Opens what has the log's name now.
    async fn open(&self) -> Result<Option<Box<dyn LogFile>>, NodeError> {
        let LogTarget {
            pod,
            container,
            attempt,
        } = &self.target;
        self.host.open_log(pod, container, *attempt).await
    }

    /// Reads on; whether there was anything.
    async fn read_more(&mut self) -> Result<bool, NodeError> {
        let Some(opened) = &mut self.opened else {
            return Ok(false);
        };
        let bytes = opened.log.read_at(opened.position, READ_BYTES).await?;
        opened.position += bytes.len() as u64;
        self.pending.push(&bytes);
        Ok(!bytes.is_empty())
    }

    /// The end of the file is reached. `was_running`: the container may have written
    /// more since then.
    async fn at_end(&mut self, was_running: bool) -> Result<AtEnd, NodeError> {
        if !self.options.follow {
            return Ok(AtEnd::Over);
        }
        // Looked for before the last look at this one: once there is another, this one
        // has all that it ever will.
        let named = self.open().await?;
        let Some(opened) = &mut self.opened else {
            return Ok(AtEnd::Over);
        };
        let next = named.filter(|named| named.identity() != opened.log.identity());
        let size = opened.log.size().await?;
        if size > opened.position {
            return Ok(AtEnd::More);
        }
        if size < opened.position {
            // Emptied in place: what is there now is new.
            opened.position = 0;
            self.pending = Pending::default();
            return Ok(AtEnd::More);
        }
        match next {
            Some(log) => {
                *opened = Opened { log, position: 0 };
                self.pending = Pending::default();
                Ok(AtEnd::More)
            }
            None if was_running => Ok(AtEnd::Wait),
            None => Ok(AtEnd::Over),
        }
    }

    /// Whole lines out of what was read, as far as a chunk goes.
    fn take_chunk(&mut self) -> Option<LogChunk> {
        let mut chunk: Option<LogChunk> = None;
        while let Some(text) = self.pending.peek_line() {
            let taken = text.len() + 1;
            let Some(line) = line::parse(text) else {
                self.pending.done += taken;
                continue;
            };
            if self.options.since.is_some_and(|since| line.at < since) {
                self.pending.done += taken;
                continue;
            }
            let is_full = |chunk: &LogChunk| chunk.content.len() + line.content.len() > CHUNK_BYTES;
            if chunk.as_ref().is_some_and(is_full) {
                break;
            }
            let chunk = chunk.get_or_insert_with(|| LogChunk {
                content: Vec::new(),
                at: line.at,
            });
            let is_open = self.open_lines.of(line.stream);
            if self.options.timestamps && !*is_open {
                chunk.content.extend_from_slice(line.time.as_bytes());
                chunk.content.push(b' ');
            }
            chunk.content.extend_from_slice(line.content);
            if !line.partial {
                chunk.content.push(b'\n');
            }
            *is_open = line.partial;
            chunk.at = line.at;
            self.pending.done += taken;
        }
        chunk
    }
}

impl Pending {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line, without its end. One that is too long is thrown away as it
    /// comes in.
    fn peek_line(&mut self) -> Option<&[u8]> {
        loop {
            let rest = &self.bytes[self.done..];
            match rest.iter().position(|byte| *byte == b'\n') {
                Some(end) if self.skipping || end > MAX_LINE_BYTES => {
                    self.done += end + 1;
                    self.skipping = false;
                }
                Some(end) => return Some(&self.bytes[self.done..self.done + end]),
                None => {
                    if rest.len() > MAX_LINE_BYTES || self.skipping {
                        self.done = self.bytes.len();
                        self.skipping = true;
                    }
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
