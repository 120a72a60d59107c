//! What a command in a container prints, cut while it comes in.
//!
//! A runtime gives up to 16 MiB of each of both streams in one message, and many commands
//! run at once, so a few pods whose probes print much would fill the memory of this process.
//! gRPC hands over a message once all of it is there; this stands before that, and keeps
//! the first bytes of each field only.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use http_body_util::{BodyStream, StreamBody};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service, http};
use tonic::transport::Channel;

/// Most that is kept of standard output, and as much of standard error: as much as a kubelet
/// keeps of a probe's output.
pub const MAX_EXEC_OUTPUT_BYTES: usize = 10 << 10;

/// Most that is kept of a whole answer: both streams, and what else it has in newer versions.
const MAX_KEPT_BYTES: usize = 4 * MAX_EXEC_OUTPUT_BYTES;

/// gRPC's own header of a message: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

/// Longest number of protobuf.
const MAX_NUMBER_BYTES: usize = 10;

/// A channel whose answers are cut. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct CutAnswers(pub(super) Channel);

impl Service<http::Request<Body>> for CutAnswers {
    type Response = http::Response<Body>;
    type Error = <Channel as Service<http::Request<Body>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move { answer.await.map(|answer| answer.map(cut)) })
    }
}

/// An answer that is cut while it comes in.
fn cut(body: Body) -> Body {
    let mut cut = Cut::default();
    let frames = BodyStream::new(body).map(move |frame| {
        let mut result = Ok(());
        let frame = frame?.map_data(|bytes| match cut.take(&bytes) {
            Ok(complete) => complete,
            Err(status) => {
                result = Err(status);
                Bytes::new()
            }
        });
        result.map(|()| frame)
    });
    Body::new(StreamBody::new(frames))
}

/// Where in the stream of messages it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Header,
    /// The number and kind of the next field.
    Key,
    /// A field that is a number.
    Number,
    /// The length of a field of bytes.
    Length,
    /// A field that is cut: bytes to keep, and then to leave out.
    Bytes { keep: usize, leave_out: usize },
}

/// Follows messages, and gives each cut once it is complete.
#[derive(Debug, Default)]
struct Cut {
    at: At,
    /// The header or number that is not complete.
    part: Vec<u8>,
    /// The key of the field.
    key: Vec<u8>,
    /// Bytes of the message that are to come.
    left: usize,
    /// What is kept of it.
    kept: Vec<u8>,
}

impl Cut {
    /// The messages that these bytes complete.
    fn take(&mut self, mut bytes: &[u8]) -> Result<Bytes, Status> {
        let mut complete = Vec::new();
        while let Some((first, rest)) = bytes.split_first() {
            if let At::Bytes { keep, leave_out } = self.at {
                let kept = keep.min(bytes.len());
                let (to_keep, rest) = bytes.split_at(kept);
                let left_out = leave_out.min(rest.len());
                self.kept.extend(to_keep);
                self.left -= kept + left_out;
                bytes = rest.split_at(left_out).1;
                self.at = At::Bytes {
                    keep: keep - kept,
                    leave_out: leave_out - left_out,
                };
            } else {
                self.byte(*first)?;
                bytes = rest;
            }
            if matches!(
                self.at,
                At::Bytes {
                    keep: 0,
                    leave_out: 0
                }
            ) {
                self.at = At::Key;
            }
            self.end_of_message(&mut complete);
        }
        Ok(complete.into())
    }

    /// One byte of a header, or of a number.
    fn byte(&mut self, byte: u8) -> Result<(), Status> {
        self.part.push(byte);
        if self.at == At::Header {
            if self.part.len() == HEADER_BYTES {
                self.header()?;
            }
            return Ok(());
        }
        self.left = self.left.checked_sub(1).ok_or_else(malformed)?;
        if byte & 0x80 == 0 {
            self.number()?;
        } else if self.part.len() >= MAX_NUMBER_BYTES {
            return Err(malformed());
        }
        Ok(())
    }

    fn header(&mut self) -> Result<(), Status> {
        let [0, a, b, c, d] = *self.part.as_slice() else {
            return Err(malformed());
        };
        let length = u32::from_be_bytes([a, b, c, d]);
        self.left = usize::try_from(length).unwrap_or(usize::MAX);
        self.part.clear();
        self.at = At::Key;
        Ok(())
    }

