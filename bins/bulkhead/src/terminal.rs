//! The terminal on this side of a session.

use std::io::{self, IsTerminal as _};

use remote_command::{Input, Size};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// Whether standard input is one.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal()
}

/// While it is there, each key goes to the session as it is: Ctrl-C too.
#[derive(Debug)]
pub(crate) struct Raw(Termios);

impl Raw {
    /// Hands the keys over.
    pub(crate) fn enter() -> Result<Raw, Failure> {
        let entered = || {
            let before = tcgetattr(io::stdin())?;
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
            Ok::<_, io::Error>(Raw(before))
        };
        entered().map_err(|source| Failure::Local {
            action: "set the terminal up".to_owned(),
            source,
        })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Whoever closed it needs it no more.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Says how large the terminal is, now and whenever that changes, until the session ends.
pub(crate) async fn tell_size(input: Input) {
    let Ok(mut changes) = signal(SignalKind::window_change()) else {
        return;
    };
    loop {
        if let Ok(size) = tcgetwinsize(io::stdin()) {
            let size = Size {
                width: size.ws_col,
                height: size.ws_row,
            };
            if !input.resize(size).await {
                return;
            }
        }
        if changes.recv().await.is_none() {
            return;
        }
    }
}

/// Returns when this process is asked to end, with the exit code for it.
pub(crate) async fn asked_to_end() -> u8 {
    let on = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        // Cancel-safe: the process ends either way.
        () = on(SignalKind::terminate()) => 128 + 15,
        () = on(SignalKind::hangup()) => 128 + 1,
    }
}
