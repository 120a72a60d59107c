//! Under a paused clock: waiting for more costs nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use clock::UnixNanos;
use futures_util::{StreamExt as _, poll};
use pod::PodIdentity;

use super::*;
use crate::logs::test_log::{LogNode, MemoryLog};

struct Case {
    node: LogNode,
    log: MemoryLog,
    running: Arc<AtomicBool>,
}

fn case(text: &str) -> Case {
    let log = MemoryLog::new(text.as_bytes());
    let node = LogNode::default();
    *node.current.lock().unwrap() = Some(log.clone());
    Case {
        node,
        log,
        running: Arc::new(AtomicBool::new(true)),
    }
}

type Chunks = stream::BoxStream<'static, Result<LogChunk, LogError>>;

impl Case {
    fn read(&self, options: LogOptions) -> Chunks {
        let target = LogTarget {
            pod: PodIdentity::new("u", "ns", "p").unwrap(),
            container: "c".to_owned(),
            attempt: 0,
        };
        let running = Arc::clone(&self.running);
        let is_running = Arc::new(move || running.load(Ordering::SeqCst));
        read_log(Arc::new(self.node.clone()), target, options, is_running).boxed()
    }

    async fn text(&self, options: LogOptions) -> String {
        let chunks: Vec<_> = self.read(options).collect().await;
        chunks
            .into_iter()
            .map(|chunk| text(&chunk.unwrap()))
            .collect()
    }
}

fn text(chunk: &LogChunk) -> String {
    String::from_utf8(chunk.content.clone()).unwrap()
}

fn line(second: u32, stream: &str, tag: &str, content: &str) -> String {
    format!("2026-11-20T10:00:{second:02}Z {stream} {tag} {content}\n")
}

fn second(second: i64) -> UnixNanos {
    let midnight = "2026-11-20T10:00:00Z".parse::<jiff::Timestamp>().unwrap();
    UnixNanos((midnight.as_second() + second) * 1_000_000_000)
}

const FOLLOW: LogOptions = LogOptions {
    follow: true,
    tail_lines: None,
    since: None,
    timestamps: false,
};

#[tokio::test]
async fn lines_are_shown_as_the_container_wrote_them() {
    let case = case(
        &[
            line(1, "stdout", "F", "one"),
            line(2, "stdout", "P", "tw"),
            line(3, "stdout", "F", "o"),
            line(4, "stderr", "F", "three"),
            line(5, "stdout", "F", ""),
        ]
        .concat(),
    );
    assert_eq!(
        case.text(LogOptions::default()).await,
        "one\ntwo\nthree\n\n"
    );
    let chunks: Vec<_> = case.read(LogOptions::default()).collect().await;
    let at = |chunk: &Result<LogChunk, LogError>| chunk.as_ref().unwrap().at;
    assert_eq!(chunks.iter().map(at).collect::<Vec<_>>(), [second(5)]);
}

#[tokio::test]
async fn times_stand_before_lines_and_not_before_their_parts() {
    let case = case(
        &[
            line(1, "stdout", "P", "a"),
            line(2, "stderr", "P", "x"),
            line(3, "stdout", "F", "b"),
            line(4, "stderr", "F", "y"),
        ]
        .concat(),
    );
    let timestamps = LogOptions {
        timestamps: true,
        ..LogOptions::default()
    };
    assert_eq!(
        case.text(timestamps).await,
        "2026-11-20T10:00:01Z a2026-11-20T10:00:02Z xb\ny\n"
    );
}

