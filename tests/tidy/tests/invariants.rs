//! docs/invariants.md says what checks each promise. There must be that check.

use tidy::{has_test, read};

/// The promises.
const PROMISES: usize = 37;

/// Whose functions are called in each scenario of the simulation: rustc sees that none of
/// them is there for nothing.
const SIMULATION: [&str; 3] = [
    "tests/simulation/src/",
    "tests/simulated-node/src/",
    "tests/simulated-runtime/src/",
];

/// Whether a check is there: a function of the simulation, or a test.
fn is_there(check: &str) -> bool {
    let Some((file, name)) = check.split_once("::") else {
        return false;
    };
    let source = read(file);
    match SIMULATION.iter().any(|top| file.starts_with(top)) {
        true => ["(", "<"]
            .iter()
            .any(|after| source.contains(&format!("fn {name}{after}"))),
        false => has_test(&source, name),
    }
}

#[test]
fn each_promise_has_its_check() {
    let document = read("docs/invariants.md");
    let rows = document.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let &[_, number, _, checks, _] = cells.as_slice() else {
            return None;
        };
        Some((number.parse::<usize>().ok()?, checks))
    });
    let rows: Vec<(usize, &str)> = rows.collect();
    let numbers: Vec<usize> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=PROMISES).collect::<Vec<_>>());
    for (number, checks) in rows {
        let checks: Vec<&str> = checks.split('`').skip(1).step_by(2).collect();
        assert!(!checks.is_empty(), "{number}");
        for check in checks {
            assert!(is_there(check), "{number}: there is no {check}");
        }
    }
}

#[test]
fn a_check_that_is_not_there_is_found() {
    assert!(is_there("tests/simulation/src/orders.rs::begun_twice"));
    assert!(!is_there("tests/simulation/src/orders.rs::begun_thrice"));
    assert!(!is_there("tests/tidy/tests/invariants.rs::is_there"));
}
