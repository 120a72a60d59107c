//! Tests of the pool's turns: the decorator on a simulated runtime, and whole workers.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bulkhead_api::v1::WorkerPhase;
use clock::WallClock;
use cri::{RuntimeChanges, RuntimeErrorKind, v1};
use futures_util::future::join_all;
use serde_json::{Value, json};
use simulated_runtime::{Faults, Happening, SimulatedRuntime};
use tokio_util::task::AbortOnDropHandle;

use super::runtime::RuntimeInTurns;
use super::*;
use crate::relist::Owners;
use crate::testing::api_manifest;
use crate::testing::{IMAGE, START, TestNode, eventually, pod_running};

const HOUR: Duration = Duration::from_secs(3600);

/// Turns of one processor.
const FEWEST: usize = 2;

/// A runtime in turns, as steps of workers use it.
struct Case {
    simulated: SimulatedRuntime,
    turns: Turns,
    runtime: Arc<dyn RuntimeChanges>,
}

impl Case {
    fn new() -> Case {
        let simulated = SimulatedRuntime::new(1, WallClock::simulated(START), true);
        simulated.add_image(IMAGE, true);
        let turns = Turns::new(1);
        let below = simulated.clone().into();
        let runtime = RuntimeInTurns::over(&below, &turns, &Owners::default(), None);
        Case {
            runtime: runtime.changes,
            simulated,
            turns,
        }
    }

    fn sandboxes_hang(&self) {
        self.simulated.set_faults(Faults {
            sandbox_delay: HOUR,
            ..Faults::NONE
        });
    }

    fn asked(&self, method: &str) -> u64 {
        let calls = self.simulated.calls();
        calls.get(method).copied().unwrap_or(0)
    }

    /// A call that goes on until it is dropped.
    async fn begin_sandbox(
        &self,
        uid: &str,
    ) -> AbortOnDropHandle<Result<String, cri::RuntimeError>> {
        let (runtime, config) = (Arc::clone(&self.runtime), sandbox(uid));
        let call = tokio::spawn(async move { runtime.run_pod_sandbox(config, "").await });
        tokio::time::sleep(Duration::from_millis(1)).await;
        AbortOnDropHandle::new(call)
    }
}

