//! The supervisor's own standard error, which is never waited for: whoever reads it
//! may be stuck, and the supervisor must not be.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc::PIPE_BUF;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Texts of all kinds that were not shown since the last that was.
static UNSHOWN: AtomicU64 = AtomicU64::new(0);

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
    let stderr = io::stderr();
    if !is_writable(stderr.as_fd()) {
        UNSHOWN.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let unshown = UNSHOWN.swap(0, Ordering::Relaxed);
    if unshown > 0 {
        let note = format!("({unshown} lines not shown)\n");
        // When it is closed there is nobody to tell, here and below.
        drop(stderr.lock().write_all(note.as_bytes()));
    }
    // A pipe takes so many bytes at once after POLLOUT.
    for part in text.chunks(PIPE_BUF) {
        if !is_writable(stderr.as_fd()) {
            return;
        }
        drop(stderr.lock().write_all(part));
    }
}

fn is_writable(stream: impl AsFd) -> bool {
    let mut ready = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0)
}
