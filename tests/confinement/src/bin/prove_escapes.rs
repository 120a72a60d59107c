//! Has the program `escape`, which is beside it, try what a process must not be able to do,
//! by a unit that is the process's own of the bundle but for the program: under systemd, on
//! a node that is given to it. Says what came to something else than it should, and fails if
//! there is anything.
//!
//! Usage: `prove-escapes PROCESS [WEAKENED...]`, as for `escape`.

#![expect(clippy::print_stdout, reason = "its answers are lines of text")]

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use confine::landlock_version;
use confinement::Starter;
use confinement::escapes::{Sandbox, answers, different, expected};
use nix::unistd::User;
use topology::{Process, row};

/// Where an administrator's own units are until the next boot.
const UNITS: &str = "/run/systemd/system";

/// Settings of a service that are about how it is started and started again, and who starts
/// with it.
const LEFT_OUT: [&str; 11] = [
    "After",
    "ExecStart",
    "FileDescriptorStoreMax",
    "NotifyAccess",
    "PartOf",
    "Requires",
    "Restart",
    "RestartSec",
    "StartLimitIntervalSec",
    "Type",
    "WatchdogSec",
];

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let process: Process = arguments.next().context("no process")?.parse()?;
    let weakened: Vec<String> = arguments.collect();
    let directory = Path::new("/escapes").join(process.name());
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory)?;
    let uid = match row(process).root {
        true => 0,
        false => {
            let user = User::from_name(row(process).user)?.context("no user")?;
            user.uid.as_raw()
        }
    };
    let sandbox = Sandbox::new(&directory, process, uid)?;
    let told = answers(&try_all(process, sandbox.path(), &weakened)?);
    let expected = expected(process, Starter::Systemd, landlock_version());
    let different = different(&expected, &told);
    for line in &different {
        println!("{line}");
    }
    Ok(ExitCode::from(u8::from(!different.is_empty())))
}

/// Runs `escape` by a unit that is otherwise that of the process, and returns what it says.
fn try_all(process: Process, sandbox: &Path, weakened: &[String]) -> Result<String> {
    let unit = format!("escape-{process}.service");
    let told = sandbox.join("told");
    let own = format!("bulkhead-{process}.service");
    let own = ["/lib/systemd/system", "/usr/lib/systemd/system"].map(|it| Path::new(it).join(&own));
    let own = own.iter().find(|path| path.exists()).context("no unit")?;
    let program = std::env::current_exe()?.with_file_name("escape");
    let (program, directory) = (program.display(), sandbox.display());
    let text = as_oneshot(&fs::read_to_string(own)?);
    // Its own state directory is another one here.
    let state = format!("/var/lib/bulkhead/{process}");
    let mut text = text.replace(&state, &format!("{directory}/state/own"));
    text += &format!(
        "ExecStart={program} {process} {directory}/node.json {directory} {}\n\
         StandardOutput=file:{}\n",
        weakened.join(" "),
        told.display()
    );
    fs::create_dir_all(UNITS)?;
    fs::write(Path::new(UNITS).join(&unit), text)?;
    for arguments in [vec!["daemon-reload"], vec!["start", &unit]] {
        let output = Command::new("systemctl").args(&arguments).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {errors}");
    }
    fs::read_to_string(&told).with_context(|| format!("what {unit} said"))
}

/// The settings of a service that are about its confinement and limits.
fn as_oneshot(unit: &str) -> String {
    let lines = unit.lines().filter(|line| {
        let name = line.split('=').next().unwrap_or_default();
        !LEFT_OUT.contains(&name)
    });
    let lines: Vec<&str> = lines.collect();
    lines.join("\n") + "\nType=oneshot\n"
}
