//! `status`, `restart` and `reload` where systemd supervises the processes
//! (`bulkhead.target`): `systemctl` is asked in place of our supervisor. How a process ended is
//! in the journal.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command as Program, ExitCode, Stdio};
use std::time::Duration;

use bulkhead_api::v1;
use node_config::{NODE_CONFIG_FILE, NodeConfig};
use topology::{MACHINE_LACKS_FILE_NAME, Process};

use crate::api_server;
use crate::arguments::{Arguments, Command, StatusOptions};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{Output, beside_verdict};
use crate::status::{print, readiness};
use crate::systemd;

/// What starts and stops all processes.
const TARGET: &str = "bulkhead.target";

/// What reads the configuration for all processes.
const PREPARE: &str = "bulkhead-prepare.service";

/// Where its units have the sockets.
const RUN_DIRECTORY: &str = "/run/bulkhead";

/// Where the crashes of the processes are.
const JOURNAL: &str =
    "systemd supervises here, and its journal has the crashes: journalctl --unit='bulkhead-*'";

/// What to use in the place of `status --watch`.
const WATCH: &str = "systemd supervises here: watch bulkhead status";

/// Longest wait for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Longest wait until services have stopped and are ready again; systemd has limits of its
/// own for each step.
const JOB_WAIT: Duration = Duration::from_secs(120);

/// What systemctl says of a job that it has begun with and that failed.
const OF_JOB: &str = "Job for ";

/// With these timeout(1) says that it has ended the program.
const TIMED_OUT: [Option<i32>; 3] = [Some(124), Some(137), None];

/// The answer of systemd to a command that our supervisor would have answered; none where
/// it is not for systemd to answer.
pub(crate) async fn answer(
    arguments: &Arguments,
    connection: &Connection,
    output: Output,
) -> Option<Result<ExitCode, Failure>> {
    let is_for_supervisor = matches!(
        arguments.command,
        Command::Status(_) | Command::Restart(_) | Command::Reload | Command::Crashes(_)
    );
    if !is_for_supervisor || !is_supervised_by_systemd(&arguments.run_dir) {
        return None;
    }
    Some(match &arguments.command {
        Command::Status(options) if options.watch => Err(Failure::NotFound(WATCH.to_owned())),
        Command::Status(options) => status(options, connection, output).await,
        Command::Restart(options) => restart(&options.process, output),
        Command::Reload => reload(output),
        Command::Crashes(_) => Err(Failure::NotFound(JOURNAL.to_owned())),
        _ => return None,
    })
}

/// Whether systemd supervises the processes of this run directory.
fn is_supervised_by_systemd(run_dir: &Path) -> bool {
    let socket = run_dir.join(Process::Supervisor.socket_file_name());
    // The socket of a supervisor that has stopped is still there. Where systemd is not what
    // booted the machine, nobody is asked (sd_booted(3)).
    run_dir == Path::new(RUN_DIRECTORY)
        && UnixStream::connect(socket).is_err()
        && Path::new("/run/systemd/system").exists()
        && is_up()
}

/// Whether the bundle runs, or comes up.
fn is_up() -> bool {
    let words = ["show", "--property=ActiveState,Job", TARGET, PREPARE].map(str::to_owned);
    let shown = asked("systemctl", &words, ANSWER_WAIT).and_then(Asked::answer);
    shown.is_ok_and(|shown| systemd::is_any_up(&shown))
}

async fn status(
    options: &StatusOptions,
    connection: &Connection,
    output: Output,
) -> Result<ExitCode, Failure> {
    let shown = ask_for_processes()?;
    let told = processes(&shown.answer()?);
    let api_server = api_server::ask(connection, &told).await;
    let printed = print(&told, api_server.as_ref(), options.output, output);
    beside_verdict(printed)?;
    Ok(readiness(&told))
}

