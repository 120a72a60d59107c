//! What is done for a service of the bundle that systemd does not start again by itself, by
//! `bulkhead-repair@.service`: one whose socket an earlier run has shut down, and one that
//! ended so often that it reached systemd's limit of starts.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use topology::{EXIT_SOCKET_HARMED, Process};

use crate::failure::Failure;

/// Until a service is started again that reached the limit of starts: it ends before it
/// comes to the wait that processes have themselves.
const PAUSE: Duration = Duration::from_secs(10);

/// How a service ended.
#[derive(Clone, Copy, Debug, Default)]
struct End<'a> {
    /// As systemd tells whom it starts for that: systemd.exec(5), `MONITOR_EXIT_CODE`.
    code: &'a str,
    status: &'a str,
    /// What became of its socket, which alone says that the limit of starts was reached.
    socket: &'a str,
}

/// After which wait to start a service again that has ended so, with its socket made anew;
/// none where it is to stay as it is.
fn start_after(end: End<'_>) -> Option<Duration> {
    let harmed = EXIT_SOCKET_HARMED.to_string();
    match (end.socket, end.code, end.status) {
        ("service-start-limit-hit", _, _) => Some(PAUSE),
        (_, "exited", status) if status == harmed => Some(Duration::ZERO),
        // A bad configuration, or an operator who stopped it.
        _ => None,
    }
}

/// Has systemd start the service of `process` again, with another socket.
///
/// # Errors
/// When systemd does not.
#[expect(
    clippy::disallowed_methods,
    reason = "to wait is its task, and nothing else runs in this program"
)]
pub(super) fn run(process: Process) -> Result<(), Failure> {
    let told = |name| std::env::var(name).unwrap_or_default();
    let (code, status) = (told("MONITOR_EXIT_CODE"), told("MONITOR_EXIT_STATUS"));
    let service = format!("bulkhead-{process}.service");
    let socket = format!("bulkhead-{process}.socket");
    let result = systemctl(&["show", "--property=Result", "--value", &socket])?;
    let end = End {
        code: &code,
        status: &status,
        socket: result.trim_end(),
    };
    let Some(wait) = start_after(end) else {
        return Ok(());
    };
    tracing::warn!(%process, code, status, socket = end.socket, "has it started again, with its socket made anew");
    std::thread::sleep(wait);
    systemctl(&["reset-failed", &service, &socket])?;
    // It could wait for what waits for this program.
    systemctl(&["restart", "--no-block", &socket])?;
    systemctl(&["start", "--no-block", &service]).map(drop)
}

/// Returns what it prints.
fn systemctl(words: &[&str]) -> Result<String, Failure> {
    let failed = |source| Failure::System {
        action: "have systemd start a service again",
        source,
    };
    let mut command = Command::new("systemctl");
    let output = command.args(words).stderr(Stdio::inherit()).output();
    let output = output.map_err(failed)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failed(io::Error::other(output.status.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_can_be_helped_is_started_again() {
        let table = [
            (("exited", "69", "success"), Some(Duration::ZERO)),
            // systemd finds a socket that was shut down, too.
            (("exited", "69", "resources"), Some(Duration::ZERO)),
            (("exited", "1", "service-start-limit-hit"), Some(PAUSE)),
            (("", "", "service-start-limit-hit"), Some(PAUSE)),
            // A bad configuration.
            (("exited", "78", "success"), None),
            // It was stopped, and had to be killed for that.
            (("killed", "KILL", "success"), None),
            (("killed", "69", "success"), None),
            (("", "", ""), None),
        ];
        for ((code, status, socket), expected) in table {
            let end = End {
                code,
                status,
                socket,
            };
            assert_eq!(start_after(end), expected, "{end:?}");
        }
    }
}
