//! Sidecars: when they start, that they are kept running, and when they are stopped.

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::spec;
use e2e::workload::container;
use serde_json::{Value, json};
use test_support::observe::condition;
use topology::Process;

fn sidecar(name: &str, journal_name: &str, words: &[&str]) -> Value {
    let mut sidecar = container(name, journal_name, words);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

/// A pod with a sidecar, an init container, another sidecar and a main container, which
/// journal under its name and theirs.
fn pod(ground: &Ground, name: &str, main: &[&str]) -> Value {
    let own = |part: &str| format!("{name}-{part}");
    let mut pod = spec(ground, &[container("main", &own("main"), main)]);
    pod["initContainers"] = json!([
        sidecar("first", &own("first"), &[]),
        container("prepare", &own("prepare"), &["--exit-after-ms", "300"]),
        sidecar("second", &own("second"), &[]),
    ]);
    pod["terminationGracePeriodSeconds"] = json!(20);
    pod
}

fn in_order(ground: &Ground, notes: &[(&str, &str)]) -> Result<()> {
    let times = notes
        .iter()
        .map(|(name, event)| ground.note(name, event, 1));
    let times: Vec<u128> = times.collect::<Result<_>>()?;
    ensure!(times.is_sorted(), "{notes:?} at {times:?}");
    Ok(())
}

#[test]
fn sidecars_start_in_their_place_and_stop_last_in_reverse_order() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    for (name, kills) in [("p", false), ("q", true)] {
        ground.apply(name, pod(&ground, name, &[]))?;
        let shown = ground.ready(name)?;
        ensure!(condition(&shown, "Initialized") == Some(true), "{shown}");
        let statuses = shown["status"]["initContainerStatuses"].as_array();
        let statuses = statuses.context("no statuses of init containers")?;
        for (status, started) in statuses.iter().zip([true, false, true]) {
            ensure!(status["started"] == started, "{status}");
            ensure!(status["ready"] == true, "{status}");
        }
        let own = |part: &str| format!("{name}-{part}");
        let [first, prepare, second, main] = ["first", "prepare", "second", "main"].map(own);
        in_order(
            &ground,
            &[
                (&first, "started"),
                (&prepare, "started"),
                (&prepare, "exit 0"),
                (&second, "started"),
                (&main, "started"),
            ],
        )?;
        ground.take_away(name)?;
        if kills {
            ground.note(&main, "SIGTERM", 1)?;
            ground.bulkhead.kill(Process::PodWorkerPool)?;
            ground.bulkhead.wait_until_ready()?;
        }
        ground.gone(name)?;
        in_order(
            &ground,
            &[
                (&main, "SIGTERM"),
                (&main, "exit 0"),
                (&second, "SIGTERM"),
                (&second, "exit 0"),
                (&first, "SIGTERM"),
                (&first, "exit 0"),
            ],
        )?;
    }
    Ok(())
}
