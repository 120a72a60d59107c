//! Pods that run and are to have other CPU or memory: who may have it, when, and what is
//! told.

use super::*;

/// A pod that requests so many thousandths of a core, and has a priority.
fn sized(uid: &str, millis: u32, priority: i32) -> Value {
    let mut pod = needs_cpu(uid, millis);
    pod["spec"]["priority"] = json!(priority);
    pod
}

/// What was sent last of each pod in these actions: whether it waits for good (`!`), for
/// others (`?`), or not at all.
fn told(actions: &[Action]) -> Vec<String> {
    let all = updates(actions).into_iter().map(|update| {
        let waits = update.pending_resize.map(|it| it.is_infeasible);
        let mark = waits.map_or("", |never| if never { "!" } else { "?" });
        (update.uid.to_string(), mark)
    });
    let last: BTreeMap<String, &str> = all.collect();
    last.into_iter()
        .map(|(uid, mark)| format!("{uid}{mark}"))
        .collect()
}

fn events(actions: &[Action]) -> Vec<String> {
    let all = actions.iter().filter_map(|action| match action {
        Action::ReportEvent(event) => Some(event.reason.clone()),
        _ => None,
    });
    all.collect()
}

fn message(actions: &[Action], uid: &str) -> String {
    let all = updates(actions).into_iter();
    let mut of_pod = all.filter(|update| &*update.uid == uid);
    of_pod.next_back().unwrap().pending_resize.unwrap().message
}

/// A node with 4 cores on which these pods run.
fn with_running(pods: &[Value]) -> Harness {
    let mut harness = Harness::running();
    for pod in pods {
        harness.add_running(pod);
    }
    harness
}

#[test]
fn a_resize_fits_never_now_or_later() {
    for (millis, expected, reason, text) in [
        (2000, "a", None, ""),
        (500, "a", None, ""),
        (
            2001,
            "a?",
            Some("ResizeDeferred"),
            "Node didn't have enough resource: cpu, requested: 2001, used: 2000, capacity: 4000",
        ),
        (4000, "a?", Some("ResizeDeferred"), "Node didn't have"),
        (
            4001,
            "a!",
            Some("ResizeInfeasible"),
            "Node didn't have enough capacity: cpu, requested: 4001, capacity: 4000",
        ),
    ] {
        let mut harness = with_running(&[needs_cpu("a", 1000), needs_cpu("b", 2000)]);
        let actions = harness.deliver(&needs_cpu("a", millis));
        assert_eq!(told(&actions), [expected], "{millis}");
        let reason: Vec<&str> = reason.into_iter().collect();
        assert_eq!(events(&actions), reason, "{millis}");
        if !text.is_empty() {
            assert!(message(&actions, "a").starts_with(text), "{millis}");
        }
    }
}

