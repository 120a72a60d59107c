//! Sandboxes beside the pod's own that could not be stopped in this sync.

use super::*;
use crate::known::SandboxKnown;

/// Container c runs in a sandbox that showed too late too, and that is newer than the
/// pod's own.
fn case() -> Case {
    let mut case = Case::new("Always");
    let mut stray = case.container("c").clone();
    stray.id = "c-stray".into();
    stray.sandbox_id = "stray".into();
    stray.restart_count = 1;
    case.observation.containers.insert(0, stray);
    case.observation
        .sandboxes
        .insert(0, sandbox("stray", 1, true));
    case.container("a").sandbox_id = SANDBOX.into();
    case
}

fn unstopped() -> Case {
    let mut case = case();
    let failed = SandboxKnown::StopFailed;
    case.known.note_sandbox("stray", failed);
    case
}

#[test]
fn what_could_not_be_stopped_is_not_the_pods_own() {
    let mut case = case();
    case.observation.containers.retain(|it| it.id != "c-stray");
    let stop = Plan::StopSandboxes {
        sandboxes: vec!["stray".into()],
        stops: Vec::new(),
    };
    assert_eq!(case.plan(), stop);
    let failed = SandboxKnown::StopFailed;
    case.known.note_sandbox("stray", failed);
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    // Its number is used up.
    case.observation.sandboxes[1].ready = false;
    let plan = case.plan();
    assert!(
        matches!(plan, Plan::NewSandbox { attempt: 2, .. }),
        "{plan:?}"
    );
}

#[test]
fn what_may_run_where_nothing_could_be_stopped_is_neither_stopped_nor_started_again() {
    let mut case = unstopped();
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    for state in [exited(1), ContainerState::Unknown] {
        case.has("c", state);
        case.has("b", exited(1));
        let work = case.work();
        let stops = work.stops.iter().map(|stop| &*stop.container_id);
        assert!(stops.clone().all(|id| id == "c-0"), "{work:?}");
        let starts: Vec<_> = work.starts.iter().map(|start| &*start.name).collect();
        assert_eq!(starts, ["b"]);
        assert!(work.starts.iter().all(|start| start.sandbox_id == SANDBOX));
    }
    // Once it has ended there, too, it is started in the pod's own.
    case.has("c", exited(1));
    let stray = case.observation.containers.iter_mut();
    stray
        .filter(|it| it.id == "c-stray")
        .for_each(|it| it.state = exited(1));
    assert_eq!(case.starts(), ["b", "c"]);
}

#[test]
fn an_init_container_is_not_started_beside_one_that_may_run() {
    let mut case = Case::with_init("Always");
    case.observation
        .sandboxes
        .insert(0, sandbox("stray", 1, true));
    case.has("i1", running());
    case.container("i1").sandbox_id = "stray".into();
    let failed = SandboxKnown::StopFailed;
    case.known.note_sandbox("stray", failed);
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    case.container("i1").state = exited(1);
    assert_eq!(case.starts(), ["i1"]);
}
