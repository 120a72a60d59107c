//! The sandbox's first process: holds the namespaces, reaps what is orphaned
//! in them and exits at once on SIGTERM or SIGINT.

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> std::io::Result<()> {
    // As process 1 it receives only signals that it handles.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGCHLD])?;
    for signal in &mut signals {
        if signal != SIGCHLD {
            break;
        }
        reap();
    }
    Ok(())
}

/// Collects every child that has ended; one SIGCHLD can stand for many.
fn reap() {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
