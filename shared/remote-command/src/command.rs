//! A session with a command: its input, its output, the size of its terminal, its end.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::Error;
use crate::frame::Frame;
use crate::outcome::Outcome;
use crate::spdy::{self, Reader, Writer};
use crate::upgrade::upgrade;

/// The version in which the end of a command has a code.
const PROTOCOL: &str = "v4.channel.k8s.io";

/// Most that is kept of what is said of the end.
const MAX_OUTCOME_BYTES: usize = 64 << 10;

/// Which streams a session has, as it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the protocol has them")]
pub struct Streams {
    /// The command reads what is sent.
    pub stdin: bool,
    /// What it writes comes.
    pub stdout: bool,
    /// The same of its errors; not with a terminal.
    pub stderr: bool,
    /// It has a terminal, which has a size.
    pub tty: bool,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters of a line.
    pub width: u16,
    /// Lines.
    pub height: u16,
}

/// What goes to the command. Clones share it.
#[derive(Clone, Debug)]
pub struct Input {
    writer: Writer,
    stdin: Option<u32>,
    resize: Option<u32>,
}

/// What comes of the command. The session ends with it.
#[derive(Debug)]
pub struct Output {
    reader: Reader,
    stdout: Option<u32>,
    stderr: Option<u32>,
    outcome: Vec<u8>,
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Of its standard output, or of its terminal.
    Stdout(Vec<u8>),
    /// Of its standard error.
    Stderr(Vec<u8>),
    /// It ended, and everything before came.
    Ended(Outcome),
}

/// The stream of the outcome is the first.
const ERROR: u32 = 1;

/// Opens the session that is served at `path` of this connection.
///
/// # Errors
/// When it is refused or the connection breaks.
pub async fn command<Io>(io: Io, path: &str, streams: Streams) -> Result<(Input, Output), Error>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = upgrade(io, path, PROTOCOL).await?;
    let all = [
        (true, "error"),
        (streams.stdin, "stdin"),
        (streams.stdout, "stdout"),
        (streams.stderr && !streams.tty, "stderr"),
        (streams.tty, "resize"),
    ];
    let opened = all.iter().filter(|(is_wanted, _)| *is_wanted);
    let opened: Vec<[(&str, &str); 1]> = opened.map(|(_, kind)| [("streamtype", *kind)]).collect();
    let id = |kind: &str| {
        let mut ids = (1..).step_by(2).zip(&opened);
        ids.find_map(|(id, [(_, opened)])| (*opened == kind).then_some(id))
    };
    let headers: Vec<&[(&str, &str)]> = opened.iter().map(|headers| &headers[..]).collect();
    let (reader, writer) = spdy::start(io, &headers).await?;
    let input = Input {
        writer,
        stdin: id("stdin"),
        resize: id("resize"),
    };
    let output = Output {
        reader,
        stdout: id("stdout"),
        stderr: id("stderr"),
        outcome: Vec::new(),
    };
    Ok((input, output))
}

impl Input {
    /// Sends input. Whether the session still is there to take it.
    pub async fn send(&self, bytes: &[u8]) -> bool {
        match self.stdin {
            Some(stdin) => self.writer.send(stdin, bytes).await,
            None => false,
        }
    }

    /// Ends the input: the command reads its end.
    pub async fn end(&self) {
        if let Some(stdin) = self.stdin {
            self.writer.end(stdin).await;
        }
    }

    /// Says how large the terminal is. Whether the session still is there.
    pub async fn resize(&self, size: Size) -> bool {
        let Some(resize) = self.resize else {
            return false;
        };
        let Size { width, height } = size;
        let text = format!("{{\"Width\":{width},\"Height\":{height}}}");
        self.writer.send(resize, text.as_bytes()).await
    }
}

impl Output {
    /// What comes next. Not cancel-safe; of no use after the end.
    ///
    /// # Errors
    /// When the connection ends before the command.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            match self.reader.next().await? {
                None => return self.ended().ok_or(Error::Ended),
                Some(Frame::Data {
                    stream,
                    bytes,
                    is_last,
                }) if stream == ERROR => {
                    if self.outcome.len() + bytes.len() > MAX_OUTCOME_BYTES {
                        return Err(Error::Protocol("says too much of the command's end"));
                    }
                    self.outcome.extend(bytes);
                    if is_last && let Some(event) = self.ended() {
                        return Ok(event);
                    }
                }
                Some(Frame::Data { stream, bytes, .. }) if !bytes.is_empty() => {
                    if Some(stream) == self.stdout {
                        return Ok(Event::Stdout(bytes));
                    }
                    if Some(stream) == self.stderr {
                        return Ok(Event::Stderr(bytes));
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn ended(&self) -> Option<Event> {
        let is_known = !self.outcome.is_empty();
        is_known.then(|| Event::Ended(Outcome::read(&self.outcome)))
    }
}
