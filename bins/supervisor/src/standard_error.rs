//! The supervisor's own standard error. As a pipe or socket it is never waited for:
//! whoever reads it may be stuck, and the supervisor must not be.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Texts that were not shown since the last one that was.
static UNSHOWN: AtomicU64 = AtomicU64::new(0);

/// The end of a text that is longer than what is written at once.
const CUT: &[u8] = b" (cut)\n";

/// A writer for lines of the supervisor's own log; each `write` is shown or left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct StandardError;

impl Write for StandardError {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        show(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows it, unless that would block; what was left out is counted and told.
pub(crate) fn show(text: &[u8]) {
    show_on(&mut io::stderr().lock(), &UNSHOWN, text);
}

fn show_on(stream: &mut (impl AsFd + Write), unshown: &AtomicU64, text: &[u8]) {
    let mut ready = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    if !poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0) {
        unshown.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut whole = match unshown.swap(0, Ordering::Relaxed) {
        0 => Vec::new(),
        lines => format!("({lines} lines not shown)\n").into_bytes(),
    };
    whole.extend_from_slice(text);
    // What a pipe takes at once after POLLOUT.
    if whole.len() > PIPE_BUF {
        whole.truncate(PIPE_BUF - CUT.len());
        whole.extend_from_slice(CUT);
    }
    // When it is closed there is nobody to tell.
    drop(stream.write_all(&whole));
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    fn pipe() -> (File, File) {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        (reader.into(), writer.into())
    }

    fn all(mut reader: File) -> String {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_reader_that_does_not_read_is_told_later_what_it_missed() {
        let (mut reader, mut writer) = pipe();
        let unshown = AtomicU64::new(0);
        let line = [[b'x'; PIPE_BUF - 1].as_slice(), b"\n"].concat();
        let mut shown = 0;
        while unshown.load(Ordering::Relaxed) < 3 {
            shown += 1;
            show_on(&mut writer, &unshown, &line);
        }
        reader.read_exact(&mut vec![0; PIPE_BUF]).unwrap();
        show_on(&mut writer, &unshown, b"it goes on\n");
        drop(writer);
        let rest = all(reader);
        assert_eq!(rest.matches("xxx\n").count(), shown - 3 - 1);
        assert!(rest.ends_with("x\n(3 lines not shown)\nit goes on\n"));
    }

    #[test]
    fn a_text_that_a_pipe_cannot_take_at_once_is_cut_to_a_line() {
        let (reader, mut writer) = pipe();
        let unshown = AtomicU64::new(0);
        show_on(&mut writer, &unshown, &[b'x'; 2 * PIPE_BUF]);
        show_on(&mut writer, &unshown, b"next\n");
        drop(writer);
        let text = all(reader);
        assert_eq!(text.len(), PIPE_BUF + "next\n".len());
        assert!(text.ends_with("x (cut)\nnext\n"));
    }
}
