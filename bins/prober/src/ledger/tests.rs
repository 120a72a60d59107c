//! What survives a restart, and for how long.

use super::*;
use crate::worker::ProbeResult;

fn owner(pod_uid: &str) -> Owner {
    Owner {
        pod_uid: pod_uid.to_owned(),
        container_name: "main".to_owned(),
    }
}

fn instance(pod_uid: &str, result: ProbeResult) -> SavedInstance {
    let message = "because".to_owned();
    SavedInstance {
        owner: owner(pod_uid),
        verdicts: [(Kind::Readiness, Verdict { result, message })].into(),
    }
}

fn named(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn ids(ledger: &mut Ledger) -> Vec<String> {
    ledger.take_snapshot().into_keys().collect()
}

const NOW: Moment = Duration::from_secs(5);

#[test]
fn what_is_saved_is_restored_in_the_same_form() {
    let mut ledger = Ledger::default();
    assert!(!ledger.has_changed());
    ledger
        .record("c1", instance("a", ProbeResult::Success))
        .unwrap();
    assert!(ledger.has_changed());
    let saved = ledger.take_snapshot();
    assert!(!ledger.has_changed());
    let text = serde_json::to_string(&saved).unwrap();
    let restored = Ledger::restore(serde_json::from_str(&text).unwrap());
    assert!(restored.has_changed(), "readers have to be told");
    assert_eq!(
        restored.known("c1", &owner("a")).unwrap()[&Kind::Readiness].result,
        ProbeResult::Success
    );
    assert_eq!(restored.known("c1", &owner("b")), None, "another's");
    assert_eq!(restored.known("c2", &owner("a")), None);
}

#[test]
fn a_hostile_file_gives_verdicts_within_bounds() {
    let mut wordy = instance("a", ProbeResult::Failure);
    for verdict in wordy.verdicts.values_mut() {
        verdict.message = "\u{e9}".repeat(5 << 20);
    }
    let long = "x".repeat(5 << 20);
    let restored = Ledger::restore(
        [
            ("c1".to_owned(), wordy),
            (long.clone(), instance("a", ProbeResult::Failure)),
            ("c2".to_owned(), instance(&long, ProbeResult::Failure)),
        ]
        .into(),
    );
    let known = restored.known("c1", &owner("a")).unwrap();
    assert!(known[&Kind::Readiness].message.len() <= MAX_MESSAGE_BYTES);
    assert_eq!(restored.entries.len(), 1);
}

#[test]
fn only_a_difference_is_a_change() {
    let mut ledger = Ledger::default();
    ledger
        .record("c1", instance("a", ProbeResult::Failure))
        .unwrap();
    ledger.take_snapshot();
    ledger
        .record("c1", instance("a", ProbeResult::Failure))
        .unwrap();
    ledger.forget("c2");
    ledger.expire(NOW + MISSING_FOR * 2);
    assert!(!ledger.has_changed());
    ledger
        .record("c1", instance("a", ProbeResult::Success))
        .unwrap();
    assert!(ledger.has_changed());
    ledger.take_snapshot();
    ledger.forget("c1");
    assert!(ledger.has_changed());
    assert!(ids(&mut ledger).is_empty());
}

#[test]
fn an_instance_missing_from_a_snapshot_is_kept_for_a_while() {
    let saved = [("old".to_owned(), instance("a", ProbeResult::Success))].into();
    let mut ledger = Ledger::restore(saved);
    ledger
        .record("new", instance("b", ProbeResult::Success))
        .unwrap();
    // Without a snapshot nothing is missing, however long that takes.
    ledger.expire(NOW + MISSING_FOR * 100);
    assert_eq!(ids(&mut ledger), ["new", "old"]);

    assert_eq!(ledger.snapshot_complete(&named(&["new"]), NOW), ["old"]);
    let later = NOW + Duration::from_secs(60);
    assert!(
        ledger.snapshot_complete(&named(&["new"]), later).is_empty(),
        "it has been missing since the first snapshot"
    );
    let early = ledger.expire(NOW + MISSING_FOR - Duration::from_nanos(1));
    assert_eq!(
        (early, ids(&mut ledger)),
        (vec![], vec!["new".into(), "old".into()])
    );
    assert_eq!(ledger.expire(NOW + MISSING_FOR), ["old"]);
    assert_eq!(ids(&mut ledger), ["new"]);
}

#[test]
fn the_time_of_what_is_missing_begins_when_all_are_named() {
    let mut ledger = Ledger::default();
    ledger
        .record("c1", instance("a", ProbeResult::Success))
        .unwrap();
    ledger.snapshot_complete(&named(&[]), NOW);
    let complete = NOW + MISSING_FOR * 10;
    ledger.all_are_named(complete);
    ledger.expire(complete + MISSING_FOR - Duration::from_nanos(1));
    assert_eq!(ids(&mut ledger), ["c1"]);
    ledger.expire(complete + MISSING_FOR);
    assert!(ids(&mut ledger).is_empty());
}

#[test]
fn what_is_missing_makes_room_the_longest_first() {
    let mut ledger = Ledger::default();
    for number in 0..MAX_INSTANCES {
        ledger
            .record(&number.to_string(), instance("a", ProbeResult::Success))
            .unwrap();
    }
    let mut all: BTreeSet<String> = ids(&mut ledger).into_iter().collect();
    all.remove("7");
    ledger.snapshot_complete(&all, NOW);
    all.remove("3");
    ledger.snapshot_complete(&all, NOW * 2);
    for (new, gone) in [("new", "7"), ("newer", "3")] {
        assert!(ledger.entries.contains_key(gone));
        let recorded = ledger.record(new, instance("b", ProbeResult::Success));
        assert_eq!(recorded, Ok(Some(gone.to_owned())));
        assert!(!ledger.entries.contains_key(gone));
    }
    assert!(
        ledger
            .record("newest", instance("b", ProbeResult::Success))
            .is_err()
    );
}

#[test]
fn an_instance_that_is_named_again_stays() {
    let mut ledger = Ledger::default();
    ledger
        .record("c1", instance("a", ProbeResult::Success))
        .unwrap();
    ledger.snapshot_complete(&named(&[]), NOW);
    ledger
        .record("c1", instance("a", ProbeResult::Success))
        .unwrap();
    ledger.expire(NOW + MISSING_FOR * 2);
    assert_eq!(ids(&mut ledger), ["c1"]);
}

#[test]
fn the_number_of_instances_is_bounded() {
    let mut ledger = Ledger::default();
    for number in 0..MAX_INSTANCES {
        assert!(
            ledger
                .record(&number.to_string(), instance("a", ProbeResult::Success))
                .is_ok()
        );
    }
    assert!(
        ledger
            .record("more", instance("a", ProbeResult::Success))
            .is_err()
    );
    assert!(
        ledger
            .record("0", instance("a", ProbeResult::Failure))
            .is_ok()
    );
    ledger.forget("1");
    assert!(
        ledger
            .record("more", instance("a", ProbeResult::Success))
            .is_ok()
    );
}
