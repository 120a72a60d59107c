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

/// Lines `from` to `to`, each with its number.
fn lines(numbers: std::ops::Range<u32>) -> String {
    let line = |number: u32| line(number, "stdout", "F", &number.to_string());
    numbers.map(line).collect()
}

/// A log with two compressed files, one that is not, and itself: 0 to 39.
fn rotated_case() -> Case {
    let case = case(&lines(30..40));
    for (name, log) in [
        (
            "20261120-000001.gz",
            MemoryLog::compressed(lines(0..10).as_bytes()),
        ),
        (
            "20261120-000002.gz",
            MemoryLog::compressed(lines(10..20).as_bytes()),
        ),
        // Left over from a compression.
        ("20261120-000002", MemoryLog::new(lines(10..20).as_bytes())),
        ("20261120-000003", MemoryLog::new(lines(20..30).as_bytes())),
        ("20261120-000003.tmp", MemoryLog::new(b"half")),
    ] {
        case.node.add(name, log);
    }
    case
}

#[tokio::test]
async fn a_rotated_log_is_read_through_all_of_its_files() {
    let case = rotated_case();
    let numbers = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("{number}\n")).collect()
    };
    assert_eq!(case.text(LogOptions::default()).await, numbers(0..40));
    for tail in [0, 1, 9, 10, 11, 20, 25, 30, 31, 39, 40, 41, 1000] {
        let options = LogOptions {
            tail_lines: Some(tail),
            ..LogOptions::default()
        };
        let first = 40_u64.saturating_sub(tail);
        let first = u32::try_from(first).unwrap();
        assert_eq!(case.text(options).await, numbers(first..40), "{tail}");
    }
    let since = LogOptions {
        since: Some(second(15)),
        ..LogOptions::default()
    };
    assert_eq!(case.text(since).await, numbers(15..40));
    // Between the renaming and the opening there is no log.
    *case.node.current.lock().unwrap() = None;
    assert_eq!(case.text(LogOptions::default()).await, numbers(0..30));
}

#[tokio::test]
async fn a_line_that_goes_on_in_the_next_file_is_one() {
    let case = case(&line(2, "stdout", "F", "b"));
    let before = [lines(0..1), line(1, "stdout", "P", "a")].concat();
    case.node.add("1", MemoryLog::new(before.as_bytes()));
    let tail = LogOptions {
        tail_lines: Some(1),
        ..LogOptions::default()
    };
    assert_eq!(case.text(tail).await, "ab\n");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_held_up_over_rotations_misses_no_file() {
    let case = case(&lines(0..10));
    let mut chunks = case.read(FOLLOW);
    let mut seen = text(&chunks.next().await.unwrap().unwrap());
    // Nobody asks for more, and the log is rotated again and again.
    for round in 1..=4 {
        let name = format!("2026112{round}-000000");
        case.node.set_aside(&name);
        let log = MemoryLog::new(lines(round * 10..round * 10 + 10).as_bytes());
        *case.node.current.lock().unwrap() = Some(log);
        if round > 1 {
            case.node.compress(&format!("2026112{}-000000", round - 1));
        }
    }
    case.running.store(false, Ordering::SeqCst);
    while let Some(chunk) = chunks.next().await {
        seen += &text(&chunk.unwrap());
    }
    let all: String = (0..50).map(|number| format!("{number}\n")).collect();
    assert_eq!(seen, all);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_put_back_is_not_read_again() {
    let case = case(&lines(0..1));
    let mut chunks = case.read(FOLLOW);
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "0\n");
    case.node.set_aside("1");
    let waits = tokio::time::timeout(POLL_INTERVAL * 3, chunks.next());
    assert!(waits.await.is_err());
    *case.node.current.lock().unwrap() = case.node.rotated.lock().unwrap().remove("1");
    case.log.write(&lines(1..2));
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "1\n");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_began_while_a_log_was_set_aside_goes_on_after_its_rotation() {
    let case = case(&lines(0..1));
    case.node.set_aside("1");
    let mut chunks = case.read(FOLLOW);
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "0\n");
    // It was put back, and is rotated at last.
    *case.node.current.lock().unwrap() = case.node.rotated.lock().unwrap().remove("1");
    case.log.write(&lines(1..2));
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "1\n");
    case.node.set_aside("2");
    *case.node.current.lock().unwrap() = Some(MemoryLog::new(lines(2..3).as_bytes()));
    assert_eq!(text(&chunks.next().await.unwrap().unwrap()), "2\n");
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
