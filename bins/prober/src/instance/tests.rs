//! The startup gate and what follows a container from its start to its end.

use super::*;
use crate::worker::ProbeResult::{Failure, Success, Unknown};

const LATER: Moment = Duration::from_secs(1000);

fn timing() -> Timing {
    Timing {
        initial_delay: Duration::ZERO,
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
        success_threshold: 1,
        failure_threshold: 1,
    }
}

fn timings(kinds: &[Kind]) -> BTreeMap<Kind, Timing> {
    kinds.iter().map(|kind| (*kind, timing())).collect()
}

const ALL: [Kind; 3] = [Kind::Liveness, Kind::Readiness, Kind::Startup];

/// Of a container that has run for longer than a period.
fn instance(kinds: &[Kind], situation: Situation) -> InstanceProbes {
    InstanceProbes::new(
        &timings(kinds),
        &BTreeMap::new(),
        Duration::from_secs(100),
        situation,
        LATER,
        &mut || 0.5,
    )
}

/// The kinds that a try is planned for.
fn planned(instance: &InstanceProbes) -> Vec<Kind> {
    let due = instance.due();
    due.filter(|(_, at)| at.is_some())
        .map(|(kind, _)| kind)
        .collect()
}

fn result(instance: &InstanceProbes, kind: Kind) -> ProbeResult {
    let mut verdicts = instance.verdicts();
    verdicts.find(|(other, _)| *other == kind).unwrap().1.result
}

fn probe(instance: &mut InstanceProbes, kind: Kind, outcome: Outcome) -> bool {
    assert!(instance.begin(kind, Attempt(1), LATER));
    instance.finish(kind, Attempt(1), outcome, LATER)
}

#[test]
fn without_a_startup_probe_the_others_begin_with_the_container() {
    let instance = instance(&[Kind::Liveness, Kind::Readiness], Situation::Running);
    assert_eq!(planned(&instance), [Kind::Liveness, Kind::Readiness]);
}

#[test]
fn the_others_wait_for_the_startup_probe_and_then_begin_at_once() {
    let mut instance = instance(&ALL, Situation::Running);
    assert_eq!(planned(&instance), [Kind::Startup]);
    assert!(!instance.begin(Kind::Liveness, Attempt(1), LATER + Duration::from_secs(100)));
    assert!(probe(
        &mut instance,
        Kind::Startup,
        Outcome::Success(String::new())
    ));
    assert_eq!(planned(&instance), [Kind::Liveness, Kind::Readiness]);
    assert!(
        instance
            .due()
            .all(|(_, at)| at.is_none_or(|at| at == LATER))
    );
}

#[test]
fn after_a_startup_failure_nothing_is_probed() {
    let mut instance = instance(&ALL, Situation::Running);
    probe(
        &mut instance,
        Kind::Startup,
        Outcome::Failure("no".to_owned()),
    );
    assert_eq!(planned(&instance), []);
    assert_eq!(result(&instance, Kind::Startup), Failure);
    assert_eq!(result(&instance, Kind::Liveness), Success);
}

#[test]
fn a_container_that_does_not_run_is_not_probed_and_keeps_its_verdicts() {
    let mut instance = instance(&[Kind::Readiness], Situation::Running);
    probe(
        &mut instance,
        Kind::Readiness,
        Outcome::Success(String::new()),
    );
    instance.update(Situation::NotRunning, LATER, &mut || 0.5);
    assert_eq!(planned(&instance), []);
    assert_eq!(result(&instance, Kind::Readiness), Success);
    instance.update(Situation::Running, LATER, &mut || 0.5);
    assert_eq!(planned(&instance), [Kind::Readiness]);
}

#[test]
fn readiness_goes_on_while_terminating_and_the_others_stop_with_success() {
    let mut instance = instance(&ALL, Situation::Running);
    instance.update(Situation::Terminating, LATER, &mut || 0.5);
    assert_eq!(planned(&instance), [Kind::Readiness]);
    assert_eq!(result(&instance, Kind::Liveness), Success);
    assert_eq!(result(&instance, Kind::Startup), Success);
    probe(
        &mut instance,
        Kind::Readiness,
        Outcome::Success(String::new()),
    );
    assert_eq!(result(&instance, Kind::Readiness), Success);
}

#[test]
fn a_startup_success_is_remembered_over_a_restart() {
    let seeds = [(
        Kind::Startup,
        Verdict {
            result: Success,
            message: String::new(),
        },
    )]
    .into();
    let instance = InstanceProbes::new(
        &timings(&ALL),
        &seeds,
        Duration::from_secs(60),
        Situation::Running,
        LATER,
        &mut || 0.5,
    );
    assert_eq!(planned(&instance), [Kind::Liveness, Kind::Readiness]);
    assert_eq!(result(&instance, Kind::Readiness), Failure);
}

#[test]
fn without_a_memory_of_it_the_startup_probe_runs_again() {
    let instance = instance(&ALL, Situation::Running);
    assert_eq!(result(&instance, Kind::Startup), Unknown);
    assert_eq!(planned(&instance), [Kind::Startup]);
}
