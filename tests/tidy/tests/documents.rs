//! What the documents for operators say about the code must be all of it: flags,
//! fields, capabilities. They are read from the sources, so that this
//! needs no other package to be built.

use std::path::Path;

use tidy::{is_test, read, rust_files};
use topology::{Caller, PROCESSES, ProcessRow};

/// The names that follow `opening` in quotation marks, with any space between.
fn quoted_after<'a>(text: &'a str, opening: &str) -> Vec<&'a str> {
    text.split(opening)
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix('"'))
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

/// The part of a document below a heading, up to the next heading.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, rest) = document
        .split_once(&format!("{heading}\n"))
        .unwrap_or_else(|| panic!("there is no heading {heading:?}"));
    rest.split("\n#").next().unwrap_or_default()
}

fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_alphanumeric())
}

#[test]
fn every_flag_of_the_supervisor_is_documented() {
    let flags = read("bins/supervisor/src/flags.rs");
    let operating = read("docs/operating.md");
    let fields: Vec<&str> = flags
        .lines()
        .filter_map(|line| line.strip_prefix("    pub ")?.split_once(": "))
        .map(|(name, _type)| name)
        .collect();
    assert!(fields.len() > 10, "{fields:?}");
    for field in fields {
        let flag = format!("| `--{}` |", field.replace('_', "-"));
        assert!(operating.contains(&flag), "docs/operating.md: {flag}");
    }
}

#[test]
fn every_field_of_a_kubelet_configuration_is_in_its_list() {
    let fields = read("shared/config-files/src/kubelet/fields.rs");
    let operating = read("docs/operating.md");
    for (call, heading) in [
        ("applied(", "#### Applied"),
        ("ignored(", "#### Not applied, with a warning"),
    ] {
        let section = section(&operating, heading);
        let names = quoted_after(&fields, call);
        assert!(names.len() > 20, "{call}: {names:?}");
        for name in names {
            assert!(
                section.contains(&format!("`{name}`")),
                "docs/operating.md, {heading}: {name} is missing"
            );
        }
    }
}

#[test]
fn every_command_of_the_command_line_is_shown() {
    let arguments = read("bins/bulkhead/src/arguments.rs");
    let commands = arguments.split("pub(crate) enum Command {").nth(1).unwrap();
    let commands = commands.split("\n}").next().unwrap();
    let operating = read("docs/operating.md");
    let names: Vec<&str> = commands
        .lines()
        .filter(|line| !line.trim().starts_with('#'))
        .filter_map(|line| line.trim().split_once('('))
        .map(|(name, _options)| name)
        .collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names {
        let example = format!("\nbulkhead {}", name.to_lowercase());
        assert!(operating.contains(&example), "docs/operating.md:{example}");
    }
}

#[test]
fn every_field_that_refuses_a_pod_is_documented() {
    let compatibility = read("docs/compatibility.md");
    let support = Path::new("shared/pod-validation/src/support");
    let all = rust_files();
    let sources = all.iter().filter(|file| {
        let is_ours = file.starts_with(support) || **file == support.with_extension("rs");
        is_ours && !is_test(file)
    });
    let mut count = 0;
    for file in sources {
        let source = read(file);
        for name in quoted_after(&source, "(") {
            if is_identifier(name) {
                count += 1;
                assert!(
                    compatibility.contains(&format!("`{name}`")),
                    "docs/compatibility.md: {name}, of {}",
                    file.display()
                );
            }
        }
    }
    assert!(count > 80, "only {count} fields were found");
}

#[test]
fn places_are_those_of_the_topology() {
    let isolation = read("docs/isolation.md");
    let table = section(&isolation, "## What each process opens");
    let lines = table.lines().filter(|line| line.starts_with("| "));
    let told: Vec<&str> = lines.skip(1).collect();
    let row = |process: &ProcessRow| -> Vec<String> {
        let process_name = process.process;
        let opens = process.opens.iter();
        opens
            .map(|opened| {
                let (place, access) = (opened.place.name(), opened.access.name());
                format!(
                    "| {process_name} | {place} | {access} | {} |",
                    opened.reason
                )
            })
            .collect()
    };
    let listed: Vec<String> = PROCESSES.iter().flat_map(row).collect();
    assert_eq!(told, listed, "docs/isolation.md");
}

