//! `status`, `restart`, `reload` and `crashes` where systemd supervises the processes
//! (`bulkhead.target`): systemd is asked in place of our supervisor.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command as Program, ExitCode};
use std::time::Duration;

use topology::Process;

use crate::arguments::{Arguments, Command, TableOrJson};
use crate::failure::Failure;
use crate::output::Output;
use crate::status::{print, print_crashes, readiness};
use crate::systemd;

/// What starts and stops all processes.
const TARGET: &str = "bulkhead.target";

/// Where its units have the sockets.
const RUN_DIRECTORY: &str = "/run/bulkhead";

/// Endings that are asked for.
const CRASHES_MAX: &str = "--lines=64";

/// The answer of systemd to a command that our supervisor would have answered; none where
/// it is not for systemd to answer.
pub(crate) fn answer(arguments: &Arguments, output: Output) -> Option<Result<ExitCode, Failure>> {
    let is_for_supervisor = matches!(
        arguments.command,
        Command::Status(_) | Command::Restart(_) | Command::Reload | Command::Crashes(_)
    );
    if !is_for_supervisor || !is_supervised_by_systemd(&arguments.run_dir) {
        return None;
    }
    Some(match &arguments.command {
        Command::Status(options) => status(options.output, output),
        Command::Restart(options) => restart(&options.process, output),
        Command::Reload => reload(output),
        Command::Crashes(options) => crashes(options.process.as_deref(), options.output, output),
        _ => return None,
    })
}

fn is_supervised_by_systemd(run_dir: &Path) -> bool {
    let socket = run_dir.join(Process::Supervisor.socket_file_name());
    // The socket of a supervisor that has stopped is still there. Where systemd is not what
    // booted the machine, nobody is asked (sd_booted(3)).
    run_dir == Path::new(RUN_DIRECTORY)
        && UnixStream::connect(socket).is_err()
        && Path::new("/run/systemd/system").exists()
        && printed("systemctl", &["is-active", TARGET]).is_ok()
}

fn status(format: TableOrJson, output: Output) -> Result<ExitCode, Failure> {
    let mut words = vec![
        "show".to_owned(),
        format!("--property={}", systemd::PROPERTIES),
    ];
    let supervised = Process::ALL.into_iter().skip(1);
    words.extend(supervised.map(systemd::unit));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let shown = printed("systemctl", &words)?;
    let node_name = nix::unistd::gethostname().unwrap_or_default();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let since_boot = Duration::try_from(now).unwrap_or_default();
    let status = systemd::status(&shown, &node_name.to_string_lossy(), since_boot);
    print(&status, format, output)?;
    Ok(readiness(&status))
}

fn restart(name: &str, output: Output) -> Result<ExitCode, Failure> {
    let process: Process = name
        .parse()
        .map_err(|error: topology::UnknownProcess| Failure::NotFound(error.to_string()))?;
    if process == Process::Supervisor {
        let instead = format!("systemd supervises here: systemctl restart {TARGET}");
        return Err(Failure::NotFound(instead));
    }
    printed("systemctl", &["restart", &systemd::unit(process)])?;
    output.text(&format!("{process} restarted\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn reload(output: Output) -> Result<ExitCode, Failure> {
    printed("systemctl", &["restart", TARGET])?;
    output.text("the configuration is read again; all processes are restarted\n")?;
    Ok(ExitCode::SUCCESS)
}

fn crashes(of: Option<&str>, format: TableOrJson, output: Output) -> Result<ExitCode, Failure> {
    let process = of.map(str::parse::<Process>).transpose();
    let process = process.map_err(|error| Failure::NotFound(error.to_string()))?;
    let words = [
        "--output=json",
        "--no-pager",
        CRASHES_MAX,
        systemd::PROCESS_EXIT,
    ];
    let journal = printed("journalctl", &words)?;
    print_crashes(&systemd::crashes(&journal, process), of, format, output)?;
    Ok(ExitCode::SUCCESS)
}

/// What a program of systemd prints; its own words say what is wrong where it fails.
fn printed(program: &str, words: &[&str]) -> Result<String, Failure> {
    let failed = |source| Failure::Local {
        action: format!("ask systemd ({program} {})", words.join(" ")),
        source,
    };
    let ran = Program::new(program).args(words).output().map_err(failed)?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let told = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(failed(io::Error::other(told)))
}
