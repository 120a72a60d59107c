//! The termination message of an exited container: what it left in its file, or
//! the end of its log, behind what the runtime itself says.

use std::path::Path;
use std::time::Duration;

use cri::v1;
use node_host::{NodeError, NodeHost};
use pod::PodIdentity;
use pod::metadata::{TERMINATION_MESSAGE_PATH_ANNOTATION, TERMINATION_MESSAGE_POLICY_ANNOTATION};
use tokio::time::timeout;

/// Most that is read of the file, and most that a message may have in all.
const MAX_MESSAGE_BYTES: usize = 4096;
/// Most that is taken from the log instead.
const MAX_LOG_BYTES: usize = 2048;
const MAX_LOG_LINES: usize = 80;
/// Most that is read from the end of the log to find those: each line carries a
/// time stamp and a tag.
const MAX_LOG_READ_BYTES: usize = 64 << 10;

/// How long a look at the pod waits for each of them: on a disk that hangs they must not
/// hold up a stop.
const READING_MAY_TAKE: Duration = Duration::from_secs(2);

/// What an instance left.
pub(super) struct Message {
    pub(super) text: String,
    /// Whether its file was read, or never can be. A log that takes too long says nothing.
    pub(super) is_final: bool,
}

/// The message of an instance of a container that has exited.
pub(super) async fn of(
    host: &dyn NodeHost,
    pod: &PodIdentity,
    container: &str,
    restart_count: u32,
    status: &v1::ContainerStatus,
) -> Message {
    let mut written = String::new();
    let mut is_final = true;
    if let Some(file) = file(status) {
        let read = host.read_termination_log(pod.uid(), file, MAX_MESSAGE_BYTES);
        let read = timeout(READING_MAY_TAKE, read).await;
        is_final = read.is_ok();
        let failed =
            |why: &str| format!("Error on reading termination log {}: {why}", file.display());
        written = match read {
            Ok(Ok(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(Err(error)) => failed(&telemetry::chain(&error)),
            Err(_) => failed("it takes too long"),
        };
    }
    if written.is_empty() && falls_back(status) {
        // A log that cannot be read says nothing, like one that is not there.
        let log = read_log_end(host, pod, container, restart_count);
        let log = timeout(READING_MAY_TAKE, log).await;
        written = log_content(&log.unwrap_or_else(|_| Ok(Vec::new())).unwrap_or_default());
    }
    let text = joined(&status.message, &written);
    Message { text, is_final }
}

/// The file that was mounted for the message.
fn file(status: &v1::ContainerStatus) -> Option<&Path> {
    let path = status
        .annotations
        .get(TERMINATION_MESSAGE_PATH_ANNOTATION)?;
    let mut mounts = status.mounts.iter();
    let mount = mounts.find(|mount| !path.is_empty() && mount.container_path == *path)?;
    Some(Path::new(&mount.host_path))
}

fn falls_back(status: &v1::ContainerStatus) -> bool {
    let policy = status
        .annotations
        .get(TERMINATION_MESSAGE_POLICY_ANNOTATION);
    policy.is_some_and(|policy| policy == "FallbackToLogsOnError")
        && status.exit_code != 0
        && status.reason != "ContainerCannotRun"
}

async fn read_log_end(
    host: &dyn NodeHost,
    pod: &PodIdentity,
    container: &str,
    restart_count: u32,
) -> Result<Vec<u8>, NodeError> {
    let Some(log) = host.open_log(pod, container, restart_count).await? else {
        return Ok(Vec::new());
    };
    let size = log.size().await?;
    let start = size.saturating_sub(MAX_LOG_READ_BYTES as u64);
    log.read_at(start, MAX_LOG_READ_BYTES).await
}

/// The last lines of a log in CRI format, without time stamps and tags.
fn log_content(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(MAX_LOG_LINES);
    let mut content = String::new();
    for line in &lines[first..] {
        // `<time> <stream> <tags> <content>`; a first line cut in the middle
        // does not have that shape and is left out.
        let mut parts = line.splitn(4, ' ');
        let (Some(_), Some("stdout" | "stderr"), Some(tags), Some(rest)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        content.push_str(rest);
        if tags.starts_with('F') {
            content.push('\n');
        }
    }
    let start = content.len().saturating_sub(MAX_LOG_BYTES);
    content[content.ceil_char_boundary(start)..].to_owned()
}

fn joined(from_runtime: &str, written: &str) -> String {
    let mut message = from_runtime.to_owned();
    if !message.is_empty() && !written.is_empty() {
        message.push_str(": ");
    }
    message.push_str(written);
    message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(policy: &str, exit_code: i32) -> v1::ContainerStatus {
        v1::ContainerStatus {
            exit_code,
            annotations: [
                (
                    TERMINATION_MESSAGE_PATH_ANNOTATION.to_owned(),
                    "/dev/log".to_owned(),
                ),
                (
                    TERMINATION_MESSAGE_POLICY_ANNOTATION.to_owned(),
                    policy.to_owned(),
                ),
            ]
            .into(),
            mounts: vec![v1::Mount {
                container_path: "/dev/log".to_owned(),
                host_path: "/pods/u/message".to_owned(),
                ..v1::Mount::default()
            }],
            ..v1::ContainerStatus::default()
        }
    }

    #[test]
    fn the_file_is_the_one_mounted_at_the_annotated_path() {
        let mut status = status("File", 0);
        assert_eq!(file(&status), Some(Path::new("/pods/u/message")));
        status.mounts[0].container_path = "/dev/other".to_owned();
        assert_eq!(file(&status), None);
        assert_eq!(file(&v1::ContainerStatus::default()), None);
    }

    #[test]
    fn the_log_stands_in_only_on_error_and_by_policy() {
        for (policy, exit_code, expected) in [
            ("FallbackToLogsOnError", 1, true),
            ("FallbackToLogsOnError", 0, false),
            ("File", 1, false),
        ] {
            assert_eq!(falls_back(&status(policy, exit_code)), expected, "{policy}");
        }
        let mut never_ran = status("FallbackToLogsOnError", 128);
        never_ran.reason = "ContainerCannotRun".to_owned();
        assert!(!falls_back(&never_ran));
    }

    #[test]
    fn the_runtimes_own_words_come_first() {
        for (runtime, written, expected) in [
            ("", "", ""),
            ("cannot start", "", "cannot start"),
            ("", "bye", "bye"),
            ("cannot start", "bye", "cannot start: bye"),
        ] {
            assert_eq!(joined(runtime, written), expected);
        }
        assert!(joined("x", &"ä".repeat(4096)).len() <= MAX_MESSAGE_BYTES);
    }

    #[test]
    fn of_a_log_its_last_lines_are_taken_without_their_tags() {
        let log = b"cut line\nt stdout F one\nt stderr P tw\nt stderr F o\n";
        assert_eq!(log_content(log), "one\ntwo\n");
        let long: String = (0..5000)
            .map(|number| format!("t stdout F {number}\n"))
            .collect();
        let content = log_content(long.as_bytes());
        assert_eq!(content.lines().count(), MAX_LOG_LINES);
        assert!(content.ends_with("4999\n"));
        let wide = format!("t stdout F {}\n", "ä".repeat(4096));
        assert!(log_content(wide.as_bytes()).len() <= MAX_LOG_BYTES);
    }
}
