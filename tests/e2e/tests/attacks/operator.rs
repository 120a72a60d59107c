//! Each process that the command line asks, as a malicious server of it: a program in its
//! place answers in every manner of [`MANNERS`], and the others as on an empty node. Each
//! command ends in time with an exit code that is documented, takes little memory, and
//! prints nothing that steers a terminal.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bulkhead_api::v1;
use e2e::hostile_answers::{MANNERS, Manner, Orders, RunningPod};
use e2e::hostile_service::{Duty, attend, attend_honestly};
use serde_json::json;
use test_support::binaries;
use tokio::sync::watch;
use topology::Process;

/// How long a command may take: three answers in a row of 10 s each, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much memory a command may take.
const MOST_MEMORY_KIB: u64 = 128 << 10;

/// What is looked at of what a command prints.
const MOST_LOOKED_AT: u64 = 1 << 20;

/// Most bytes that a command may tell beside its answer.
const MOST_NOTED: usize = 64 << 10;

/// Commands that run at once.
const AT_ONCE: usize = 4;

/// The processes that the command line asks.
const ASKED: [Process; 4] = [
    Process::Supervisor,
    Process::StatusSyncer,
    Process::SyncLoop,
    Process::PodWorkerPool,
];

/// A command, and what it does with what it is told.
struct Case {
    words: &'static [&'static str],
    /// Whether it has no answer without the hostile process.
    depends: bool,
    /// Whether it prints bytes as they are, as it promises where no terminal is.
    is_raw: bool,
}

const fn asks(words: &'static [&'static str]) -> Case {
    Case {
        words,
        depends: true,
        is_raw: false,
    }
}

const fn raw(words: &'static [&'static str]) -> Case {
    Case {
        is_raw: true,
        ..asks(words)
    }
}

/// Answers all the same.
const fn has_more(words: &'static [&'static str]) -> Case {
    Case {
        depends: false,
        ..asks(words)
    }
}

const OF_STATUS_SYNCER: &[Case] = &[
    asks(&["pods"]),
    asks(&["pods", "-o", "wide"]),
    asks(&["pods", "-o", "name"]),
    raw(&["pods", "-o", "json"]),
    raw(&["pods", "-o", "yaml"]),
    asks(&["describe", "one"]),
    asks(&["timeline", "one"]),
    asks(&["timeline", "--svg", "one"]),
    asks(&["logs", "one"]),
    asks(&["events"]),
    asks(&["events", "one"]),
    raw(&["events", "-o", "json"]),
];

const OF_SYNC_LOOP: &[Case] = &[
    asks(&["loop"]),
    raw(&["loop", "-o", "json"]),
    has_more(&["pods"]),
    has_more(&["describe", "one"]),
];

const OF_POOL: &[Case] = &[
    raw(&["logs", "one"]),
    raw(&["logs", "--all-containers", "one"]),
    asks(&["top", "--once"]),
    has_more(&["policy", "show"]),
];

const OF_SUPERVISOR: &[Case] = &[
    asks(&["status"]),
    raw(&["status", "-o", "json"]),
    asks(&["crashes"]),
    raw(&["crashes", "-o", "json"]),
    asks(&["restart", "pleg"]),
    asks(&["reload"]),
    asks(&["top", "--once"]),
];

/// The exit codes that a command may have which has no other answer; none is told of how the
/// hostile one ended the call in words of its own.
fn codes(manner: Manner, is_list: bool) -> &'static [i32] {
    match manner {
        // A status in which not all are ready is an answer too.
        Manner::OfOthers | Manner::AtTheBound => &[0, 1],
        Manner::Endless | Manner::Unfinished if is_list => &[1],
        Manner::BeyondTheBound | Manner::Malformed => &[1],
        Manner::Endless | Manner::Unfinished => &[1, 3],
        Manner::Resets | Manner::Silent | Manner::NoHttp => &[3],
    }
}

/// A run directory whose processes are played by this program.
struct Stage {
    directory: tempfile::TempDir,
    /// Where it is gone, the players go.
    goes_on: watch::Sender<()>,
    players: Vec<JoinHandle<Result<()>>>,
    duty: Duty,
}

