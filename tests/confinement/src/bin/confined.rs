//! Says what of a running process is not as the topology says, a line for each, and fails
//! if there is anything.
//!
//! Usage: `confined systemd PROCESS PID` or `confined supervisor PROCESS PID SUPERVISOR`,
//! in the namespaces of the node, where SUPERVISOR is the pid of the supervisor. The users
//! are those of the node. What the machine refuses to everybody is compared with what
//! whoever started the process has; `confined refusals`, with what the supervisor tells of
//! that on standard input, says what of it is wrong, and with nothing there what it is.

#![expect(clippy::print_stdout, reason = "its answers are lines of text")]

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use confinement::{Starter, faults, refusals_mistold};
use nix::unistd::User;
use topology::{Account, Process, row};

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let starter = match arguments.next().as_deref() {
        Some("supervisor") => Starter::Supervisor,
        Some("systemd") => Starter::Systemd,
        Some("refusals") => {
            let mut told = String::new();
            std::io::stdin().read_to_string(&mut told)?;
            return Ok(tell(&refusals_mistold(&told)?));
        }
        other => bail!("who has started it? not {other:?}"),
    };
    let process: Process = arguments.next().context("no process")?.parse()?;
    let pid = arguments.next().context("no pid")?.parse()?;
    let node = match starter {
        Starter::Supervisor => arguments.next().context("no supervisor")?.parse()?,
        Starter::Systemd => std::process::id(),
    };
    let account = if row(process).root {
        Account { uid: 0, gid: 0 }
    } else {
        let user = row(process).user;
        let user = User::from_name(user)?.with_context(|| format!("no user {user}"))?;
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        Account { uid, gid }
    };
    Ok(tell(&faults(process, pid, node, account, starter)?))
}

fn tell(faults: &[String]) -> ExitCode {
    for fault in faults {
        println!("{fault}");
    }
    ExitCode::from(u8::from(!faults.is_empty()))
}
