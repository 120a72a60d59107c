//! What the tests of the tree itself share: its files, its packages, and the
//! process table as the README shows it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use topology::{Caller, PROCESSES};

/// The top of the checkout.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust files of the workspace, relative to [`root`].
#[must_use]
pub fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for top in ["bins", "shared", "tests", "xtask"] {
        collect(&root().join(top), &mut files);
    }
    files.sort();
    files
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The workspace's packages as `cargo metadata` describes them.
///
/// # Panics
/// When cargo cannot be run: the tests cannot go on.
#[must_use]
pub fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("cargo metadata: {error}"));
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("cargo metadata printed no JSON: {error}"));
    metadata["packages"].as_array().cloned().unwrap_or_default()
}

/// The process table of the README, made from the topology.
#[must_use]
pub fn process_table() -> String {
    let mut table = String::from(
        "| process | job | runs as | capabilities | called by |\n|---|---|---|---|---|\n",
    );
    for row in PROCESSES {
        let capabilities: Vec<&str> = row
            .capabilities
            .iter()
            .map(|(capability, _)| capability.0.trim_start_matches("CAP_"))
            .collect();
        let mut callers: Vec<String> = Vec::new();
        for caller in row.services.iter().flat_map(|service| service.callers) {
            let name = match caller {
                Caller::Process(process) => format!("`{process}`"),
                Caller::Operator => "`bulkhead`".to_owned(),
            };
            if !callers.contains(&name) {
                callers.push(name);
            }
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} | {} |",
            row.process,
            row.job,
            row.user,
            if capabilities.is_empty() {
                "none".to_owned()
            } else {
                capabilities.join(", ")
            },
            callers.join(", "),
        );
    }
    table
}
