//! What the tests of the tree itself share: its files, its packages, which files
//! need which others, and the process table as the README shows it.

pub mod modules;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use topology::{Caller, PROCESSES};

/// The top of the checkout.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Reads a file of the checkout.
///
/// # Panics
/// When it cannot be read: the tests cannot go on.
#[must_use]
pub fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Rust files of the workspace, relative to [`root`].
///
/// # Panics
/// When there are none: the rules about them would hold for nothing.
#[must_use]
pub fn rust_files() -> Vec<PathBuf> {
    let root = root();
    let mut files = Vec::new();
    for top in ["bins", "shared", "tests", "xtask"] {
        collect(&root.join(top), &mut files);
    }
    let mut files: Vec<PathBuf> = files
        .into_iter()
        .filter_map(|file| Some(file.strip_prefix(&root).ok()?.to_owned()))
        .collect();
    assert!(!files.is_empty(), "no files below {}", root.display());
    files.sort();
    files
}

/// Whether a file, relative to [`root`], holds nothing but tests. The packages
/// below `tests` are code like any other, but for what they have in `tests`
/// themselves.
#[must_use]
pub fn is_test(file: &Path) -> bool {
    file.components().skip(1).any(|part| {
        let name = part.as_os_str().to_string_lossy();
        name == "tests" || name == "tests.rs" || name.ends_with("_tests.rs")
    })
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

/// The names of all packages that a package of the workspace is linked with, those of
/// registries too, on this platform; neither those of its tests nor those of its build.
///
/// # Panics
/// When cargo cannot be run or knows no such package: a rule would hold for nothing.
#[must_use]
pub fn linked_of_all(name: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--package", name])
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("cargo tree: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree of {name}: {errors}");
    let lines = String::from_utf8_lossy(&output.stdout);
    let names = lines.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

/// The names of the workspace's packages that a package is linked with, over any
/// number of others; neither those of its tests nor those of its build.
#[must_use]
pub fn linked(packages: &[Value], name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut unread = vec![name.to_owned()];
    while let Some(name) = unread.pop() {
        let package = packages.iter().find(|package| package["name"] == *name);
        let dependencies = package.and_then(|package| package["dependencies"].as_array());
        for dependency in dependencies.into_iter().flatten() {
            let is_ours = dependency["path"].is_string() && dependency["kind"].is_null();
            if let Some(name) = dependency["name"].as_str().filter(|_| is_ours)
                && found.insert(name.to_owned())
            {
                unread.push(name.to_owned());
            }
        }
    }
    found
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

/// Whether there is a test of this name.
#[must_use]
pub fn has_test(source: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let mut attributes = Vec::new();
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
        } else if line.contains(&head) {
            return attributes.iter().any(|attribute| {
                attribute.starts_with("#[test]") || attribute.starts_with("#[tokio::test")
            });
        } else {
            attributes.clear();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_packages_below_tests_are_code_and_what_they_test_is_not() {
        for (file, expected) in [
            ("bins/pleg/src/shell.rs", false),
            ("bins/pleg/src/shell/tests.rs", true),
            ("bins/pleg/src/shell/tests/fakes.rs", true),
            ("bins/pleg/tests/over_the_wire.rs", true),
            ("tests/support/src/wait.rs", false),
            ("tests/e2e/src/bin/hold_node.rs", false),
            ("tests/e2e/tests/kills.rs", true),
            ("tests/simulated-runtime/src/runtime/tests.rs", true),
            ("xtask/src/main.rs", false),
        ] {
            assert_eq!(is_test(Path::new(file)), expected, "{file}");
        }
    }

    #[test]
    fn what_is_linked_over_another_package_is_found() {
        let ours = |name: &str, kind: Option<&str>| json!({ "name": name, "kind": kind, "path": format!("/{name}") });
        let theirs = json!({ "name": "tokio", "kind": null });
        let packages = [
            json!({ "name": "a", "dependencies": [ours("b", None), ours("e", Some("dev")), theirs] }),
            json!({ "name": "b", "dependencies": [ours("c", None), ours("a", None)] }),
            json!({ "name": "c", "dependencies": [ours("d", Some("build"))] }),
        ];
        let linked = |name| Vec::from_iter(linked(&packages, name));
        assert_eq!(linked("a"), ["a", "b", "c"]);
        assert_eq!(linked("c"), [""; 0]);
    }

    #[test]
    fn a_name_alone_is_no_test() {
        let source =
            "#[test]\nfn one() {}\n\nfn two() {}\n#[tokio::test(a = true)]\nasync fn three() {}";
        let found = ["one", "two", "three", "four"].map(|name| has_test(source, name));
        assert_eq!(found, [true, false, true, false]);
    }
}
