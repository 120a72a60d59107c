//! Which updates merge, and which are never lost.

use pod::PodSource;
use proptest::prelude::*;

use super::*;

fn document(version: u32) -> PodDocument {
    let json = format!(
        r#"{{"metadata":{{"uid":"a","namespace":"d","name":"n","generation":{version}}}}}"#
    );
    PodDocument::from_json(json.into_bytes(), PodSource::File)
        .unwrap()
        .0
}

fn update(uid: &str, sequence: u64, kind: UpdateKind) -> WorkerUpdate {
    WorkerUpdate {
        uid: uid.into(),
        sequence,
        kind,
        pod: UpdatedPod::Desired(document(u32::try_from(sequence).unwrap())),
        verdicts: Vec::new(),
        pending_resize: None,
        cause: format!("cause {sequence}"),
    }
}

fn kill(at: i64) -> UpdateKind {
    UpdateKind::Kill {
        requested_at: UnixNanos(at),
    }
}

fn drained(outbox: &mut Outbox) -> Vec<(UpdateKind, u64)> {
    let mut all = Vec::new();
    while let Some(update) = outbox.take() {
        outbox.done(&update.uid, Delivery::Settled);
        all.push((update.kind, update.sequence));
    }
    all
}

#[test]
fn the_newest_update_wins_except_over_a_kill_and_a_creation() {
    for (kinds, expected) in [
        (
            vec![UpdateKind::Sync, UpdateKind::Sync],
            vec![(UpdateKind::Sync, 1)],
        ),
        (
            vec![UpdateKind::Sync, UpdateKind::Update],
            vec![(UpdateKind::Update, 1)],
        ),
        (
            vec![UpdateKind::Update, UpdateKind::Sync],
            vec![(UpdateKind::Update, 1)],
        ),
        (
            vec![UpdateKind::Create, UpdateKind::Update, UpdateKind::Sync],
            vec![(UpdateKind::Create, 2)],
        ),
        (
            vec![UpdateKind::Sync, UpdateKind::Create],
            vec![(UpdateKind::Create, 1)],
        ),
        (vec![UpdateKind::Create, kill(5)], vec![(kill(5), 1)]),
        (
            vec![kill(5), UpdateKind::Update, UpdateKind::Sync],
            vec![(kill(5), 2)],
        ),
        (vec![kill(5), kill(7)], vec![(kill(5), 1)]),
        (
            vec![kill(5), UpdateKind::Create],
            vec![(kill(5), 0), (UpdateKind::Create, 1)],
        ),
        (
            vec![kill(5), UpdateKind::Create, UpdateKind::Update],
            vec![(kill(5), 0), (UpdateKind::Create, 2)],
        ),
        (
            vec![kill(5), UpdateKind::Create, kill(9)],
            vec![(kill(5), 2)],
        ),
    ] {
        let mut outbox = Outbox::default();
        for (sequence, kind) in (0..).zip(kinds.clone()) {
            outbox.push(update("a", sequence, kind));
        }
        assert_eq!(drained(&mut outbox), expected, "{kinds:?}");
        assert!(outbox.is_empty());
    }
}

#[test]
fn one_update_of_a_pod_is_in_flight_at_a_time() {
    let mut outbox = Outbox::default();
    outbox.push(update("a", 1, UpdateKind::Create));
    let first = outbox.take().unwrap();
    outbox.push(update("a", 2, UpdateKind::Update));
    assert_eq!(outbox.take(), None);
    outbox.done(&first.uid, Delivery::Settled);
    assert_eq!(outbox.take().unwrap().sequence, 2);
    assert_eq!(outbox.pods.len(), 1);
}

#[test]
fn what_failed_is_sent_again_with_what_came_meanwhile() {
    let mut outbox = Outbox::default();
    outbox.push(update("a", 1, kill(5)));
    let sent = outbox.take().unwrap();
    outbox.push(update("a", 2, UpdateKind::Sync));
    outbox.done(&sent.uid, Delivery::Failed);
    assert_eq!(drained(&mut outbox), [(kill(5), 2)]);

    outbox.push(update("a", 3, UpdateKind::Create));
    let sent = outbox.take().unwrap();
    outbox.done(&sent.uid, Delivery::Failed);
    assert_eq!(drained(&mut outbox), [(UpdateKind::Create, 3)]);
}

#[test]
fn pods_take_turns() {
    let mut outbox = Outbox::default();
    for (sequence, uid) in (0..).zip(["a", "b", "a", "c", "a"]) {
        outbox.push(update(uid, sequence, UpdateKind::Sync));
    }
    let order: Vec<_> = std::iter::from_fn(|| outbox.take())
        .map(|update| update.uid.to_string())
        .collect();
    assert_eq!(order, ["a", "b", "c"]);
}

#[test]
fn a_kill_by_name_alone_keeps_the_pod_that_is_known() {
    let mut outbox = Outbox::default();
    outbox.push(update("a", 1, kill(5)));
    let identity = PodIdentity::new("a", "d", "n").unwrap();
    let by_name = WorkerUpdate {
        pod: UpdatedPod::RuntimeOnly(identity),
        ..update("a", 2, kill(6))
    };
    outbox.push(by_name);
    assert!(matches!(outbox.take().unwrap().pod, UpdatedPod::Desired(_)));
}

