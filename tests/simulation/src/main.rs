//! Plays many scenarios on all processors: `cargo xtask sim` builds and calls it.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use simulated_runtime::Mishap;
use simulation::Case;

/// A scenario makes and drops millions of small things.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Plays scenarios on a simulated node.
#[derive(Parser)]
#[command(name = "cargo xtask sim")]
struct Arguments {
    /// Scenarios to play
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    seeds: u64,
    /// The first seed (default: a new one each time)
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// Threads, each with a node of its own (default: eight for each processor)
    #[arg(long, value_name = "NUMBER")]
    threads: Option<usize>,
    /// Play each scenario twice: the same has to happen
    #[arg(long)]
    twice: bool,
    /// Instead: one and two pods of as many seeds, for which each call to the runtime, each
    /// change of the node and each file that is saved or read fails, loses its answer, hangs,
    /// or has its caller killed before or after its effect
    #[arg(long)]
    exhaustive: bool,
    /// End with the first one that fails
    #[arg(long)]
    until_failure: bool,
    /// Of what happens in a scenario, only what has these numbers
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    steps: Option<Vec<u32>>,
    /// Show all that happens
    #[arg(long)]
    show: bool,
    /// Have the processes log as they do on a node: BULKHEAD_LOG says how much
    #[arg(long)]
    log: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.log {
        telemetry::start();
    }
    let first = arguments
        .from
        .unwrap_or_else(|| rand::random_range(0..1 << 32));
    let next = AtomicU64::new(first);
    let end = first + arguments.seeds;
    let played = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let processors = std::thread::available_parallelism()?.get();
    let began = Instant::now();
    std::thread::scope(|scope| {
        // A node often waits for the kernel, which takes 10 ms and more to close an inotify.
        for _ in 0..arguments.threads.unwrap_or(8 * processors) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let ended = match arguments.exhaustive {
                        true => play_all_cases(seed, &played),
                        false => {
                            played.fetch_add(1, Ordering::Relaxed);
                            play(seed, &arguments)
                        }
                    };
                    if let Err(error) = ended {
                        say(&format!("{error}\n"));
                        failures.lock().expect("no thread panics").push(seed);
                        if arguments.until_failure {
                            next.store(end, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let failures = failures.into_inner()?;
    say(&format!(
        "{} scenarios from seed {first}: {} failed, {:.1} a second",
        played.load(Ordering::Relaxed),
        failures.len(),
        played.load(Ordering::Relaxed) as f64 / seconds
    ));
    Ok(match failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Plays all cases of a seed: each kind of mishap for each effect, until there are fewer.
fn play_all_cases(seed: u64, played: &AtomicU64) -> Result<(), String> {
    let mut problems = Vec::new();
    for (pods, mishap) in [1, 2]
        .into_iter()
        .flat_map(|pods| Mishap::ALL.map(|it| (pods, it)))
    {
        for before in 0.. {
            let case = Case {
                seed,
                pods,
                before,
                mishap,
            };
            played.fetch_add(1, Ordering::Relaxed);
            match simulation::play_case(case) {
                Ok(true) => {}
                Ok(false) => break,
                Err(problem) => problems.push(problem),
            }
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.join("\n\n")),
    }
}

/// Plays the scenario of a seed.
fn play(seed: u64, arguments: &Arguments) -> Result<(), String> {
    let play = || match &arguments.steps {
        Some(steps) => simulation::run_steps(seed, &steps.iter().copied().collect()),
        None => simulation::run(seed),
    };
    let played = play();
    if arguments.show {
        say(&played.story);
    }
    if arguments.twice && play() != played {
        return Err(format!(
            "seed {seed}: something else happened the second time"
        ));
    }
    match &played.problem {
        None => Ok(()),
        Some(problem) if arguments.steps.is_some() => Err(format!("seed {seed}: {problem}")),
        Some(_) => Err(simulation::shrink(seed, played).report(seed)),
    }
}

/// Writes a line; who does not read on has read enough.
fn say(text: &str) {
    drop(writeln!(std::io::stdout(), "{text}"));
}
