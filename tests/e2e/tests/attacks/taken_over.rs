//! A process that somebody has taken over, under the supervisor: it is cut off, shown and
//! restarted, and nobody else is harmed.

use std::fs;

use anyhow::{Context as _, Result};
use e2e::ground::TIMEOUT;
use serde_json::Value;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, wait_for,
};
use topology::Process;

/// The status, once it is as wished.
pub(crate) fn status_when(
    instance: &BulkheadInstance,
    what: &str,
    wished: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let status = wait_for(what, TIMEOUT, || {
        let output = instance.command_line(&["status", "-o", "json"]);
        let output = output.map_err(|error| error.to_string())?;
        // Its exit code tells that a process is not ready.
        match serde_json::from_str::<Value>(&output.stdout) {
            Ok(status) if wished(&status) => Ok(status),
            _ => Err(output.stdout + &output.stderr),
        }
    });
    Ok(status?)
}

/// What the status says of a process.
pub(crate) fn process_of(status: &Value, process: Process) -> &Value {
    let all = status["processes"].as_array().into_iter().flatten();
    let mut all = all.filter(|one| one["name"] == process.name());
    all.next().unwrap_or(&Value::Null)
}

fn was_ended_for_it(status: &Value) -> bool {
    let reason = process_of(status, Process::Pleg)["lastEnding"]["reason"].as_str();
    reason.is_some_and(|reason| reason.starts_with("sent what it may not"))
}

/// Puts another program in the place of a process.
pub(crate) fn install(instance: &BulkheadInstance, process: Process, program: &str) -> Result<()> {
    let place = instance.paths().bin.join(process.name());
    let new = place.with_extension("new");
    fs::copy(program, &new)?;
    fs::rename(&new, place)?;
    let restarted = instance.command_line(&["restart", process.name()])?;
    anyhow::ensure!(restarted.status.success(), "{}", restarted.stderr);
    Ok(())
}

#[test]
fn a_process_that_calls_what_is_for_others_is_restarted_so_often_and_shown() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let instance = BulkheadInstance::start(&containerd, &BulkheadOptions::default())?;
    let before = instance.pids()?;
    let real = instance.paths().bin.join("pleg.real");
    fs::copy(instance.paths().bin.join("pleg"), &real)?;
    install(&instance, Process::Pleg, env!("CARGO_BIN_EXE_hostile-pleg"))?;
    // The pool is not believed for ever: one of the two is broken, and it may be the pool.
    let told = "pod-worker-pool has had pleg restarted 3 times";
    let status = status_when(&instance, "pleg to be restarted and shown", |status| {
        let all = status["degradations"].as_array().into_iter().flatten();
        let mut texts = all.filter_map(Value::as_str);
        was_ended_for_it(status) && texts.any(|text| text.starts_with(told))
    })?;
    let refused = status["refused"].as_array().context("nothing refused")?;
    let [refused] = refused.as_slice() else {
        anyhow::bail!("{status}");
    };
    assert_eq!(refused["server"], "pod-worker-pool", "{status}");
    assert_eq!(refused["caller"], "pleg", "{status}");
    assert_eq!(refused["kind"], "foreign-service", "{status}");
    // Without the attacker all is well.
    install(&instance, Process::Pleg, &real.to_string_lossy())?;
    // Only the real one tells what it does.
    status_when(&instance, "pleg to do its work", |status| {
        status["ready"] == true && process_of(status, Process::Pleg)["statusText"] != ""
    })?;
    for (process, pid) in instance.pids()? {
        let lives_on = before.get(&process) == Some(&pid);
        assert_eq!(lives_on, process != Process::Pleg, "{process}");
    }
    Ok(())
}
