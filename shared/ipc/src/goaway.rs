//! Whether the HTTP/2 server gives a connection up because of what its client did: read
//! from the frames that it sends, since it tells that to nobody else.

/// A frame's header: its length in three bytes, type, flags, and the stream's number.
const HEADER_BYTES: usize = 9;

/// With the last stream's number and the error code of a GOAWAY frame.
const GOAWAY_BYTES: usize = HEADER_BYTES + 8;

const TYPE_GOAWAY: u8 = 7;

/// Follows the frames of one connection.
#[derive(Debug, Default)]
pub(crate) struct GoAwayWatch {
    /// The beginning of the current frame, as far as it was sent.
    begin: [u8; GOAWAY_BYTES],
    filled: usize,
    /// What is left of a frame that is not looked at.
    skip: usize,
}

impl GoAwayWatch {
    /// Looks at bytes that the server sent. The code of the error, when it tells the client
    /// of one.
    pub(crate) fn sent(&mut self, mut bytes: &[u8]) -> Option<u32> {
        let mut error = None;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let (_, rest) = bytes.split_at(skipped);
            let wanted = match self.is_goaway() {
                true => GOAWAY_BYTES,
                false => HEADER_BYTES,
            };
            let (taken, rest) = rest.split_at(rest.len().min(wanted - self.filled));
            for (place, byte) in self.begin.iter_mut().skip(self.filled).zip(taken) {
                *place = *byte;
            }
            self.filled += taken.len();
            bytes = rest;
            error = error.or(self.end_of_beginning());
        }
        error
    }

    fn is_goaway(&self) -> bool {
        self.filled >= HEADER_BYTES && self.begin[3] == TYPE_GOAWAY
    }

    /// Once all that is wanted of a frame is there: skips the rest of it.
    fn end_of_beginning(&mut self) -> Option<u32> {
        let is_goaway = self.is_goaway();
        if self.filled < HEADER_BYTES || (is_goaway && self.filled < GOAWAY_BYTES) {
            return None;
        }
        let [high, middle, low, .., a, b, c, d] = self.begin;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.skip = (HEADER_BYTES + length).saturating_sub(self.filled);
        self.filled = 0;
        let code = u32::from_be_bytes([a, b, c, d]);
        (is_goaway && code != 0).then_some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(of_type: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let header = [length[1], length[2], length[3], of_type, 0, 0, 0, 0, 1];
        [&header, payload].concat()
    }

    fn goaway(code: u8) -> Vec<u8> {
        frame(
            TYPE_GOAWAY,
            &[&[0, 0, 0, 9, 0, 0, 0, code], &b"why"[..]].concat(),
        )
    }

    #[test]
    fn an_error_is_seen_among_other_frames_however_they_are_cut() {
        // Data that looks like such a frame is none.
        let data = frame(0, &goaway(2));
        let before = [frame(4, &[]), data.clone(), goaway(0), frame(6, &[0; 8])].concat();
        let all = [before.clone(), goaway(11), data].concat();
        for size in 1..all.len() {
            let mut watch = GoAwayWatch::default();
            let seen: Vec<u32> = all.chunks(size).filter_map(|cut| watch.sent(cut)).collect();
            assert_eq!(seen, [11], "in pieces of {size}");
            let mut watch = GoAwayWatch::default();
            let seen = before.chunks(size).filter_map(|cut| watch.sent(cut));
            assert_eq!(seen.count(), 0, "in pieces of {size}");
        }
    }
}