fn sandbox(uid: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: format!("pod-{uid}"),
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        ..v1::PodSandboxConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_made_before_its_turn() {
    let case = Case::new();
    case.sandboxes_hang();
    let mut calls = Vec::new();
    for uid in 0..5 {
        calls.push(case.begin_sandbox(&uid.to_string()).await);
    }
    assert_eq!(case.asked("RunPodSandbox"), 2);
    let figures = case.turns.figures();
    assert_eq!((figures.running, figures.waiting), (FEWEST, 3));
    // One that is dropped gives its turn back at once, or its place.
    drop(calls.swap_remove(0));
    drop(calls.pop());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(case.asked("RunPodSandbox"), 3);
    let figures = case.turns.figures();
    assert_eq!((figures.running, figures.waiting), (FEWEST, 1));
}

#[tokio::test(start_paused = true)]
async fn all_calls_are_made_in_the_end() {
    let case = Case::new();
    let uids: Vec<String> = (0..40).map(|uid| uid.to_string()).collect();
    let calls = uids
        .iter()
        .map(|uid| case.runtime.run_pod_sandbox(sandbox(uid), ""));
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(case.asked("RunPodSandbox"), 40);
    let figures = case.turns.figures();
    assert_eq!((figures.running, figures.waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn calls_that_hang_lose_their_turns() {
    let case = Case::new();
    case.sandboxes_hang();
    let mut calls = Vec::new();
    for uid in 0..FEWEST {
        calls.push(case.begin_sandbox(&uid.to_string()).await);
    }
    case.simulated.set_faults(Faults::NONE);
    let begun = Instant::now();
    let made = case.runtime.run_pod_sandbox(sandbox("next"), "").await;
    assert!(made.is_ok());
    assert!(begun.elapsed() < Duration::from_secs(6));
    assert_eq!(case.turns.figures().without_turn, FEWEST);
}

#[tokio::test(start_paused = true)]
async fn what_ends_a_container_never_waits() {
    let case = Case::new();
    case.sandboxes_hang();
    let mut calls = Vec::new();
    for uid in 0..4 {
        calls.push(case.begin_sandbox(&uid.to_string()).await);
    }
    let begun = Instant::now();
    // It is not there, which is told at once.
    let stopped = case.runtime.stop_container("none", HOUR).await;
    drop(stopped);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(case.asked("StopContainer"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_begins_withdraws_what_the_one_before_had_not_begun() {
    let case = Case::new();
    case.turns.step_begins("u1", false, Purpose::Run);
    case.sandboxes_hang();
    let mut calls = Vec::new();
    for uid in 0..FEWEST {
        calls.push(case.begin_sandbox(&uid.to_string()).await);
    }
    let mut waiting = pin!(case.runtime.run_pod_sandbox(sandbox("u1"), ""));
    let begun = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_ready())).await;
    assert!(!begun);
    case.turns.step_begins("u1", false, Purpose::End);
    let error = waiting.await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unavailable);
    assert_eq!(case.asked("RunPodSandbox"), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_forgotten_are_not_kept() {
    let case = Case::new();
    for uid in 0..1000 {
        case.turns
            .step_begins(&uid.to_string(), false, Purpose::Run);
        case.turns.forget_pod(&uid.to_string());
    }
    assert!(case.turns.lock().pods.is_empty());
}

/// The one that hangs got its turn last, so those who wait do not know of it.
#[tokio::test(start_paused = true)]
async fn a_preparation_that_hangs_loses_its_turn_in_time_whoever_waited_before_it() {
    let turns = Turns::new(1);
    turns.step_begins("critical", true, Purpose::Run);
    let sandbox = || turns.take(Call::RunSandbox, None, Some(Purpose::Run));
    let (_hangs, answered) = (sandbox().await.unwrap(), sandbox().await.unwrap());
    let mut waits = pin!(turns.take(Call::Prepare, None, Some(Purpose::Run)));
    let mut hangs = pin!(turns.take(Call::Prepare, Some("critical"), None));
    let has_begun = poll_fn(|context| {
        let first = waits.as_mut().poll(context).is_ready();
        Poll::Ready(first || hangs.as_mut().poll(context).is_ready())
    });
    assert!(!has_begun.await);
    let begun = Instant::now();
    drop(answered);
    let (_hangs, _begins) = tokio::join!(hangs, waits);
    assert!(
        begun.elapsed() < Duration::from_millis(300),
        "{:?}",
        begun.elapsed()
    );
}

// Whole workers.

fn ordinary(uid: &str) -> Value {
    let mut pod = pod_running(&format!("pod-{uid}"), uid, &["run"]);
    pod["metadata"]["annotations"] = api_manifest("pod", uid)["metadata"]["annotations"].clone();
    pod
}

fn sandboxes_made(node: &TestNode) -> Vec<String> {
    let history = node.runtime.history().to_vec().into_iter();
    history
        .filter(|entry| entry.container.is_empty())
        .filter(|entry| matches!(entry.happening, Happening::Created { .. }))
        .map(|entry| entry.pod_uid)
        .collect()
}

fn asked(node: &TestNode, method: &str) -> u64 {
    node.runtime.calls().get(method).copied().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn pods_that_hang_delay_the_others_for_a_bounded_time() {
    let node = TestNode::new();
    node.runtime.set_faults(Faults {
        sandbox_delay: HOUR,
        ..Faults::NONE
    });
    // More than there are turns.
    for uid in 0..30 {
        node.create(&ordinary(&format!("hangs-{uid}"))).await;
    }
    eventually("all have begun", || asked(&node, "RunPodSandbox") == 30).await;
    node.runtime.set_faults(Faults::NONE);
    let begun = node.seconds();
    node.create(&ordinary("well")).await;
    eventually("it runs", || node.running("well").is_some()).await;
    assert!(node.seconds() - begun < 20.0, "{}", node.seconds() - begun);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_ended_while_it_waits_for_its_turn_ends_at_once_and_is_never_begun() {
    let node = TestNode::new();
    node.runtime.set_faults(Faults {
        sandbox_delay: HOUR,
        ..Faults::NONE
    });
    for uid in 0..8 {
        node.create(&ordinary(&format!("hangs-{uid}"))).await;
    }
    eventually("they have begun", || asked(&node, "RunPodSandbox") == 8).await;
    let pod = ordinary("waits");
    node.create(&pod).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = node.seconds();
    node.stop(&pod, 30).await;
    eventually("its worker finishes", || {
        node.phase("waits") == Some(WorkerPhase::Finished)
    })
    .await;
    assert!(node.seconds() - begun < 1.0, "{}", node.seconds() - begun);
    node.runtime.set_faults(Faults::NONE);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!sandboxes_made(&node).contains(&"waits".to_owned()));
    assert_eq!(asked(&node, "RunPodSandbox"), 8);
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_comes_before_those_that_wait_already() {
    let node = TestNode::new();
    for uid in 0..40 {
        node.create(&ordinary(&format!("u{uid}"))).await;
    }
    let mut critical = ordinary("critical");
    critical["spec"]["priority"] = json!(2_000_000_000);
    node.create(&critical).await;
    eventually("all are made", || sandboxes_made(&node).len() == 41).await;
    let order = sandboxes_made(&node);
    let place = order.iter().position(|uid| uid == "critical");
    // Behind what had begun, and what got its turn while it was being prepared.
    assert!(place.is_some_and(|place| place < 20), "{order:?}");
    let young = order.iter().position(|uid| uid == "u39");
    assert!(young > place, "{order:?}");
}