impl Stage {
    fn set(hostile: Process, manner: Manner) -> Result<Stage> {
        let running = |name: &str| RunningPod {
            reference: v1::PodReference {
                uid: format!("uid-{name}"),
                namespace: "default".to_owned(),
                name: name.to_owned(),
            },
            container_id: format!("container-{name}"),
        };
        let mut stage = Stage {
            directory: tempfile::tempdir()?,
            goes_on: watch::Sender::new(()),
            players: Vec::new(),
            duty: Duty::new(Orders {
                manner,
                pods: vec![running("one"), running("two")],
            }),
        };
        for process in ASKED {
            let path = stage.directory.path().join(process.socket_file_name());
            let socket = UnixListener::bind(path)?;
            let duty = (process == hostile).then(|| stage.duty.clone());
            let goes_on = stage.goes_on.subscribe();
            stage
                .players
                .push(thread::spawn(move || play(socket, duty, goes_on)));
        }
        Ok(stage)
    }

    /// Lets the players go.
    fn clear(self) -> Result<()> {
        drop(self.goes_on);
        for player in self.players {
            let ended = player.join();
            ended.map_err(|_| anyhow::anyhow!("a player failed"))??;
        }
        Ok(())
    }
}

/// Answers as it is told, or honestly.
fn play(socket: UnixListener, duty: Option<Duty>, mut goes_on: watch::Receiver<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let honest = Arc::new(vec![honest_pod()]);
    runtime.block_on(async {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::UnixListener::from_std(socket)?;
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                _ = goes_on.changed() => return Ok(()),
            };
            let (stream, _) = accepted?;
            match duty.clone() {
                Some(duty) => drop(tokio::spawn(attend(stream, duty))),
                None => drop(tokio::spawn(attend_honestly(stream, Arc::clone(&honest)))),
            }
        }
    })
}

fn honest_pod() -> v1::PodStatusEntry {
    // So many that a wait for the log of each would take too long.
    let names = (0..10).map(|number| json!({ "name": format!("app-{number}") }));
    let pod = json!({
        "metadata": { "uid": "uid-one", "namespace": "default", "name": "one" },
        "spec": { "containers": names.collect::<Vec<_>>() },
        "status": { "phase": "Running" },
    });
    v1::PodStatusEntry {
        pod: Some(v1::Pod {
            json: pod.to_string().into_bytes(),
            ..v1::Pod::default()
        }),
        ..v1::PodStatusEntry::default()
    }
}

/// What became of a command.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    signal: Option<i32>,
    took: Duration,
    memory_kib: u64,
    printed: u64,
    /// The beginning of it.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Outcome {
    fn of(run_dir: &Path, words: &[&str]) -> Result<Outcome> {
        let begin = Instant::now();
        // Many of them compute at once: they are not to hold up the processes of other tests.
        let mut child = Command::new("nice")
            .args(["-n", "5"])
            .arg(binaries::built()?.join("bulkhead"))
            .arg("--run-dir")
            .arg(run_dir)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let stderr = child.stderr.take().context("no output")?;
        let (stdout, stderr) = (
            thread::spawn(move || drain(stdout)),
            thread::spawn(move || drain(stderr)),
        );
        let mut memory_kib = 0;
        let ended = loop {
            if let Some(ended) = child.try_wait()? {
                break ended;
            }
            memory_kib = most_memory_kib(&child).unwrap_or(0).max(memory_kib);
            if begin.elapsed() > PATIENCE || memory_kib > 4 * MOST_MEMORY_KIB {
                child.kill()?;
            }
            thread::park_timeout(Duration::from_millis(5));
        };
        let took = begin.elapsed();
        let read = |reader: JoinHandle<(Vec<u8>, u64)>| {
            let read = reader.join();
            read.map_err(|_| anyhow::anyhow!("a reader failed"))
        };
        let ((stdout, printed), (stderr, _)) = (read(stdout)?, read(stderr)?);
        Ok(Outcome {
            code: ended.code(),
            signal: ended.signal(),
            took,
            memory_kib,
            printed,
            stdout,
            stderr,
        })
    }
}

/// The beginning of what is printed, and how much it is.
fn drain(mut stream: impl Read) -> (Vec<u8>, u64) {
    let mut begin = Vec::new();
    let kept = (&mut stream).take(MOST_LOOKED_AT).read_to_end(&mut begin);
    let more = std::io::copy(&mut stream, &mut std::io::sink());
    let kept = u64::try_from(kept.unwrap_or(0)).unwrap_or(u64::MAX);
    (begin, kept.saturating_add(more.unwrap_or(0)))
}

