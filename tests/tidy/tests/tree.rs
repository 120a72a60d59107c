//! Rules about the tree that no compiler checks: layering, lints, file sizes,
//! and documents that must agree with the code.
#![expect(clippy::unwrap_used, reason = "a failing unwrap fails the test")]

use std::path::Path;

use serde_json::Value;
use tidy::{packages, process_table, root, rust_files};

/// Lines of code in a file; more usually means two topics.
const MAX_LINES: usize = 700;

fn dependencies(package: &Value, kind: Option<&str>) -> Vec<String> {
    let listed = package["dependencies"].as_array().unwrap();
    let of_kind = listed
        .iter()
        .filter(|dependency| dependency["kind"].as_str() == kind);
    of_kind
        .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
        .collect()
}

fn is_process(package: &Value) -> bool {
    package["manifest_path"]
        .as_str()
        .unwrap()
        .contains("/bins/")
}

#[test]
fn only_the_pod_worker_pool_links_the_container_runtime() {
    for package in packages().iter().filter(|package| is_process(package)) {
        let name = package["name"].as_str().unwrap();
        let links = dependencies(package, None).contains(&"cri".to_owned());
        assert_eq!(links, name == "pod-worker-pool", "{name}");
    }
}

#[test]
fn no_process_links_another_one() {
    let packages = packages();
    let processes: Vec<&str> = packages
        .iter()
        .filter(|package| is_process(package))
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    for package in packages.iter().filter(|package| is_process(package)) {
        let name = package["name"].as_str().unwrap();
        for dependency in dependencies(package, None) {
            assert!(
                !processes.contains(&dependency.as_str()),
                "{name} links {dependency}"
            );
        }
    }
}

#[test]
fn every_package_inherits_lints_edition_and_dependencies() {
    for package in packages() {
        let path = package["manifest_path"].as_str().unwrap();
        let manifest = std::fs::read_to_string(path).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{path} inherits no lints"
        );
        assert!(
            manifest.contains("edition.workspace = true"),
            "{path} sets its own edition"
        );
        let mut in_dependencies = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                in_dependencies = line.ends_with("dependencies]");
            } else if in_dependencies && line.contains('=') {
                assert!(line.contains("workspace = true"), "{path}: {line}");
            }
        }
    }
}

#[test]
fn unsafe_code_is_in_the_confinement_crate_alone() {
    // Put together, so that this line is not found.
    let word = concat!("unsafe", " {");
    for file in rust_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let confined = file.starts_with(root().join("shared/confine"));
        assert!(confined || !text.contains(word), "{}", file.display());
    }
}

#[test]
fn every_file_says_what_lives_in_it_and_holds_one_topic() {
    for file in rust_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let shown = file.display();
        assert!(text.starts_with("//!"), "{shown} has no header");
        let is_test = file.components().any(|part| {
            let name = part.as_os_str().to_string_lossy();
            name == "tests" || name.starts_with("tests.") || name.ends_with("_tests.rs")
        });
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = code.lines().count();
        assert!(
            is_test || lines <= MAX_LINES,
            "{shown} has {lines} lines: split it"
        );
    }
}

#[test]
fn every_main_fits_on_a_screen() {
    for file in rust_files() {
        if file.ends_with("src/main.rs") && file.starts_with(root().join("bins")) {
            let lines = std::fs::read_to_string(&file).unwrap().lines().count();
            assert!(lines <= 60, "{} has {lines} lines", file.display());
        }
    }
}

#[test]
fn nothing_is_left_for_later() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("to", "do!("),
        "XX\x58",
    ];
    for file in rust_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in words {
            assert!(!text.contains(word), "{} contains {word}", file.display());
        }
    }
}

#[test]
fn the_readme_shows_the_topology() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let table = process_table();
    assert!(
        readme.contains(&table),
        "the README's process table should be:\n{table}"
    );
}

#[test]
fn ci_runs_the_command_that_the_readme_gives() {
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let command = "cargo xtask test";
    assert!(
        ci.lines().any(|line| line.trim().ends_with(command)),
        ".ci/run"
    );
    assert!(readme.contains(command), "README.md");
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut documents = vec![root().join("README.md")];
    let docs = std::fs::read_dir(root().join("docs")).unwrap();
    documents.extend(docs.map(|entry| entry.unwrap().path()));
    for document in documents
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
    {
        let text = std::fs::read_to_string(document).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let path = target.split('#').next().unwrap();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let found = document
                .parent()
                .unwrap_or(Path::new(""))
                .join(path)
                .exists();
            assert!(found, "{}: {target}", document.display());
        }
    }
}

#[test]
fn systemd_makes_exactly_the_users_of_the_topology() {
    let text = std::fs::read_to_string(root().join("systemd/sysusers.d/bulkhead.conf")).unwrap();
    let made: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("u "))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    let rows = topology::PROCESSES.iter().filter(|row| !row.root);
    let wanted: Vec<&str> = rows.map(|row| row.user).collect();
    assert_eq!(made, wanted);
}

#[test]
fn the_largest_pod_is_the_same_on_the_wire_and_in_the_pod_model() {
    assert_eq!(ipc::limits::MAX_POD_BYTES, pod::wire::MAX_POD_BYTES);
}
