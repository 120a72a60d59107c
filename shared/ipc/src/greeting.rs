//! A connection begins with bytes that are always the same. Who has made one and does not
//! send them holds a place and asks for nothing; it has so long and no longer.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Sleep;

use crate::limits::MAX_GREETING;

/// "PRI * HTTP/2.0" and what follows it.
const PREFACE_BYTES: usize = 24;

/// What a new connection still has to send, and until when.
#[derive(Debug)]
pub(crate) struct Greeting {
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Greeting {
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn new() -> Greeting {
        Greeting {
            missing: PREFACE_BYTES,
            deadline: Box::pin(tokio::time::sleep(MAX_GREETING)),
        }
    }

    /// After so many bytes more: ready when all of it came, `false`, or when it is too
    /// late, `true`.
    pub(crate) fn poll_late(&mut self, context: &mut Context<'_>, count: usize) -> Poll<bool> {
        self.missing = self.missing.saturating_sub(count);
        match self.missing {
            0 => Poll::Ready(false),
            _ => self.deadline.as_mut().poll(context).map(|()| true),
        }
    }
}
