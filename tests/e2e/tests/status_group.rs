//! Who may read the status without being root: members of the group that `statusGroup`
//! names, and nothing but the status.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, wait_for,
};
use topology::{Process, STATUS_SOCKET_FILE_NAME};

/// A group that every Debian has, and its number.
const GROUP: (&str, &str) = ("users", "100");

/// Somebody without rights.
const USER: &str = "60123";

/// Exit code of `bulkhead`: not permitted.
const NOT_PERMITTED: i32 = 4;

/// Options of setpriv(1) for a member of the group, and for somebody who is none.
const MEMBER: [&str; 6] = ["--reuid", USER, "--regid", USER, "--groups", GROUP.1];
const MEMBER_BY_PRIMARY_GROUP: [&str; 5] = ["--reuid", USER, "--regid", GROUP.1, "--clear-groups"];
const NO_MEMBER: [&str; 5] = ["--reuid", USER, "--regid", USER, "--clear-groups"];

#[test]
fn members_of_the_group_read_the_status_and_nothing_else() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let options = BulkheadOptions {
        bulkhead_configuration: Map::from_iter([("statusGroup".to_owned(), json!(GROUP.0))]),
        ..BulkheadOptions::default()
    };
    let mut instance = BulkheadInstance::start(&containerd, &options)?;
    // So that there are last words, which are not for everybody.
    instance.kill(Process::SyncLoop)?;
    wait_for("its crash to be shown", Duration::from_secs(30), || {
        let status = instance.command_line_json(&["status"]);
        let status = status.map_err(|error| error.to_string())?;
        let words = last_words(&status);
        let is_well = status["ready"] == true && !words.is_empty();
        is_well.then_some(()).ok_or_else(|| status.to_string())
    })?;
    for member in [&MEMBER[..], &MEMBER_BY_PRIMARY_GROUP] {
        let output = bulkhead(&instance, member, &["status", "-o", "json"])?;
        let status: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        assert!(output.status.success(), "{member:?}: {output:?}");
        let ends = status["processes"].as_array().into_iter().flatten();
        let ends: Vec<&Value> = ends.map(|one| &one["lastEnding"]["reason"]).collect();
        assert!(ends.contains(&&json!("killed by SIGKILL")), "{status}");
        assert_eq!(last_words(&status), Vec::<&Value>::new());
        assert_ne!(status["leftOut"], json!([]), "{status}");
        for command in [
            &["crashes"][..],
            &["status", "--watch"],
            &["restart", "pleg"],
            &["pods"],
            &["events"],
            &["loop"],
        ] {
            let output = bulkhead(&instance, member, command)?;
            assert_eq!(
                output.status.code(),
                Some(NOT_PERMITTED),
                "{member:?} {command:?}: {output:?}"
            );
        }
    }
    assert_refused(&instance)?;
    // The server looks for itself, whatever the file's mode lets through.
    let socket = instance.paths().run.join(STATUS_SOCKET_FILE_NAME);
    let opened = || fs::set_permissions(&socket, Permissions::from_mode(0o666));
    instance.node().run(opened)??;
    assert_refused(&instance)?;
    Ok(())
}

fn assert_refused(instance: &BulkheadInstance) -> Result<()> {
    let output = bulkhead(instance, &NO_MEMBER, &["status"])?;
    assert_eq!(output.status.code(), Some(NOT_PERMITTED), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    Ok(())
}

/// Last log lines that a status shows.
fn last_words(status: &Value) -> Vec<&Value> {
    let processes = status["processes"].as_array().into_iter().flatten();
    let lines = processes.filter_map(|one| one["lastEnding"]["lastLogLines"].as_array());
    lines.flatten().collect()
}

/// The command line as somebody else.
fn bulkhead(instance: &BulkheadInstance, user: &[&str], arguments: &[&str]) -> Result<Output> {
    let mut command = instance.node().command("setpriv");
    command
        .args(user)
        .arg(instance.paths().bin.join("bulkhead"))
        .arg("--run-dir")
        .arg(&instance.paths().run)
        .args(arguments);
    let ran = instance.node().run(|| command.output())?;
    ran.context("setpriv")
}
