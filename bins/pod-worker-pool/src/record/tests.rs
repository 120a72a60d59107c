//! What lies on disk after a write, a removal, a damage or a hang.

use clock::UnixNanos;
use pod_lifecycle::hook::PostStart;
use pod_lifecycle::instance_resources::{InstanceResources, KnownResources};
use pod_lifecycle::stop::{KillReason, SAVE_MAY_TAKE, StopRecord};
use pod_lifecycle::{Termination, TerminationCause};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use serde_json::json;
use state_file::StateFile;
use tokio_util::task::AbortOnDropHandle;

use super::*;

fn pod() -> PodIdentity {
    PodIdentity::new("u1", "default", "a").unwrap()
}

fn former() -> BTreeSet<String> {
    ["s0".to_owned()].into()
}

fn record(seconds: i64) -> Record {
    let now = UnixNanos(seconds * 1_000_000_000);
    let resources = InstanceResources {
        memory_limit_bytes: 1 << 20,
        ..InstanceResources::default()
    };
    let resources = KnownResources {
        now: resources,
        attempted: Some(InstanceResources::default()),
    };
    Record {
        termination: Some(Termination::new(TerminationCause::Killed, now, None, None)),
        kills: [("c1".to_owned(), KillReason::LivenessFailed)].into(),
        resources: [("c3".to_owned(), resources)].into(),
        kept_resources: [("c".to_owned(), InstanceResources::default())].into(),
        post_starts: [("c2".to_owned(), PostStart::Begun)].into(),
        refused_starts: ["c4".to_owned()].into(),
        stops: [(
            "c1".to_owned(),
            StopRecord::new(Duration::from_secs(1000), Duration::from_secs(30)),
        )]
        .into(),
        started_at: Some(now),
        former_sandboxes: BTreeSet::new(),
    }
}

fn begin_run(directory: &Path) -> std::io::Result<(Records, RecordWriter)> {
    Records::open(directory, &KernelBoot::named("first"))
}

/// Records whose writer runs.
fn open(directory: &Path) -> (Records, AbortOnDropHandle<Infallible>) {
    let (records, writer) = begin_run(directory).unwrap();
    (records, AbortOnDropHandle::new(tokio::spawn(writer.run())))
}

/// What another run would find.
fn on_disk(directory: &Path) -> Vec<(PodIdentity, Record)> {
    begin_run(directory).unwrap().0.all()
}

