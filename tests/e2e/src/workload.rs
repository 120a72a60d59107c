//! Containers that keep a journal on the node: how often they really started and when
//! they ended.

use serde_json::{Value, json};
use test_support::images;

/// Where a container finds the directory of journals that it shares with the node.
pub const JOURNALS: &str = "/journals";

/// A container that is the test program with these words and journals as
/// `journal_name`.
#[must_use]
pub fn container(name: &str, journal_name: &str, words: &[&str]) -> Value {
    let file = format!("{JOURNALS}/journal");
    let mut arguments = vec!["--journal", &*file, "--name", journal_name];
    arguments.extend(words);
    with_journals(json!({"name": name, "image": images::TESTAPP, "args": arguments}))
}

/// The names as which the containers of a pod journal that are the test program.
pub(crate) fn journal_names(pod: &Value) -> impl Iterator<Item = &str> {
    let containers = pod["spec"]["containers"].as_array();
    containers.into_iter().flatten().filter_map(|container| {
        let mut arguments = container["args"].as_array()?.iter().map(Value::as_str);
        arguments.find(|argument| *argument == Some("--journal"))?;
        arguments.find(|argument| *argument == Some("--name"))?;
        arguments.next()?
    })
}

/// A container that runs a script, with the journals at [`JOURNALS`].
#[must_use]
pub fn script(name: &str, script: &str) -> Value {
    let command = ["sh", "-c", script];
    with_journals(json!({"name": name, "image": images::BUSYBOX, "command": command}))
}

fn with_journals(mut container: Value) -> Value {
    container["volumeMounts"] = json!([{"name": "journals", "mountPath": JOURNALS}]);
    container
}