#[test]
fn memory_that_the_node_never_has_is_named_before_cpu() {
    let with_memory = |memory: &str| {
        let mut pod = needs_cpu("a", 9000);
        pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!(memory);
        pod
    };
    let mut first = with_memory("1Mi");
    first["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    let mut harness = with_running(&[first]);
    let actions = harness.deliver(&with_memory("2Gi"));
    assert_eq!(
        message(&actions, "a"),
        "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824"
    );
}

#[test]
fn a_pod_that_waits_counts_with_what_it_has() {
    let mut harness = with_running(&[needs_cpu("a", 1000), needs_cpu("b", 1000)]);
    assert_eq!(told(&harness.deliver(&needs_cpu("a", 4000))), ["a?"]);
    let actions = harness.deliver(&needs_cpu("c", 2000));
    // The reason of the one that waits names what others use.
    assert_eq!(told(&actions), ["a?", "c"]);
    let actions = harness.deliver(&needs_cpu("d", 1));
    assert_eq!(sent(&actions), [""; 0], "nothing is left");
    // One that got what it is to have counts with that.
    let mut harness = with_running(&[needs_cpu("a", 1000)]);
    assert_eq!(told(&harness.deliver(&needs_cpu("a", 3000))), ["a"]);
    assert_eq!(sent(&harness.deliver(&needs_cpu("b", 1001))), [""; 0]);
}

#[test]
fn a_resize_that_waits_is_decided_again_when_another_pod_needs_less() {
    for how in ["removed", "ended", "smaller", "capacity"] {
        let mut harness = with_running(&[needs_cpu("a", 1000), needs_cpu("b", 2000)]);
        assert_eq!(told(&harness.deliver(&needs_cpu("a", 3000))), ["a?"]);
        let actions = match how {
            "removed" => harness.remove(&needs_cpu("b", 2000)),
            "smaller" => harness.deliver(&needs_cpu("b", 1000)),
            "capacity" => harness.capacity(5000),
            _ => {
                let again = harness.lifecycle("b", v1::PodLifecycleEventType::ContainerDied);
                harness.acknowledge(&again, WorkerPhase::Finished)
            }
        };
        assert!(told(&actions).contains(&"a".to_owned()), "{how}");
        let mut expected = vec!["a"];
        expected.extend((how == "removed" || how == "smaller").then_some("b"));
        assert_eq!(told(&actions), expected, "{how}");
        assert_eq!(events(&actions), [""; 0], "{how}");
    }
}

#[test]
fn nobody_who_waits_gets_the_room_of_a_pod_that_is_edited() {
    // Edited, a static pod without a UID of its own is another pod.
    let start = || {
        let pods = [needs_cpu("a", 2000), needs_cpu("b", 1000)];
        let mut harness = with_running(&pods);
        assert_eq!(told(&harness.deliver(&needs_cpu("b", 3000))), ["b?"]);
        harness
    };
    for how in ["changes", "snapshot"] {
        let mut harness = start();
        let edited = needs_cpu("edited", 2000);
        let actions = match how {
            "changes" => harness.change(&[needs_cpu("a", 2000)], &[edited]),
            _ => harness.snapshot(PodSource::File, true, &[needs_cpu("b", 3000), edited]),
        };
        assert_eq!(sent(&actions)[..2], ["KILL a", "CREATE edited"], "{how}");
        assert!(!told(&actions).contains(&"b".to_owned()), "{how}");
        // Who needs less now leaves the rest to others.
        let less = needs_cpu("less", 1000);
        let actions = match how {
            "changes" => harness.change(&[needs_cpu("edited", 2000)], &[less]),
            _ => harness.snapshot(PodSource::File, true, &[needs_cpu("b", 3000), less]),
        };
        assert_eq!(told(&actions), ["b", "edited", "less"], "{how}");
    }
    // Nor one of the pods that change with it, and they make room before.
    let mut harness = start();
    let pods = [needs_cpu("b", 2500), needs_cpu("edited", 2000)];
    let actions = harness.change(&[needs_cpu("a", 2000)], &pods);
    assert_eq!(told(&actions), ["a", "b?", "edited"]);
    let pods = [needs_cpu("b", 500), needs_cpu("again", 3500)];
    let actions = harness.change(&[needs_cpu("edited", 2000)], &pods);
    assert_eq!(told(&actions), ["again", "b", "edited"]);
}

#[test]
fn the_most_important_pod_is_next_then_the_one_that_waits_longest() {
    let guaranteed = |uid: &str, millis: u32| {
        let mut pod = sized(uid, millis, 5);
        let amounts = json!({"cpu": format!("{millis}m"), "memory": "1Mi"});
        let both = json!({"requests": amounts, "limits": amounts});
        pod["spec"]["containers"][0]["resources"] = both;
        pod
    };
    let mut harness = with_running(&[
        sized("a", 100, 5),
        sized("b", 100, 5),
        guaranteed("c", 100),
        sized("d", 100, 9),
        needs_cpu("z", 3600),
    ]);
    for pod in [
        sized("b", 3100, 5),
        sized("a", 3100, 5),
        guaranteed("c", 3100),
        sized("d", 3100, 9),
    ] {
        harness.wait(Duration::from_secs(1));
        let actions = harness.deliver(&pod);
        assert_eq!(events(&actions), ["ResizeDeferred"]);
    }
    // Each next one gets the room of the one before.
    for (gone, next) in [("z", "d"), ("d", "c"), ("c", "b"), ("b", "a")] {
        let actions = harness.remove(&plain(gone));
        let admitted: Vec<_> = told(&actions)
            .into_iter()
            .filter(|it| !it.ends_with('?') && it != gone)
            .collect();
        assert_eq!(admitted, [next], "after {gone}");
    }
}

#[test]
fn a_resize_that_is_taken_back_waits_no_more() {
    let mut harness = with_running(&[needs_cpu("a", 1000)]);
    assert_eq!(told(&harness.deliver(&needs_cpu("a", 9000))), ["a!"]);
    assert_eq!(told(&harness.deliver(&needs_cpu("a", 1000))), ["a"]);
    // Labels of a pod that waits change at once, and nobody hears of the resize again.
    assert_eq!(told(&harness.deliver(&needs_cpu("a", 9000))), ["a!"]);
    let mut labelled = needs_cpu("a", 9000);
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let actions = harness.deliver(&labelled);
    assert_eq!(told(&actions), ["a!"]);
    assert_eq!(events(&actions), [""; 0]);
    let again = harness.deliver(&needs_cpu("a", 9001));
    assert_eq!(events(&again), ["ResizeInfeasible"]);
}

#[test]
fn what_is_in_force_is_known_after_a_restart() {
    let mut harness = with_running(&[needs_cpu("a", 1000), needs_cpu("b", 3000)]);
    assert_eq!(told(&harness.deliver(&needs_cpu("a", 2000))), ["a?"]);
    let records = harness.records.clone();
    for (wanted, expected, news) in [
        (2000, "a?", false),
        (1000, "a", false),
        (800, "a", false),
        (1500, "a?", true),
        (5000, "a!", true),
    ] {
        let mut harness = Harness::with_records(records.clone());
        harness.configure(&["file"]);
        let pods = [needs_cpu("a", wanted), needs_cpu("b", 3000)];
        let mut actions = harness.snapshot(PodSource::File, true, &pods);
        let workers = ["a", "b"].map(|uid| worker(uid, WorkerPhase::Syncing));
        actions.extend(harness.housekeeping(&workers, &[]));
        // Not before the node's capacity is known.
        let before = told(&actions);
        assert_eq!(before[0].ends_with('?'), wanted > 1000, "{wanted}");
        assert_eq!(events(&actions), [""; 0], "{wanted}");
        actions.extend(harness.capacity(4000));
        assert_eq!(told(&actions)[0], expected, "{wanted}");
        assert_eq!(events(&actions).len(), usize::from(news), "{wanted}");
        let all = told(&harness.remove(&needs_cpu("b", 3000)));
        assert!(!all.contains(&"a?".to_owned()), "{wanted}");
    }
}

#[test]
fn nobody_gets_more_before_every_source_has_delivered() {
    let mut harness = with_running(&[needs_cpu("a", 1000)]);
    harness.deliver(&needs_cpu("a", 9000));
    let records = harness.records.clone();
    let mut harness = Harness::with_records(records);
    harness.configure(&["file", "http"]);
    harness.capacity(4000);
    let workers = ["a", "b"].map(|uid| worker(uid, WorkerPhase::Syncing));
    harness.housekeeping(&workers, &[]);
    let actions = harness.snapshot(PodSource::File, true, &[needs_cpu("a", 2000)]);
    assert_eq!(told(&actions), ["a!"], "as it was recorded");
    let actions = harness.snapshot(PodSource::Http, true, &[needs_cpu("b", 3000)]);
    assert_eq!(told(&actions), ["a?", "b"]);
}

#[test]
fn nothing_is_sent_of_a_resize_before_its_pod_is_judged() {
    let harness = with_running(&[needs_cpu("a", 1000)]);
    let mut harness = Harness::with_records(harness.records);
    harness.configure(&["file"]);
    harness.capacity(4000);
    harness.snapshot(PodSource::File, true, &[needs_cpu("a", 900)]);
    for millis in [800, 3000] {
        let actions = harness.deliver(&needs_cpu("a", millis));
        assert_eq!(sent(&actions), [""; 0], "{millis}");
    }
    let workers = [worker("a", WorkerPhase::Syncing)];
    assert_eq!(told(&harness.housekeeping(&workers, &[])), ["a"]);
}
