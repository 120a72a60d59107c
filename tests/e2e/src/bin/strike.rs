//! Has something happen to a process that systemd has started, on a node that is given to it,
//! as [`e2e::fault`] does to one that a supervisor has started. Without arguments it prints
//! what can happen to whom, a line for each.
//!
//! ```text
//! strike [PROCESS FAULT PID]
//! ```
#![expect(clippy::print_stdout, reason = "its output is its result")]

use anyhow::{Context as _, Result, bail};
use e2e::fault::{FAULTS, Fault};
use topology::Process;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [] => {
            // Under systemd there is no supervisor.
            for process in Process::ALL {
                for fault in FAULTS.iter().filter(|_| process != Process::Supervisor) {
                    println!("{process} {fault:?}");
                }
            }
            Ok(())
        }
        [process, fault, pid] => {
            let known = |known: &Fault| format!("{known:?}") == *fault;
            let fault = FAULTS.into_iter().find(known).context("no such fault")?;
            // That would be whoever is in the group of this program.
            let pid = pid.parse().ok().filter(|pid| *pid != 0);
            fault.happen_to(process.parse()?, pid.context("it does not run")?)
        }
        other => bail!("what is to happen to whom? not {other:?}"),
    }
}