async fn written(records: &Records) {
    while !records.saver.unsaved().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_is_found_again_by_another_run() {
    let directory = tempfile::tempdir().unwrap();
    let (records, _writer) = open(directory.path());
    assert_eq!(records.load(&pod()), Record::default());
    records.save(&pod(), &record(5)).await.unwrap();
    let (again, _) = begin_run(directory.path()).unwrap();
    assert_eq!(again.load(&pod()), record(5));
    assert_eq!(again.all(), [(pod(), record(5))]);
    records.save(&pod(), &Record::default()).await.unwrap();
    assert!(on_disk(directory.path()).is_empty());
    assert!(records.uids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn damaged_and_foreign_files_are_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let kills = directory.path().join("kills");
    std::fs::create_dir(&kills).unwrap();
    for name in ["u1.json", "...json", "notes.txt", "u_2.json"] {
        std::fs::write(kills.join(name), "{").unwrap();
    }
    let (records, _writer) = open(directory.path());
    assert_eq!(records.uids(), ["u1".to_owned()].into());
    assert!(records.all().is_empty());
    assert_eq!(records.load(&pod()), Record::default());
    // It can be removed all the same.
    records.remove("u1");
    written(&records).await;
    assert!(!kills.join("u1.json").exists());
    assert!(records.uids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_late_removal_takes_no_newer_record_away() {
    let directory = tempfile::tempdir().unwrap();
    let (records, writer) = begin_run(directory.path()).unwrap();
    let saved = tokio::spawn({
        let records = records.clone();
        async move { records.save(&pod(), &record(1)).await }
    });
    tokio::task::yield_now().await;
    // It is removed before it is written, and made again before it is removed.
    records.remove("u1");
    assert_eq!(records.load(&pod()), Record::default());
    let saved_again = tokio::spawn({
        let records = records.clone();
        async move { records.save(&pod(), &record(2)).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(records.load(&pod()), record(2));
    let _writer = AbortOnDropHandle::new(tokio::spawn(writer.run()));
    saved.await.unwrap().unwrap();
    saved_again.await.unwrap().unwrap();
    assert_eq!(on_disk(directory.path()), [(pod(), record(2))]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_written_is_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let (records, writer) = begin_run(directory.path()).unwrap();
    let running = AbortOnDropHandle::new(tokio::spawn(writer.run()));
    records.save(&pod(), &record(1)).await.unwrap();
    drop(running);
    tokio::task::yield_now().await;
    // Nobody writes any more.
    records.save(&pod(), &record(1)).await.unwrap();
    assert!(records.saver.unsaved().is_empty());
    records.save(&pod(), &record(2)).await.unwrap_err();
    // It is still to be written: who asks for it once more waits too.
    records.save(&pod(), &record(2)).await.unwrap_err();
    let (again, _writer) = begin_run(directory.path()).unwrap();
    again.save(&pod(), &record(1)).await.unwrap();
    assert!(again.saver.unsaved().is_empty(), "it was read from there");
}

fn ended(reason: &str) -> Record {
    let cause = TerminationCause::Evicted {
        reason: reason.to_owned(),
        message: String::new(),
        is_disruption: true,
    };
    Record {
        termination: Some(Termination::new(cause, UnixNanos(1), None, None)),
        ..record(1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_ended_with_the_node_starts_again_though_the_disk_refuses_to_keep_that() {
    let begun_anew = Record::begun_anew_beside(former());
    for (former, left) in [
        (BTreeSet::new(), vec![]),
        (former(), vec![(pod(), begun_anew)]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (records, _writer) = open(directory.path());
        let ended = Record {
            former_sandboxes: former,
            ..ended("Terminated")
        };
        records.save(&pod(), &ended).await.unwrap();
        let in_the_way = directory.path().join("kills/u1.json.new");
        std::fs::create_dir(&in_the_way).unwrap();
        let boots = || Records::open(directory.path(), &KernelBoot::named("second")).unwrap();
        // In the next process of that boot, too.
        for _process in 0..2 {
            assert_eq!(boots().0.all(), left);
        }
        let (records, writer) = boots();
        let _writer = AbortOnDropHandle::new(tokio::spawn(writer.run()));
        std::fs::remove_dir(&in_the_way).unwrap();
        written(&records).await;
        let kills = Directory::open(directory.path().join("kills")).unwrap();
        let kept = kills.read().into_iter();
        let kept = kept.map(|(_, content)| (pod(), content.unwrap().record));
        assert_eq!(kept.collect::<Vec<_>>(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_ended_with_the_node_starts_again_with_its_next_boot() {
    let directory = tempfile::tempdir().unwrap();
    for (reason, stays) in [("Terminated", false), ("Evicted", true)] {
        let (records, _writer) = open(directory.path());
        records.save(&pod(), &ended(reason)).await.unwrap();
        let (same_boot, _) = begin_run(directory.path()).unwrap();
        assert_eq!(same_boot.load(&pod()), ended(reason));
        for boot in ["second", "first"] {
            let boot = KernelBoot::named(boot);
            let (next, _) = Records::open(directory.path(), &boot).unwrap();
            assert_eq!(!next.uids().is_empty(), stays, "{reason}");
            assert_eq!(!on_disk(directory.path()).is_empty(), stays, "{reason}");
        }
    }
    // It begins beside the instances that ended with the node. One that was rejected may have
    // ended before, which must be known.
    let begun_anew = Record::begun_anew_beside(former());
    let had_ended = Record {
        started_at: record(1).started_at,
        refused_starts: record(1).refused_starts,
        ..begun_anew.clone()
    };
    for (reason, left) in [("Terminated", begun_anew), ("NodeShutdown", had_ended)] {
        let (records, _writer) = open(directory.path());
        let beside = Record {
            former_sandboxes: former(),
            ..ended(reason)
        };
        records.save(&pod(), &beside).await.unwrap();
        for boot in ["second", "first"] {
            let (next, _) = Records::open(directory.path(), &KernelBoot::named(boot)).unwrap();
            assert_eq!(next.all(), [(pod(), left.clone())]);
        }
    }
}

#[test]
fn only_an_eviction_is_worth_waiting_for_the_disk() {
    let evicted = TerminationCause::Evicted {
        reason: "Evicted".to_owned(),
        message: String::new(),
        is_disruption: false,
    };
    for (cause, expected) in [
        (None, false),
        (Some(TerminationCause::Killed), false),
        (Some(TerminationCause::Deleted), false),
        (Some(TerminationCause::Completed), false),
        (Some(TerminationCause::DeadlineExceeded), false),
        (Some(evicted), true),
    ] {
        let now = UnixNanos(1);
        let record = Record {
            termination: cause.map(|cause| Termination::new(cause, now, None, None)),
            ..record(1)
        };
        assert_eq!(record.outlives_the_machine(), expected, "{record:?}");
    }
}

#[test]
fn what_ends_an_eviction_outlives_a_crash_of_the_machine_as_it_does() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = Directory::open(temporary.path().to_owned()).unwrap();
    let content = |record: &Record| Content::of(&pod(), record);
    let (evicted, killed) = (content(&ended("Evicted")), content(&record(1)));
    for (before, now, expected) in [
        (&None, &killed, false),
        (&killed, &None, false),
        (&None, &evicted, true),
        (&evicted, &killed, true),
        (&evicted, &None, true),
    ] {
        directory.change("u1", before.as_ref()).unwrap();
        let outlives = directory.outlives_the_machine("u1", now.as_ref());
        assert_eq!(outlives, expected, "{before:?} {now:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_writer_has_left_goes_with_its_pod() {
    let directory = tempfile::tempdir().unwrap();
    let left = directory.path().join("kills/u1.json.new");
    std::fs::create_dir(directory.path().join("kills")).unwrap();
    std::fs::write(&left, "{").unwrap();
    let (records, _writer) = open(directory.path());
    assert_eq!(records.uids(), ["u1".to_owned()].into());
    records.remove("u1");
    written(&records).await;
    assert!(!left.exists());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_is_told_and_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let (records, _writer) = open(directory.path());
    let kills = directory.path().join("kills");
    std::fs::remove_dir(&kills).unwrap();
    let error = records.save(&pod(), &record(1)).await.unwrap_err();
    assert!(matches!(error, NotSaved::Refused(_)), "{error:?}");
    assert_eq!(records.load(&pod()), record(1), "in this run it holds");
    std::fs::create_dir(&kills).unwrap();
    written(&records).await;
    assert_eq!(on_disk(directory.path()), [(pod(), record(1))]);
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_in_time_while_other_records_change() {
    let directory = tempfile::tempdir().unwrap();
    let (records, _writer) = open(directory.path());
    // No file can take its place.
    let blocked = directory.path().join("kills/u1.json");
    std::fs::create_dir(&blocked).unwrap();
    let failed_at = tokio::time::Instant::now();
    records.save(&pod(), &record(1)).await.unwrap_err();
    std::fs::remove_dir(&blocked).unwrap();
    let other = PodIdentity::new("u2", "default", "b").unwrap();
    for change in 0.. {
        let elapsed = failed_at.elapsed();
        let is_written = blocked.exists();
        assert!(
            is_written || elapsed < Duration::from_secs(16),
            "{elapsed:?}"
        );
        if is_written {
            break;
        }
        records.save(&other, &record(change)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    written(&records).await;
    let on_disk = on_disk(directory.path());
    assert_eq!(on_disk.first(), Some(&(pod(), record(1))));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_disk_that_hangs_goes_on_after_a_while() {
    let directory = tempfile::tempdir().unwrap();
    // Nobody writes.
    let (records, _writer) = begin_run(directory.path()).unwrap();
    let begun = tokio::time::Instant::now();
    let error = records.save(&pod(), &record(1)).await.unwrap_err();
    assert!(matches!(error, NotSaved::Late), "{error:?}");
    assert_eq!(begun.elapsed().as_secs(), SAVE_MAY_TAKE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_record_is_not_written_after_the_writer_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (records, writer) = begin_run(directory.path()).unwrap();
    drop(writer);
    records.save(&pod(), &record(1)).await.unwrap_err();
    assert!(on_disk(directory.path()).is_empty());
    assert_eq!(
        records.load(&pod()),
        record(1),
        "who asks is told all the same"
    );
}

/// A file as somebody else would write it, with a checksum that is right.
fn hostile(directory: &Path, uid: &str, content: &serde_json::Value) {
    let path = directory.join("kills").join(format!("{uid}.json"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    StateFile::new(path, 2).save(content).unwrap();
}

#[test]
fn a_hostile_record_is_left_out_or_brought_within_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let record = |change: &dyn Fn(&mut serde_json::Value)| {
        let record = serde_json::to_value(record(5)).unwrap();
        let mut content = json!({"namespace": "default", "name": "a", "record": record});
        change(&mut content);
        content
    };
    let write = |uid: &str, change: &dyn Fn(&mut serde_json::Value)| {
        hostile(directory.path(), uid, &record(change));
    };
    write("u1", &|it| {
        it["record"]["termination"]["grace"] = json!({"secs": u64::MAX, "nanos": 0});
        it["record"]["termination"]["cause"] = json!({"Evicted": {
            "reason": "r".repeat(100_000), "message": "m".repeat(100_000),
            "is_disruption": false}});
    });
    write("u2", &|it| it["name"] = json!("../../etc"));
    write("u3", &|it| it["namespace"] = json!("x".repeat(10_000)));
    write("u4", &|it| {
        it["record"]["termination"]["cause"] = json!("Other")
    });
    write("u5", &|it| {
        it["record"]["kills"] = json!("x".repeat(1_000_000))
    });
    write("u6", &|it| it["name"] = json!("of-another-pod"));
    let path = directory.path().join("kills/u7.json");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(100_000_000)
        .unwrap();
    std::fs::write(directory.path().join("kills/u8.json"), "[".repeat(200_000)).unwrap();

    let (records, _writer) = begin_run(directory.path()).unwrap();
    let found: Vec<String> = records
        .all()
        .iter()
        .map(|(pod, _)| pod.uid().into())
        .collect();
    assert_eq!(found, ["u1", "u6"]);
    let termination = records.load(&pod()).termination.unwrap();
    assert_eq!(
        termination.grace,
        Some(pod_lifecycle::termination::MAXIMUM_GRACE)
    );
    let (reason, message) = termination.cause.failure().unwrap();
    assert!(reason.len() <= 64 && message.len() <= 1024);
    for uid in ["u2", "u3", "u4", "u5", "u6", "u7", "u8"] {
        let pod = PodIdentity::new(uid, "default", "a").unwrap();
        assert_eq!(records.load(&pod), Record::default(), "{uid}");
    }
}
