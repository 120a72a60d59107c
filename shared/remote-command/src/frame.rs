//! Frames of SPDY/3.1, as far as a client needs them. Pure.
//!
//! Headers of frames are compressed with zlib, all of one direction in one stream. Those that
//! are sent are stored blocks of it, which every zlib reads; those of answers say nothing that
//! is needed, so they are skipped.

/// Length of what each frame begins with.
pub(crate) const HEAD_BYTES: usize = 8;

/// Largest frame that is taken: servers send what they copy in pieces of 32 KiB.
pub(crate) const MAX_FRAME_BYTES: usize = 1 << 20;

/// Largest payload that is sent in one frame.
pub(crate) const MAX_SENT_BYTES: usize = 32 << 10;

/// An empty stored block: readers hand over what came before, and wait for no more.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];

const VERSION: u16 = 0x8003;
const SYN_STREAM: u16 = 1;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
const FLAG_FIN: u8 = 1;
const STREAM_ID_MASK: u32 = 0x7fff_ffff;

/// What a frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    kind: Kind,
    is_last: bool,
    /// Of the rest of the frame.
    pub(crate) length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data(u32),
    Control(u16),
}

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Of a stream; the last one ends it.
    Data {
        stream: u32,
        bytes: Vec<u8>,
        is_last: bool,
    },
    /// The stream is broken off.
    Reset { stream: u32 },
    /// To be sent back as it is.
    Ping(u32),
    /// Nothing more comes.
    GoAway,
    /// One that asks for nothing.
    Other,
}

impl Head {
    /// Reads what a frame begins with.
    pub(crate) fn read(bytes: [u8; HEAD_BYTES]) -> Head {
        let [a, b, c, d, flags, x, y, z] = bytes;
        let kind = match a & 0x80 {
            0 => Kind::Data(u32::from_be_bytes([a, b, c, d])),
            _ => Kind::Control(u16::from_be_bytes([c, d])),
        };
        Head {
            kind,
            is_last: flags & FLAG_FIN != 0,
            length: u32::from_be_bytes([0, x, y, z]) as usize,
        }
    }

    /// The frame, with the rest of its bytes. `None` for one that is none.
    pub(crate) fn frame(self, bytes: Vec<u8>) -> Option<Frame> {
        let number = || bytes.first_chunk().copied().map(u32::from_be_bytes);
        Some(match self.kind {
            Kind::Data(stream) => Frame::Data {
                stream,
                bytes,
                is_last: self.is_last,
            },
            Kind::Control(RST_STREAM) => Frame::Reset {
                stream: number()? & STREAM_ID_MASK,
            },
            Kind::Control(PING) => Frame::Ping(number()?),
            Kind::Control(GO_AWAY) => Frame::GoAway,
            Kind::Control(_) => Frame::Other,
        })
    }
}

/// The frame that opens a stream. `is_first` of the connection: the zlib stream begins there.
pub(crate) fn open_stream(stream: u32, headers: &[(&str, &str)], is_first: bool) -> Vec<u8> {
    let mut block = Vec::new();
    block.extend(length(headers.len()));
    for (name, value) in headers {
        for text in [name, value] {
            block.extend(length(text.len()));
            block.extend(text.as_bytes());
        }
    }
    let mut payload = Vec::new();
    payload.extend(stream.to_be_bytes());
    // No other stream that it belongs to, the highest priority, no slot.
    payload.extend([0; 6]);
    if is_first {
        payload.extend([0x78, 0x01]);
    }
    // A stored block: its length and the same inverted, little endian. Headers have some
    // dozens of bytes.
    let stored = u16::try_from(block.len()).unwrap_or(u16::MAX);
    payload.push(0);
    payload.extend(stored.to_le_bytes());
    payload.extend((!stored).to_le_bytes());
    payload.extend(block);
    payload.extend(FLUSH);
    control(SYN_STREAM, &payload)
}

/// A frame of data; the last one ends the stream on this side.
pub(crate) fn data(stream: u32, bytes: &[u8], is_last: bool) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + bytes.len());
    frame.extend((stream & STREAM_ID_MASK).to_be_bytes());
    frame.push(if is_last { FLAG_FIN } else { 0 });
    frame.extend(&length(bytes.len())[1..]);
    frame.extend(bytes);
    frame
}

/// The answer to a ping.
pub(crate) fn ping(id: u32) -> Vec<u8> {
    control(PING, &id.to_be_bytes())
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + payload.len());
    frame.extend(VERSION.to_be_bytes());
    frame.extend(kind.to_be_bytes());
    frame.push(0);
    frame.extend(&length(payload.len())[1..]);
    frame.extend(payload);
    frame
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<Frame> {
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        let head = Head::read(head.try_into().unwrap());
        assert_eq!(head.length, rest.len());
        head.frame(rest.to_vec())
    }

    #[test]
    fn frames_are_as_the_protocol_has_them() {
        let opened = open_stream(3, &[("a", "bc")], true);
        let expected: &[u8] = &[
            0x80, 3, 0, 1, 0, 0, 0, 37, // version, SYN_STREAM, no flags, length
            0, 0, 0, 3, 0, 0, 0, 0, 0, 0, // stream, associated, priority, slot
            0x78, 1, 0, 15, 0, 0xf0, 0xff, // zlib, a stored block of 15 bytes
            0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 2, b'b', b'c', 0, 0, 0, 0xff, 0xff,
        ];
        assert_eq!(opened, expected);
        let second = open_stream(5, &[("a", "bc")], false);
        assert_eq!(second.len(), expected.len() - 2);
        let last = data(3, b"hi", true);
        assert_eq!(last, [0, 0, 0, 3, 1, 0, 0, 2, b'h', b'i']);
        let came = Frame::Data {
            stream: 3,
            bytes: b"hi".to_vec(),
            is_last: true,
        };
        assert_eq!(read(&last), Some(came));
        assert_eq!(read(&ping(2)), Some(Frame::Ping(2)));
    }

    #[test]
    fn what_a_server_sends_is_taken_or_refused() {
        for (bytes, expected) in [
            (
                vec![0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 1],
                Some(Frame::Reset { stream: 5 }),
            ),
            (vec![0x80, 3, 0, 7, 0, 0, 0, 0], Some(Frame::GoAway)),
            // SYN_REPLY, SETTINGS, WINDOW_UPDATE.
            (
                vec![0x80, 3, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1],
                Some(Frame::Other),
            ),
            (vec![0x80, 3, 0, 4, 0, 0, 0, 0], Some(Frame::Other)),
            (vec![0x80, 3, 0, 9, 0, 0, 0, 0], Some(Frame::Other)),
            // Too short.
            (vec![0x80, 3, 0, 3, 0, 0, 0, 2, 0, 0], None),
            (vec![0x80, 3, 0, 6, 0, 0, 0, 0], None),
        ] {
            assert_eq!(read(&bytes), expected, "{bytes:?}");
        }
    }
}
