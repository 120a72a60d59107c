//! Sixty scenarios, each from its seed, in halves that run side by side.
//! `BULKHEAD_SEED=N` runs one.

/// Scenarios in all.
const SEEDS: u64 = 60;

/// Runs the seeds that leave `remainder` when divided by two.
fn run(remainder: u64) {
    let only: Option<u64> = std::env::var("BULKHEAD_SEED")
        .ok()
        .map(|seed| seed.parse().expect("BULKHEAD_SEED is a number"));
    let seeds = match only {
        Some(seed) => vec![seed],
        None => (0..SEEDS).collect(),
    };
    let chosen = seeds.into_iter().filter(|seed| seed % 2 == remainder);
    let failures: Vec<String> = chosen
        .filter_map(|seed| {
            let played = simulation::run(seed);
            let has_failed = played.problem.is_some();
            has_failed.then(|| simulation::shrink(seed, played).report(seed))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} seeds failed:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// The even seeds have a runtime with an event stream.
#[test]
fn nodes_with_runtime_events_converge_and_no_container_is_started_twice() {
    run(0);
}

/// The odd ones have relisting alone.
#[test]
fn nodes_without_runtime_events_converge_and_no_container_is_started_twice() {
    run(1);
}