#[tokio::test]
async fn only_the_last_lines_and_only_since_a_time() {
    let lines: String = (0..10)
        .map(|index| line(index, "stdout", "F", &index.to_string()))
        .collect();
    let case = case(&lines);
    let options = |tail_lines, since| LogOptions {
        tail_lines,
        since,
        ..LogOptions::default()
    };
    for (tail, since, expected) in [
        (Some(2), None, "8\n9\n"),
        (Some(0), None, ""),
        (None, Some(second(8)), "8\n9\n"),
        (Some(1), Some(second(5)), "9\n"),
        (Some(5), Some(second(9)), "9\n"),
        (None, Some(second(30)), ""),
    ] {
        assert_eq!(
            case.text(options(tail, since)).await,
            expected,
            "{tail:?} {since:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_line_of_the_runtimes_is_left_out() {
    let huge = format!(
        "2026-11-20T10:00:01Z stdout F {}\n",
        "x".repeat(3 * MAX_LINE_BYTES)
    );
    let case = case(
        &[
            "garbage\n".to_owned(),
            line(1, "stdout", "F", "one"),
            huge,
            line(2, "stdout", "F", "two"),
            "2026-11-20T10:00:03Z stdout F unfinished".to_owned(),
        ]
        .concat(),
    );
    assert_eq!(case.text(LogOptions::default()).await, "one\ntwo\n");
}

#[tokio::test]
async fn chunks_are_bounded() {
    let content = "x".repeat(10_000);
    let case = case(&line(1, "stdout", "F", &content).repeat(20));
    let chunks: Vec<_> = case.read(LogOptions::default()).collect().await;
    let sizes: Vec<_> = chunks
        .iter()
        .map(|chunk| chunk.as_ref().unwrap().content.len())
        .collect();
    assert_eq!(sizes.iter().sum::<usize>(), 20 * 10_001);
    assert!(sizes.iter().all(|size| *size <= CHUNK_BYTES), "{sizes:?}");
}

#[tokio::test]
async fn a_log_that_is_not_there_is_not_found() {
    let case = case("");
    *case.node.current.lock().unwrap() = None;
    let error = case
        .read(LogOptions::default())
        .next()
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "container c of pod ns/p(u) has no log of attempt 0"
    );
}

#[tokio::test(start_paused = true)]
async fn a_followed_log_goes_on_until_its_container_has_ended() {
    let case = case(&line(1, "stdout", "F", "one"));
    let mut chunks = case.read(FOLLOW);
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "one\n");
    assert!(poll!(chunks.next()).is_pending());
    // Half a line, and then the rest of it.
    case.log.write("2026-11-20T10:00:02Z stdout F t");
    assert!(
        tokio::time::timeout(POLL_INTERVAL * 3, chunks.next())
            .await
            .is_err()
    );
    case.log.write("wo\n");
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "two\n");
    // The last words come before the end.
    case.log.write(&line(3, "stderr", "F", "bye"));
    case.running.store(false, Ordering::SeqCst);
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "bye\n");
    assert!(chunks.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_followed_log_goes_on_in_the_file_that_takes_its_place() {
    let case = case(&line(1, "stdout", "F", "one"));
    let mut chunks = case.read(FOLLOW);
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "one\n");
    // Renamed away: the runtime goes on writing there until it is told.
    *case.node.current.lock().unwrap() = None;
    case.log.write(&line(2, "stdout", "F", "two"));
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "two\n");
    case.log.write(&line(3, "stdout", "F", "three"));
    let fresh = MemoryLog::new(line(4, "stdout", "F", "four").as_bytes());
    *case.node.current.lock().unwrap() = Some(fresh.clone());
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "three\n");
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "four\n");
    // Emptied in place.
    fresh.truncate();
    assert!(
        tokio::time::timeout(POLL_INTERVAL * 3, chunks.next())
            .await
            .is_err()
    );
    fresh.write(&line(5, "stdout", "F", "five"));
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "five\n");
}

#[tokio::test(start_paused = true)]
async fn a_followed_log_may_still_come() {
    let case = case("");
    *case.node.current.lock().unwrap() = None;
    let mut chunks = case.read(FOLLOW);
    assert!(
        tokio::time::timeout(POLL_INTERVAL * 3, chunks.next())
            .await
            .is_err()
    );
    *case.node.current.lock().unwrap() =
        Some(MemoryLog::new(line(1, "stdout", "F", "here").as_bytes()));
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "here\n");

    *case.node.current.lock().unwrap() = None;
    case.running.store(false, Ordering::SeqCst);
    assert!(case.read(FOLLOW).next().await.is_none());
}
