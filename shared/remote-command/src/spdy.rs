//! Reading and writing frames. What is written goes through a short queue, so that whoever
//! reads never waits for whoever writes: a command may stop reading until it is read from.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::error::Error;
use crate::frame::{self, Frame, HEAD_BYTES, Head, MAX_FRAME_BYTES, MAX_SENT_BYTES};

/// Frames that wait to be written.
const QUEUED: usize = 4;

/// What is written. Clones share the connection.
#[derive(Clone, Debug)]
pub(crate) struct Writer(mpsc::Sender<Vec<u8>>);

/// What is read. The connection ends with it.
#[derive(Debug)]
pub(crate) struct Reader {
    read: ReadHalf<TokioIo<Upgraded>>,
    writer: Writer,
    _writing: AbortOnDropHandle<()>,
}

/// A connection with these streams; their ids are 1, 3, 5 ...
pub(crate) async fn start(
    io: TokioIo<Upgraded>,
    streams: &[&[(&str, &str)]],
) -> Result<(Reader, Writer), Error> {
    let (read, mut write) = tokio::io::split(io);
    for (headers, stream) in streams.iter().zip((1..).step_by(2)) {
        let opened = frame::open_stream(stream, headers, stream == 1);
        let written = write.write_all(&opened).await;
        written.map_err(Error::Connection)?;
    }
    write.flush().await.map_err(Error::Connection)?;
    let (queue, mut queued) = mpsc::channel::<Vec<u8>>(QUEUED);
    let writing = tokio::spawn(async move {
        while let Some(frame) = queued.recv().await {
            // The reader learns of it too.
            if write.write_all(&frame).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    });
    let writer = Writer(queue);
    let reader = Reader {
        read,
        writer: writer.clone(),
        _writing: AbortOnDropHandle::new(writing),
    };
    Ok((reader, writer))
}

impl Writer {
    /// Sends bytes of a stream. Whether there still is a connection.
    pub(crate) async fn send(&self, stream: u32, bytes: &[u8]) -> bool {
        for piece in bytes.chunks(MAX_SENT_BYTES) {
            if self
                .0
                .send(frame::data(stream, piece, false))
                .await
                .is_err()
            {
                return false;
            }
        }
        true
    }

    /// Ends a stream on this side.
    pub(crate) async fn end(&self, stream: u32) {
        // Without a connection it has ended.
        drop(self.0.send(frame::data(stream, &[], true)).await);
    }
}

impl Reader {
    /// The next frame; `None` at the end of the connection. Not cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            let mut head = [0; HEAD_BYTES];
            // Nothing more can be meant by an end within a frame.
            if let Err(error) = self.read.read_exact(&mut head).await {
                return match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => Ok(None),
                    _ => Err(Error::Connection(error)),
                };
            }
            let head = Head::read(head);
            if head.length > MAX_FRAME_BYTES {
                return Err(Error::Protocol("sends frames that are too large"));
            }
            let mut bytes = vec![0; head.length];
            let read = self.read.read_exact(&mut bytes).await;
            read.map_err(Error::Connection)?;
            match head.frame(bytes) {
                None => return Err(Error::Protocol("sends what is no frame")),
                Some(Frame::Other) => {}
                // A queue that is full shows as well that somebody is here.
                Some(Frame::Ping(id)) => drop(self.writer.0.try_send(frame::ping(id))),
                Some(Frame::GoAway) => return Ok(None),
                Some(frame) => return Ok(Some(frame)),
            }
        }
    }
}
