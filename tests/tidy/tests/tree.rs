//! Rules about the tree that no compiler checks: layering, lints, file sizes,
//! and documents that must agree with the code.
#![expect(clippy::unwrap_used, reason = "a failing unwrap fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidy::{is_test, linked, linked_of_all, packages, process_table, read, root, rust_files};

/// Lines of code in a file; more usually means two topics.
const MAX_LINES: usize = 600;

/// The names of the packages below `bins`.
fn processes(packages: &[Value]) -> BTreeSet<&str> {
    let bins = root().join("bins");
    let below = |package: &&Value| {
        let path = package["manifest_path"].as_str();
        path.is_some_and(|path| Path::new(path).starts_with(&bins))
    };
    let found: BTreeSet<&str> = packages
        .iter()
        .filter(below)
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    for process in topology::Process::ALL {
        assert!(found.contains(process.name()), "{process} of {found:?}");
    }
    found
}

#[test]
fn only_the_pod_worker_pool_links_the_container_runtime() {
    let packages = packages();
    for name in processes(&packages) {
        let links = linked(&packages, name).contains("cri");
        assert_eq!(links, name == "pod-worker-pool", "{name}");
    }
}

#[test]
fn the_pod_worker_pool_links_no_parser_of_what_strangers_write() {
    // The names are right.
    assert!(linked_of_all("config-sourcer").contains("granit-parser"));
    assert!(linked_of_all("supervisor").contains("granit-parser"));
    let of_pool = linked_of_all("pod-worker-pool");
    assert!(of_pool.contains("pod-validation"), "{of_pool:?}");
    for parser in [
        "granit-parser",
        "serde-saphyr",
        "serde_yaml",
        "documents",
        "pod-manifest",
        "manifest-files",
    ] {
        assert!(!of_pool.contains(parser), "pod-worker-pool links {parser}");
    }
}

#[test]
fn no_process_links_another_one() {
    let packages = packages();
    let processes = processes(&packages);
    for name in &processes {
        for other in linked(&packages, name) {
            assert!(!processes.contains(&*other), "{name} links {other}");
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
    // Put together, so that these lines are not found.
    let words = [
        concat!("unsafe", " {"),
        concat!("unsafe", " fn"),
        concat!("unsafe", " impl"),
        concat!("unsafe", " extern"),
        concat!("(unsafe", "_code"),
    ];
    for file in rust_files() {
        let text = read(&file);
        for word in words {
            // Beside it what tests attempt, that no library offers.
            let confined = file.starts_with("shared/confine")
                || file == Path::new("tests/confinement/src/raw_calls.rs");
            assert!(confined || !text.contains(word), "{}", file.display());
        }
    }
}

#[test]
fn every_file_says_what_lives_in_it_and_holds_one_topic() {
    let mut faults = Vec::new();
    for file in rust_files() {
        let text = read(&file);
        let shown = file.display();
        if !text.starts_with("//!") {
            faults.push(format!("{shown} has no header"));
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = code.lines().count();
        if !is_test(&file) && lines > MAX_LINES {
            faults.push(format!("{shown} has {lines} lines: split it"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_main_fits_on_a_screen() {
    let files = rust_files();
    let mains = files.iter().filter(|file| {
        let is_main = file.ends_with("src/main.rs");
        is_main && file.starts_with("bins")
    });
    let mut count = 0;
    for file in mains {
        count += 1;
        let lines = read(file).lines().count();
        assert!(lines <= 60, "{} has {lines} lines", file.display());
    }
    assert!(
        count >= topology::PROCESSES.len(),
        "only {count} were found"
    );
}

/// A program is linked once more for its tests, so those without any say so. Nobody
/// notices a test in such a file: it is never run.
#[test]
fn a_program_whose_tests_are_not_run_has_none() {
    let test = concat!("#[", "test]");
    let mut count = 0;
    for package in packages() {
        let targets = package["targets"].as_array().unwrap().clone();
        for target in targets.iter().filter(|it| it["kind"][0] == "bin") {
            let main = Path::new(target["src_path"].as_str().unwrap());
            if target["test"] == true || !main.starts_with(root()) {
                continue;
            }
            count += 1;
            let below = |file: &&PathBuf| match main.file_name() {
                Some(name) if name == "main.rs" && !main.ends_with("src/main.rs") => {
                    root().join(file).starts_with(main.parent().unwrap())
                }
                _ => root().join(file) == main,
            };
            for file in rust_files().iter().filter(below) {
                assert!(!read(file).contains(test), "{}", file.display());
            }
        }
    }
    assert!(
        count >= topology::PROCESSES.len(),
        "only {count} were found"
    );
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
        let text = read(&file);
        for word in words {
            assert!(!text.contains(word), "{} contains {word}", file.display());
        }
    }
}

#[test]
fn the_readme_shows_the_topology() {
    let readme = read("README.md");
    let table = process_table();
    assert!(
        readme.contains(&table),
        "the README's process table should be:\n{table}"
    );
}

#[test]
fn ci_runs_the_command_that_the_readme_gives() {
    let ci = read(".ci/run");
    let readme = read("README.md");
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
    let text = read("systemd/sysusers.d/bulkhead.conf");
    let made: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("u ")?.split_once(' '))
        .map(|(user, rest)| (user, rest.split(' ').next().unwrap()))
        .collect();
    let rows = topology::PROCESSES.iter().filter(|row| !row.root);
    let wanted: Vec<(&str, String)> = rows
        .map(|row| (row.user, row.static_id.to_string()))
        .collect();
    let wanted: Vec<(&str, &str)> = wanted.iter().map(|(user, id)| (*user, &**id)).collect();
    assert_eq!(made, wanted);
}

#[test]
fn the_numbers_that_operators_read_are_those_of_the_users() {
    let document = read("docs/operating.md");
    let based = topology::Identities::from_base(60_000).unwrap();
    for row in topology::PROCESSES.iter().filter(|row| !row.root) {
        let above_base = based.uid(row.process) - 60_000;
        let told = format!("| `{}` | {} | N+{above_base} |\n", row.user, row.static_id);
        assert!(document.contains(&told), "{told}");
    }
}

#[test]
fn the_largest_pod_is_the_same_on_the_wire_and_in_the_pod_model() {
    assert_eq!(ipc::limits::MAX_POD_BYTES, pod::wire::MAX_POD_BYTES);
}