/// Asks which processes run, and how they are.
fn ask_for_processes() -> Result<Asked, Failure> {
    let mut words = vec![
        "show".to_owned(),
        format!("--property={}", systemd::PROPERTIES),
    ];
    let supervised = Process::ALL.into_iter().skip(1);
    words.extend(supervised.map(systemd::unit));
    words.push(PREPARE.to_owned());
    asked("systemctl", &words, ANSWER_WAIT)
}

/// What the answer says, and what the machine does not give the processes.
fn processes(shown: &str) -> v1::SupervisorStatus {
    let node_name = node_name(Path::new(RUN_DIRECTORY));
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let since_boot = Duration::try_from(now).unwrap_or_default();
    let mut status = systemd::status(shown, &node_name, since_boot);
    status
        .degradations
        .extend(systemd::unprepared(shown, PREPARE));
    // None where nothing could be prepared, which is said already.
    let lacks = fs::read_to_string(Path::new(RUN_DIRECTORY).join(MACHINE_LACKS_FILE_NAME));
    let lacks = lacks.unwrap_or_default();
    status.degradations.extend(lacks.lines().map(str::to_owned));
    status
}

/// The node's name as its processes have it; the host's where nothing could be prepared.
fn node_name(run_dir: &Path) -> String {
    let prepared = NodeConfig::read(&run_dir.join(NODE_CONFIG_FILE));
    prepared.map_or_else(
        |_| {
            let name = nix::unistd::gethostname().unwrap_or_default();
            name.to_string_lossy().to_lowercase()
        },
        |config| config.node_name,
    )
}