#[test]
fn needs_are_those_of_the_topology() {
    let isolation = read("docs/isolation.md");
    let table = section(&isolation, "## Files and system calls");
    let lines = table.lines().filter(|line| line.starts_with("| "));
    let told: Vec<&str> = lines.skip(1).collect();
    let row = |row: &ProcessRow| -> Vec<String> {
        let needs = row.needs.iter();
        needs
            .map(|(need, reason)| format!("| {} | {} | {reason} |", row.process, need.name()))
            .collect()
    };
    let listed: Vec<String> = PROCESSES.iter().flat_map(row).collect();
    assert_eq!(told, listed, "docs/isolation.md");
}

#[test]
fn namespaces_are_those_of_the_topology() {
    let isolation = read("docs/isolation.md");
    let table = section(&isolation, "## Namespaces");
    let lines = table.lines().filter(|line| line.starts_with("| "));
    let told: Vec<&str> = lines.skip(1).collect();
    let row = |row: &ProcessRow| {
        let names: Vec<_> = row.namespaces.iter().map(|kind| kind.name()).collect();
        format!("| {} | {} |", row.process, names.join(", "))
    };
    let listed = PROCESSES.iter().filter(|row| !row.namespaces.is_empty());
    let listed: Vec<String> = listed.map(row).collect();
    assert_eq!(told, listed, "docs/isolation.md");
}

#[test]
fn limits_are_those_of_the_topology() {
    let isolation = read("docs/isolation.md");
    let table = section(&isolation, "## Cgroups");
    let lines = table.lines().filter(|line| line.starts_with("| "));
    let told: Vec<&str> = lines.skip(1).collect();
    let row = |row: &ProcessRow| {
        format!(
            "| {} | {} MiB | {} | {} | {} | {} |",
            row.process,
            row.memory_max_bytes >> 20,
            row.tasks_max,
            row.cpu_weight,
            row.io_weight,
            row.oom_score_adj
        )
    };
    let listed: Vec<String> = PROCESSES.iter().map(row).collect();
    assert_eq!(told, listed, "docs/isolation.md");
}

#[test]
fn capabilities_and_services_are_those_of_the_topology() {
    let isolation = read("docs/isolation.md");
    let capabilities = section(&isolation, "## Users and capabilities");
    let rows = |text: &str, what: &str| text.lines().filter(|line| line.contains(what)).count();
    let mut expected = 0;
    for process in PROCESSES {
        for (capability, reason) in process.capabilities {
            expected += 1;
            let row = format!("| {} | {reason} |", capability.0);
            assert!(capabilities.contains(&row), "docs/isolation.md: {row}");
        }
    }
    assert_eq!(rows(capabilities, "| CAP_"), expected);

    let budgets = section(&isolation, "### Budgets");
    let calls = section(&isolation, "## Who may call whom");
    for service in PROCESSES.iter().flat_map(|process| process.services) {
        let name = service.service.rsplit('.').next().unwrap();
        let row = calls
            .lines()
            .find(|line| {
                let cell = line.split('|').nth(2).unwrap_or_default().trim();
                cell.split(':').next() == Some(name)
            })
            .unwrap_or_else(|| panic!("docs/isolation.md does not name the service {name}"));
        let callers: Vec<String> = service
            .callers
            .iter()
            .map(|caller| match caller {
                Caller::Process(process) => process.to_string(),
                Caller::Operator => "bulkhead".to_owned(),
            })
            .collect();
        assert!(
            row.ends_with(&format!("| {} |", callers.join(", "))),
            "{row}"
        );
        let budget = service.budget;
        let (at_once, a_second) = (budget.at_once, budget.a_second);
        let row = format!("| {name} | {at_once} | {a_second} | {} |", budget.reason);
        assert!(budgets.contains(&row), "docs/isolation.md: {row}");
    }
}
