//! The phase that container statuses add up to.

use bulkhead_api::v1::PodObservation;
use pod::accessors::is_restartable;
use pod::core::{Container, ContainerStatus, Pod, PodStatus};
use pod::{PodExt, PodPhase, restart};

use super::containers::{is_left_of_earlier_round, is_restarted_after_kill};
use super::input::Stage;

/// What one container contributes to the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing is known of it.
    Unknown,
    /// It has never run.
    Waiting,
    Running,
    /// It ran and ended; it may wait to be started again.
    Stopped {
        exit_code: i32,
        for_good: bool,
    },
}

fn progress(container: &Container, statuses: Option<&[ContainerStatus]>) -> Progress {
    let status = statuses.and_then(|all| all.iter().find(|status| status.name == container.name));
    let Some(state) = status.and_then(|status| status.state.as_ref()) else {
        return Progress::Unknown;
    };
    if state.running.is_some() {
        return Progress::Running;
    }
    if let Some(terminated) = &state.terminated {
        return Progress::Stopped {
            exit_code: terminated.exit_code,
            for_good: true,
        };
    }
    if state.waiting.is_none() {
        return Progress::Unknown;
    }
    let last = status.and_then(|status| status.last_state.as_ref()?.terminated.as_ref());
    last.map_or(Progress::Waiting, |last| Progress::Stopped {
        exit_code: last.exit_code,
        for_good: false,
    })
}

/// The phase while containers are being started and restarted. Where all of them are
/// started again, one that was not yet counts as one that has never run.
pub(super) fn phase(pod: &Pod, status: &PodStatus, observation: &PodObservation) -> PodPhase {
    let is_active = Stage::of(observation) == Stage::Active;
    let progress = |container: &Container, statuses: Option<&[ContainerStatus]>| match is_active
        && is_left_of_earlier_round(observation, &container.name)
    {
        true => Progress::Waiting,
        false => progress(container, statuses),
    };
    let statuses = status.init_container_statuses.as_deref();
    let of_init = pod.init_containers().iter();
    let (sidecars, initial): (Vec<&Container>, Vec<&Container>) =
        of_init.partition(|container| is_restartable(container));
    let progress_of = |container: &Container| progress(container, statuses);
    let has_failed = |container: &&Container| match progress_of(container) {
        Progress::Stopped { exit_code, .. } => {
            exit_code != 0 && !restart::restarts(pod, container, exit_code)
        }
        Progress::Unknown | Progress::Waiting | Progress::Running => false,
    };
    if initial.iter().any(has_failed) {
        return PodPhase::Failed;
    }
    let initial: Vec<Progress> = initial.into_iter().map(progress_of).collect();
    if !initial
        .iter()
        .all(|progress| matches!(progress, Progress::Stopped { .. }))
    {
        return PodPhase::Pending;
    }

    let of_pod = pod.containers().iter();
    let ordinary: Vec<Progress> = of_pod
        .map(|container| progress(container, status.container_statuses.as_deref()))
        .collect();
    let any = |wanted: Progress| ordinary.contains(&wanted);
    if any(Progress::Waiting) || any(Progress::Unknown) || ordinary.is_empty() {
        return PodPhase::Pending;
    }
    // Sidecars hold up no start here: until they have started, nothing after them has.
    // But while one runs the pod has not ended.
    let mut sidecars = sidecars.into_iter().map(progress_of);
    let sidecar_runs = sidecars.any(|progress| progress == Progress::Running);
    let is_restarted = |(container, progress): (&Container, &Progress)| match progress {
        Progress::Stopped { exit_code, .. } => {
            restart::restarts(pod, container, *exit_code)
                || (is_active && is_restarted_after_kill(observation, &container.name))
        }
        Progress::Unknown | Progress::Waiting | Progress::Running => false,
    };
    let restarts = pod.containers().iter().zip(&ordinary).any(is_restarted);
    if any(Progress::Running) || sidecar_runs || restarts {
        return PodPhase::Running;
    }
    if all_succeeded(&ordinary) {
        return PodPhase::Succeeded;
    }
    // One that waits is started again for another reason than its exit.
    let waits = |progress: &Progress| {
        matches!(
            progress,
            Progress::Stopped {
                for_good: false,
                ..
            }
        )
    };
    match restart::never_restarts(pod) || !ordinary.iter().any(waits) {
        true => PodPhase::Failed,
        false => PodPhase::Running,
    }
}