fn restart(name: &str, output: Output) -> Result<ExitCode, Failure> {
    let process: Process = name
        .parse()
        .map_err(|error: topology::UnknownProcess| Failure::NotFound(error.to_string()))?;
    if process == Process::Supervisor {
        let instead = format!("systemd supervises here: systemctl restart {TARGET}");
        return Err(Failure::NotFound(instead));
    }
    let job = start_job("restart", &[systemd::unit(process)])?;
    job.answer()?;
    output.text(&format!("{process} restarted\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The restart of the target would end all processes for a configuration that cannot be
/// used, and succeed: it only wants them. It would also look for the node's name anew. So
/// the configuration is read first.
fn reload(output: Output) -> Result<ExitCode, Failure> {
    // Without it nothing of the bundle runs.
    let is_prepared = is_active(PREPARE);
    start_job("reload-or-restart", &[PREPARE])?.answer()?;
    let jobs = match is_prepared {
        true => restart_all()?,
        false => vec![start_job("start", &[TARGET])?],
    };
    for job in jobs {
        job.answer()?;
    }
    output.text("the configuration is read again; all processes are restarted\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Has systemd restart all processes, and start those that had ended; who starts with its
/// first caller goes on waiting for that.
fn restart_all() -> Result<Vec<Asked>, Failure> {
    let supervised = Process::ALL.into_iter().skip(1);
    let (always, if_called): (Vec<Process>, Vec<Process>) =
        supervised.partition(|process| Process::ON_EVERY_NODE.contains(process));
    let units = |processes: Vec<Process>| -> Vec<String> {
        processes.into_iter().map(systemd::unit).collect()
    };
    Ok(vec![
        start_job("restart", &units(always))?,
        start_job("try-restart", &units(if_called))?,
    ])
}

/// Has systemd begin something with units.
fn start_job(verb: &str, units: &[impl AsRef<str>]) -> Result<Asked, Failure> {
    let mut words = vec!["--no-ask-password", verb];
    words.extend(units.iter().map(AsRef::as_ref));
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let job = asked("systemctl", &words, JOB_WAIT)?;
    Ok(Asked {
        may_be_refused: !nix::unistd::geteuid().is_root(),
        ..job
    })
}

fn is_active(unit: &str) -> bool {
    let words = ["is-active", unit].map(str::to_owned);
    asked("systemctl", &words, ANSWER_WAIT).is_ok_and(|asked| asked.answer().is_ok())
}

/// A program of systemd that runs.
struct Asked {
    action: String,
    wait: Duration,
    child: Child,
    /// Whether what it asks for may be refused to who runs it.
    may_be_refused: bool,
}

/// Starts a program of systemd, which has so long. timeout(1) ends it and all that it has
/// started, since it keeps the privileges for that.
fn asked(program: &str, words: &[String], wait: Duration) -> Result<Asked, Failure> {
    let action = format!("ask systemd ({program})");
    let child = Program::new("timeout")
        .arg("--kill-after=1")
        .arg(wait.as_secs_f64().to_string())
        .arg(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match child {
        Ok(child) => Ok(Asked {
            action,
            wait,
            child,
            may_be_refused: false,
        }),
        Err(source) => Err(Failure::Local { action, source }),
    }
}

impl Asked {
    /// What it prints; its own words say what is wrong where it fails.
    fn answer(self) -> Result<String, Failure> {
        let (action, wait) = (self.action, self.wait.as_secs());
        let ran = match self.child.wait_with_output() {
            Ok(ran) => ran,
            Err(source) => return Err(Failure::Local { action, source }),
        };
        let told = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        if TIMED_OUT.contains(&ran.status.code()) {
            let told = format!("it has not answered within {wait} s");
            let source = io::Error::new(ErrorKind::TimedOut, told);
            return Err(Failure::Silent { action, source });
        }
        let begun = told.starts_with(OF_JOB);
        let source = io::Error::other(told);
        Err(match self.may_be_refused && !begun {
            true => Failure::NotPermitted {
                source: source.into(),
            },
            false => Failure::Local { action, source },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_of(failed: Result<String, Failure>) -> io::Error {
        match failed {
            Err(Failure::Local { source, .. } | Failure::Silent { source, .. }) => source,
            other => panic!("{other:?}"),
        }
    }

    fn shell(script: &str, wait: Duration) -> Result<String, Failure> {
        asked("sh", &["-c".to_owned(), script.to_owned()], wait)?.answer()
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let failed = shell("exec sleep 1000", Duration::from_millis(100));
        let failure = failed.unwrap_err();
        assert!(matches!(failure, Failure::Silent { .. }), "{failure:?}");
        let stubborn = "trap '' TERM; while :; do sleep 1000; done";
        let failed = shell(stubborn, Duration::from_millis(100));
        assert_eq!(source_of(failed).kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn who_fails_says_why_and_who_succeeds_is_heard() {
        let failed = shell("echo no such unit >&2; exit 5", ANSWER_WAIT);
        assert_eq!(source_of(failed).to_string(), "no such unit");
        assert_eq!(
            shell("echo one; echo two >&2", ANSWER_WAIT).unwrap(),
            "one\n"
        );
    }

    #[test]
    fn who_may_not_have_a_job_done_is_told_so_and_of_a_job_that_failed_the_reason() {
        let refused = "Failed to restart x: Interactive authentication required.";
        let failed = "Job for x failed because of something.";
        for (may_be_refused, said, is_not_permitted) in [
            (true, refused, true),
            (true, failed, false),
            (false, refused, false),
        ] {
            let words = ["-c".to_owned(), format!("echo '{said}' >&2; exit 1")];
            let job = Asked {
                may_be_refused,
                ..asked("sh", &words, ANSWER_WAIT).unwrap()
            };
            let failure = job.answer().unwrap_err();
            let found = matches!(failure, Failure::NotPermitted { .. });
            assert_eq!(found, is_not_permitted, "{said}: {failure:?}");
        }
    }

    #[test]
    fn the_node_is_called_as_its_processes_have_it() {
        let directory = tempfile::tempdir().unwrap();
        let host = nix::unistd::gethostname().unwrap();
        let host = host.to_str().unwrap().to_lowercase();
        assert_eq!(node_name(directory.path()), host);
        let layout = node_config::DirectoryLayout::below("/n");
        let config = NodeConfig::with_defaults("edge-7", layout);
        let text = serde_json::to_string(&config).unwrap();
        fs::write(directory.path().join(NODE_CONFIG_FILE), text).unwrap();
        assert_eq!(node_name(directory.path()), "edge-7");
    }
}