    fn number(&mut self) -> Result<(), Status> {
        let part = std::mem::take(&mut self.part);
        let number = part.iter().rev().fold(0_u64, |number, byte| {
            number.wrapping_shl(7) | u64::from(byte & 0x7f)
        });
        match self.at {
            At::Key => {
                self.at = match number & 7 {
                    0 => At::Number,
                    2 => At::Length,
                    // No field of this answer is of another kind.
                    _ => return Err(malformed()),
                };
                self.key = part;
            }
            At::Number => {
                self.keep(&part)?;
                self.at = At::Key;
            }
            At::Length => {
                let length = usize::try_from(number).map_err(|_| malformed())?;
                if length > self.left {
                    return Err(malformed());
                }
                let keep = length.min(MAX_EXEC_OUTPUT_BYTES);
                let mut number = Vec::new();
                prost::encode_length_delimiter(keep, &mut number).map_err(|_| malformed())?;
                self.keep(&number)?;
                self.at = At::Bytes {
                    keep,
                    leave_out: length - keep,
                };
            }
            At::Header | At::Bytes { .. } => {}
        }
        Ok(())
    }

    /// Keeps a field's key and what follows it.
    fn keep(&mut self, value: &[u8]) -> Result<(), Status> {
        self.kept.append(&mut self.key);
        self.kept.extend(value);
        match self.kept.len() > MAX_KEPT_BYTES {
            true => Err(Status::out_of_range("the answer has too many fields")),
            false => Ok(()),
        }
    }

    fn end_of_message(&mut self, complete: &mut Vec<u8>) {
        let is_between = self.at == At::Key && self.part.is_empty();
        if is_between && self.left == 0 {
            let length = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
            complete.push(0);
            complete.extend(length.to_be_bytes());
            complete.append(&mut self.kept);
            self.at = At::Header;
        }
    }
}

fn malformed() -> Status {
    Status::internal("the answer is no message")
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::runtime::v1::ExecSyncResponse;

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0], &length[..], message].concat()
    }

    fn answer(stdout: usize, stderr: usize, exit_code: i32) -> ExecSyncResponse {
        ExecSyncResponse {
            stdout: vec![b'o'; stdout],
            stderr: vec![b'e'; stderr],
            exit_code,
        }
    }

    #[test]
    fn an_answer_is_cut_however_it_comes() {
        const MAX: usize = MAX_EXEC_OUTPUT_BYTES;
        for (stdout, stderr, exit_code) in [
            (0, 0, 0),
            (3, 0, 1),
            (0, 200, -1),
            (MAX, MAX, i32::MAX),
            (MAX + 1, MAX - 1, 0),
            (20 * MAX, 30 * MAX, 7),
        ] {
            let whole = framed(&answer(stdout, stderr, exit_code).encode_to_vec());
            let expected = answer(stdout.min(MAX), stderr.min(MAX), exit_code);
            let expected = framed(&expected.encode_to_vec());
            for size in [1, 2, 7, 1000, 16 << 10, whole.len()] {
                let mut cut = Cut::default();
                let pieces = whole.chunks(size).map(|piece| cut.take(piece).unwrap());
                let came: Vec<u8> = pieces.flatten().collect();
                assert!(came == expected, "{stdout} {stderr} in pieces of {size}");
                // The next message is followed as the first was.
                assert_eq!(cut.at, At::Header);
            }
        }
    }

    #[test]
    fn an_endless_answer_takes_no_memory() {
        let mut cut = Cut::default();
        let message = answer(1 << 20, 0, 0).encode_to_vec();
        // 4 GiB are announced.
        cut.take(&[0, 0xff, 0xff, 0xff, 0xff]).unwrap();
        let mut result = Ok(Bytes::new());
        let mut most = 0;
        for _ in 0..100 {
            result = cut.take(&message);
            most = most.max(cut.kept.capacity());
            if result.is_err() {
                break;
            }
        }
        assert!(result.is_err());
        assert!(most <= 4 * MAX_KEPT_BYTES, "{most}");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [
            // Compressed.
            &[1, 0, 0, 0, 0][..],
            // A field of 32 bits.
            &[0, 0, 0, 0, 5, 0x0d, 0, 0, 0, 0],
            // A field that is longer than the message.
            &[0, 0, 0, 0, 3, 0x0a, 9, 0],
            // A number without an end, and one that goes beyond the message.
            &[
                0, 0, 0, 1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
            ],
            &[0, 0, 0, 0, 1, 0x80, 0x80],
        ] {
            assert!(Cut::default().take(bytes).is_err(), "{bytes:?}");
        }
    }
}