/// The phase of a pod that ended because it was told to: no container of it
/// will be started again, whatever its restart policy.
pub(super) fn final_phase(pod: &Pod, status: &PodStatus) -> PodPhase {
    let initial = pod.init_containers().iter();
    let initial = initial
        .filter(|container| !is_restartable(container))
        .map(|container| progress(container, status.init_container_statuses.as_deref()));
    let mut all: Vec<Progress> = initial.collect();
    all.extend(ordinary(pod, status));
    if all_succeeded(&all) {
        PodPhase::Succeeded
    } else {
        PodPhase::Failed
    }
}

fn ordinary(pod: &Pod, status: &PodStatus) -> Vec<Progress> {
    pod.containers()
        .iter()
        .map(|container| progress(container, status.container_statuses.as_deref()))
        .collect()
}

/// Whether all have ended with 0 and none waits to be started again.
fn all_succeeded(all: &[Progress]) -> bool {
    all.iter().all(|progress| {
        matches!(
            progress,
            Progress::Stopped {
                exit_code: 0,
                for_good: true
            }
        )
    })
}

#[cfg(test)]
mod tests {
    use pod::core::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        PodSpec,
    };

    use super::*;

    /// One letter a container: `r`unning, `w`aiting, `s`ucceeded, `f`ailed,
    /// `b`ack-off after a failure, `e` waiting after a success, `-` no status.
    fn statuses(prefix: &str, letters: &str) -> Vec<ContainerStatus> {
        let terminated = |exit_code| ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code,
                ..Default::default()
            }),
            ..Default::default()
        };
        let waiting = || ContainerState {
            waiting: Some(ContainerStateWaiting::default()),
            ..Default::default()
        };
        let status = |(index, letter)| {
            let (state, last) = match letter {
                'r' => {
                    let running = Some(ContainerStateRunning::default());
                    (
                        ContainerState {
                            running,
                            ..Default::default()
                        },
                        None,
                    )
                }
                'w' => (waiting(), None),
                's' => (terminated(0), None),
                'f' => (terminated(1), None),
                'b' => (waiting(), Some(terminated(1))),
                'e' => (waiting(), Some(terminated(0))),
                _ => return None,
            };
            Some(ContainerStatus {
                name: format!("{prefix}{index}"),
                state: Some(state),
                last_state: last,
                ..Default::default()
            })
        };
        letters.chars().enumerate().filter_map(status).collect()
    }

    fn pod(policy: &str, init: &str, ordinary: &str) -> (Pod, PodStatus) {
        let containers = |prefix: &str, letters: &str| -> Vec<Container> {
            (0..letters.len())
                .map(|index| Container {
                    name: format!("{prefix}{index}"),
                    ..Default::default()
                })
                .collect()
        };
        let spec = PodSpec {
            restart_policy: Some(policy.to_owned()),
            init_containers: Some(containers("i", init)),
            containers: containers("c", ordinary),
            ..Default::default()
        };
        let status = PodStatus {
            init_container_statuses: Some(statuses("i", init)),
            container_statuses: Some(statuses("c", ordinary)),
            ..Default::default()
        };
        (
            Pod {
                spec: Some(spec),
                ..Default::default()
            },
            status,
        )
    }

    fn check(policy: &str, table: &[(&str, &str, &str)]) {
        for (init, ordinary, expected) in table {
            let (pod, status) = pod(policy, init, ordinary);
            assert_eq!(
                phase(&pod, &status, &PodObservation::default()).as_str(),
                *expected,
                "{policy} {init:?} {ordinary:?}"
            );
        }
    }

    #[test]
    fn phase_of_a_pod_that_restarts_always() {
        check(
            "Always",
            &[
                ("", "--", "Pending"),
                ("", "rr", "Running"),
                ("", "ss", "Running"),
                ("", "ff", "Running"),
                ("", "sf", "Running"),
                ("", "rs", "Running"),
                ("", "rw", "Pending"),
                ("", "r-", "Pending"),
                ("", "rb", "Running"),
                ("", "bb", "Running"),
                ("", "fw", "Pending"),
            ],
        );
    }

    #[test]
    fn phase_of_a_pod_that_never_restarts() {
        check(
            "Never",
            &[
                ("", "--", "Pending"),
                ("", "rr", "Running"),
                ("", "ss", "Succeeded"),
                ("", "ff", "Failed"),
                ("", "sf", "Failed"),
                ("", "rf", "Running"),
                ("", "rs", "Running"),
                ("", "sw", "Pending"),
                ("", "s-", "Pending"),
            ],
        );
    }

    #[test]
    fn phase_of_a_pod_that_restarts_on_failure() {
        check(
            "OnFailure",
            &[
                ("", "--", "Pending"),
                ("", "rr", "Running"),
                ("", "ss", "Succeeded"),
                ("", "ff", "Running"),
                ("", "sf", "Running"),
                ("", "rf", "Running"),
                ("", "sb", "Running"),
                ("", "ee", "Running"),
                ("", "sw", "Pending"),
            ],
        );
    }

    #[test]
    fn init_containers_hold_the_phase_until_they_are_done() {
        for policy in ["Always", "OnFailure", "Never"] {
            check(
                policy,
                &[
                    ("-", "-", "Pending"),
                    ("w", "w", "Pending"),
                    ("r", "w", "Pending"),
                    ("sr", "w", "Pending"),
                    ("sw", "w", "Pending"),
                    ("s", "w", "Pending"),
                    ("ss", "r", "Running"),
                    ("r", "r", "Pending"),
                ],
            );
        }
    }

    #[test]
    fn a_failed_init_container_ends_the_pod_only_if_nothing_restarts_it() {
        check(
            "Never",
            &[
                ("f", "w", "Failed"),
                ("sf", "w", "Failed"),
                ("b", "w", "Failed"),
            ],
        );
        for policy in ["Always", "OnFailure"] {
            check(
                policy,
                &[
                    ("f", "w", "Pending"),
                    ("b", "w", "Pending"),
                    ("sb", "w", "Pending"),
                ],
            );
        }
    }

    #[test]
    fn sidecars_neither_hold_the_phase_nor_decide_it_but_keep_a_pod_from_having_ended() {
        for (policy, init, ordinary, expected) in [
            ("Always", "w", "w", "Pending"),
            ("Always", "r", "w", "Pending"),
            ("Always", "r", "r", "Running"),
            ("Always", "b", "r", "Running"),
            ("Never", "f", "r", "Running"),
            ("Never", "r", "s", "Running"),
            ("Never", "r", "f", "Running"),
            ("Never", "f", "s", "Succeeded"),
            ("Never", "s", "f", "Failed"),
            ("OnFailure", "r", "s", "Running"),
            ("OnFailure", "f", "s", "Succeeded"),
        ] {
            let (mut pod, status) = pod(policy, init, ordinary);
            let spec = pod.spec.as_mut().unwrap();
            for sidecar in spec.init_containers.iter_mut().flatten() {
                sidecar.restart_policy = Some("Always".to_owned());
            }
            let found = phase(&pod, &status, &PodObservation::default());
            assert_eq!(found.as_str(), expected, "{policy} {init} {ordinary}");
            if expected == "Succeeded" {
                assert_eq!(final_phase(&pod, &status), PodPhase::Succeeded);
            }
        }
    }

    #[test]
    fn a_pod_that_was_told_to_end_ends() {
        for (init, ordinary, expected) in [
            ("", "ss", PodPhase::Succeeded),
            ("", "sf", PodPhase::Failed),
            ("", "sw", PodPhase::Failed),
            ("", "se", PodPhase::Failed),
            ("s", "s", PodPhase::Succeeded),
            ("f", "s", PodPhase::Failed),
        ] {
            for policy in ["Always", "OnFailure", "Never"] {
                let (pod, status) = pod(policy, init, ordinary);
                assert_eq!(
                    final_phase(&pod, &status),
                    expected,
                    "{policy} {init:?} {ordinary:?}"
                );
            }
        }
    }
}