/// The most memory that the command has had, as the kernel tells. Nothing before the kernel
/// has named it after its program: until then its memory is still that of this process, which
/// it shares from its start until its `execve` is done.
fn most_memory_kib(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    if !status.starts_with("Name:\tbulkhead\n") {
        return None;
    }
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Whether a terminal would act on it, or show it as something else.
fn steers(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.chars()
        .any(|it| (it.is_control() && it != '\n') || it == '\u{202e}')
}

fn judge(case: &Case, manner: Manner, outcome: &Outcome) -> Result<()> {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.took < PATIENCE, "it does not end");
    ensure!(
        (1..MOST_MEMORY_KIB).contains(&outcome.memory_kib),
        "it takes {} KiB",
        outcome.memory_kib
    );
    ensure!(outcome.signal.is_none(), "it is ended");
    let code = outcome.code.context("no code")?;
    let is_list = !matches!(
        case.words[0],
        "status" | "crashes" | "restart" | "reload" | "top" | "loop" | "logs"
    );
    let expected = match case.depends {
        true => codes(manner, is_list),
        false => &[0, 1, 3],
    };
    ensure!(expected.contains(&code), "exit code {code}");
    ensure!(
        outcome.printed > 0 || stderr.starts_with("bulkhead: ") || case.words[0] == "logs",
        "it says nothing"
    );
    ensure!(
        [0, 1].contains(&code) || stderr.starts_with("bulkhead: "),
        "it does not say why it failed"
    );
    ensure!(outcome.stderr.len() < MOST_NOTED, "it notes too much");
    ensure!(!steers(&outcome.stderr), "its notes steer a terminal");
    ensure!(
        case.is_raw || !steers(&outcome.stdout),
        "what it prints steers a terminal"
    );
    Ok(())
}

fn begin_of(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().take(2_000).collect()
}

/// Runs each command while this process lies in each manner.
fn survive(hostile: Process, cases: &[Case]) -> Result<()> {
    binaries::built()?;
    let mut faults = Vec::new();
    for (manner, name) in MANNERS {
        let stage = Stage::set(hostile, manner)?;
        let run_dir = stage.directory.path();
        for cases in cases.chunks(AT_ONCE) {
            let outcomes: Vec<_> = thread::scope(|scope| {
                let run = |case: &Case| {
                    let words = case.words;
                    scope.spawn(move || Outcome::of(run_dir, words))
                };
                let running: Vec<_> = cases.iter().map(run).collect();
                running
                    .into_iter()
                    .map(thread::ScopedJoinHandle::join)
                    .collect()
            });
            for (case, outcome) in cases.iter().zip(outcomes) {
                let outcome = outcome.map_err(|_| anyhow::anyhow!("it was not run"))??;
                let words = case.words.join(" ");
                let told = format!(
                    "{name}: {words}: {:?} after {:.1} s, {} KiB, {} bytes",
                    outcome.code,
                    outcome.took.as_secs_f64(),
                    outcome.memory_kib,
                    outcome.printed
                );
                if let Err(fault) = judge(case, manner, &outcome) {
                    let (stdout, stderr) = (begin_of(&outcome.stdout), begin_of(&outcome.stderr));
                    faults.push(format!("{told}: {fault}: {stderr:?} {stdout:?}"));
                }
            }
        }
        let calls = stage.duty.counts.calls();
        let asked = u64::try_from(cases.len())?;
        ensure!(calls >= asked, "{name}: {calls} calls of {asked} commands");
        stage.clear()?;
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn the_operator_outlives_a_hostile_status_syncer() -> Result<()> {
    survive(Process::StatusSyncer, OF_STATUS_SYNCER)
}

#[test]
fn the_operator_outlives_a_hostile_sync_loop() -> Result<()> {
    survive(Process::SyncLoop, OF_SYNC_LOOP)
}

#[test]
fn the_operator_outlives_a_hostile_pool() -> Result<()> {
    survive(Process::PodWorkerPool, OF_POOL)
}

#[test]
fn the_operator_outlives_a_hostile_supervisor() -> Result<()> {
    survive(Process::Supervisor, OF_SUPERVISOR)
}
