//! Lines of a log in CRI format: `<time> <stream> <tags> <content>`.
//!
//! The runtime breaks long lines up; all parts but the last are tagged `P`. Pure.

use clock::UnixNanos;

/// Where a container wrote something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A part of what a container wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The time as it is written there.
    pub(super) time: &'a str,
    pub(super) at: UnixNanos,
    pub(super) stream: LogStream,
    /// Whether the container's line goes on in the next one of this stream.
    pub(super) partial: bool,
    pub(super) content: &'a [u8],
}

/// A line of the file, without its end; `None` if it is not in the format.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = str::from_utf8(parts.next()?).ok()?;
    let stream = match parts.next()? {
        b"stdout" => LogStream::Stdout,
        b"stderr" => LogStream::Stderr,
        _ => return None,
    };
    let partial = is_partial(parts.next()?)?;
    // An empty line may lack even the blank before it.
    let content = parts.next().unwrap_or_default();
    let nanoseconds = time.parse::<jiff::Timestamp>().ok()?.as_nanosecond();
    let at = UnixNanos(i64::try_from(nanoseconds).ok()?);
    Some(Line {
        time,
        at,
        stream,
        partial,
        content,
    })
}

/// Whether a line of the file ends a line of the container's. What is not in the
/// format counts as one, so that looking for an end never goes on for ever.
pub(super) fn ends_a_line(line: &[u8]) -> bool {
    line.split(|byte| *byte == b' ').nth(2).and_then(is_partial) != Some(true)
}

/// Tags are separated by colons; the first one tells.
fn is_partial(tags: &[u8]) -> Option<bool> {
    match tags.split(|byte| *byte == b':').next()? {
        b"P" => Some(true),
        b"F" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_stream_tags_and_content() {
        let text = b"2026-11-20T10:01:44.869595101Z stdout F hello  world ";
        let line = parse(text).unwrap();
        assert_eq!(line.time, "2026-11-20T10:01:44.869595101Z");
        assert_eq!(line.at.0 % 1_000_000_000, 869_595_101);
        assert_eq!((line.stream, line.partial), (LogStream::Stdout, false));
        assert_eq!(line.content, b"hello  world ");
        let line = parse(b"2026-11-20T10:01:44+01:00 stderr P:x \xff\x00").unwrap();
        assert_eq!((line.stream, line.partial), (LogStream::Stderr, true));
        assert_eq!(line.content, b"\xff\x00");
        assert_eq!(
            parse(b"2026-11-20T10:01:44Z stdout F").unwrap().content,
            b""
        );
        assert_eq!(
            parse(b"2026-11-20T10:01:44Z stdout F ").unwrap().content,
            b""
        );
    }

    #[test]
    fn what_is_not_in_the_format_is_none() {
        for text in [
            b"".as_slice(),
            b"hello",
            b"2026-11-20T10:01:44Z",
            b"2026-11-20T10:01:44Z stdin F x",
            b"2026-11-20T10:01:44Z stdout X x",
            b"yesterday stdout F x",
            b"\xff stdout F x",
            b"9999-99-99T00:00:00Z stdout F x",
            b" stdout F x",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn only_a_partial_line_does_not_end_one() {
        assert!(!ends_a_line(b"t stdout P x"));
        assert!(!ends_a_line(b"t stdout P:tag x"));
        for text in [b"t stdout F x".as_slice(), b"", b"nonsense", b"t stdout F"] {
            assert!(ends_a_line(text), "{text:?}");
        }
    }
}

#[cfg(test)]
mod fuzz_tests {
    use fuzz::{changed, texts};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_is_read_or_passed_over_and_its_parts_are_of_it(
            bytes in changed(texts(&[
                "2026-11-20T10:01:44.869595101Z stdout F hello  world ",
                "2026-11-20T10:01:44+01:00 stderr P:x a",
                "2026-11-20T10:01:44Z stdout F",
            ])),
        ) {
            let ends = ends_a_line(&bytes);
            if let Some(line) = parse(&bytes) {
                prop_assert_eq!(ends, !line.partial);
                prop_assert!(bytes.starts_with(line.time.as_bytes()));
                prop_assert!(bytes.ends_with(line.content));
            }
        }
    }
}