#[test]
fn a_request_carries_what_its_kind_needs() {
    let request = update("a", 1, kill(5)).to_request();
    assert_eq!(request.r#type(), UpdateType::Kill);
    assert_eq!(request.kill.unwrap().requested_at_unix_nanos, 5);
    assert_eq!(request.pod.unwrap().uid, "a");
    assert_eq!(request.hash, document(1).hash());
    let identity = PodIdentity::new("a", "d", "n").unwrap();
    let by_name = WorkerUpdate {
        pod: UpdatedPod::RuntimeOnly(identity),
        ..update("a", 2, UpdateKind::Sync)
    };
    let request = by_name.to_request();
    assert_eq!(request.pod.unwrap().uid, "a");
    assert!(request.hash.is_empty() && request.kill.is_none());
}

#[test]
fn a_kill_waits_for_no_other_pod() {
    let mut outbox = Outbox::default();
    for (sequence, uid) in (0..).zip(["a", "b", "c"]) {
        outbox.push(update(uid, sequence, UpdateKind::Create));
    }
    assert_eq!(outbox.take_kill(), None);
    outbox.push(update("c", 3, kill(5)));
    outbox.push(update("d", 4, kill(5)));
    assert_eq!(&*outbox.take_kill().unwrap().uid, "c");
    let order: Vec<_> = std::iter::from_fn(|| outbox.take())
        .map(|update| update.uid.to_string())
        .collect();
    assert_eq!(order, ["d", "a", "b"]);
}

#[test]
fn an_outdated_update_is_dropped_but_for_what_a_newer_one_takes_over() {
    let mut outbox = Outbox::default();
    outbox.push(update("a", 1, UpdateKind::Create));
    let sent = outbox.take().unwrap();
    outbox.done(&sent.uid, Delivery::Outdated);
    assert!(outbox.is_empty());
    outbox.push(update("a", 2, UpdateKind::Create));
    let sent = outbox.take().unwrap();
    outbox.push(update("a", 3, UpdateKind::Update));
    outbox.done(&sent.uid, Delivery::Outdated);
    assert_eq!(drained(&mut outbox), [(UpdateKind::Create, 3)]);
}

fn any_kind() -> impl Strategy<Value = UpdateKind> {
    prop_oneof![
        Just(UpdateKind::Create),
        Just(UpdateKind::Update),
        Just(UpdateKind::Sync),
        (0_i64..100).prop_map(kill),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Push(UpdateKind),
    Take,
    Done(Delivery),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any_kind().prop_map(Step::Push),
        2 => Just(Step::Take),
        2 => prop_oneof![Just(Delivery::Settled), Just(Delivery::Failed)].prop_map(Step::Done),
    ]
}

proptest! {
    /// Whatever fails and is repeated: what was pushed last arrives last, a
    /// termination that nothing re-created stays one, and all of it ends.
    #[test]
    fn the_last_word_arrives_and_no_kill_is_lost(steps in proptest::collection::vec(any_step(), 1..60)) {
        let mut outbox = Outbox::default();
        let mut in_flight: Option<WorkerUpdate> = None;
        let mut sequence = 0;
        // Whether the pod is to be stopped, by what was pushed and what arrived.
        let (mut wanted_dead, mut arrived_dead) = (false, false);
        let mut last_arrived = 0;
        let arrive = |update: &WorkerUpdate, dead: &mut bool, last: &mut u64| {
            match update.kind {
                UpdateKind::Kill { .. } => *dead = true,
                UpdateKind::Create => *dead = false,
                UpdateKind::Update | UpdateKind::Sync => {}
            }
            *last = update.sequence;
        };
        for step in steps {
            match step {
                Step::Push(kind) => {
                    sequence += 1;
                    match kind {
                        UpdateKind::Kill { .. } => wanted_dead = true,
                        UpdateKind::Create => wanted_dead = false,
                        UpdateKind::Update | UpdateKind::Sync => {}
                    }
                    outbox.push(update("a", sequence, kind));
                }
                Step::Take => if in_flight.is_none() { in_flight = outbox.take() },
                Step::Done(delivery) => if let Some(sent) = in_flight.take() {
                    // A failed call may have taken effect all the same.
                    arrive(&sent, &mut arrived_dead, &mut last_arrived);
                    outbox.done(&sent.uid, delivery);
                },
            }
            prop_assert!(outbox.pods.values().all(|updates| updates.waiting.len() <= 2));
        }
        if let Some(sent) = in_flight.take() {
            outbox.done(&sent.uid, Delivery::Failed);
        }
        while let Some(sent) = outbox.take() {
            arrive(&sent, &mut arrived_dead, &mut last_arrived);
            outbox.done(&sent.uid, Delivery::Settled);
        }
        prop_assert!(outbox.is_empty());
        prop_assert_eq!(last_arrived, sequence);
        prop_assert_eq!(arrived_dead, wanted_dead);
    }
}
