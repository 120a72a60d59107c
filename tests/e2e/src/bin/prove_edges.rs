//! Calls every method of the processes that systemd has started, on a node that is given to
//! it, as each of their users. Prints what is not as it should be, and fails if there is
//! anything. `call-every-method` is beside it.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use e2e::callers::Machine;
use e2e::edge_matrix::call_everything;
use nix::unistd::User;
use topology::{Account, Identities, Process};

fn main() -> Result<ExitCode> {
    let machine = Machine {
        run_directory: "/run/bulkhead".into(),
    };
    let identities = Identities::from_users(|name| {
        let user = User::from_name(name).ok().flatten()?;
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        Some(Account { uid, gid })
    })?;
    // Under systemd there is no supervisor.
    let mut servers = Process::ALL.to_vec();
    servers.retain(|server| *server != Process::Supervisor);
    let program = std::env::current_exe()?;
    let programs = program.parent().context("no directory")?;
    let program = programs.join("call-every-method");
    let matrix = call_everything(&machine, &program, &identities, &servers)?;
    let (allowed, denied) = (matrix.allowed, matrix.denied);
    println!(
        "{} servers, {allowed} calls allowed, {denied} denied",
        servers.len()
    );
    for wrong in &matrix.wrong {
        println!("{wrong}");
    }
    let is_right = matrix.wrong.is_empty() && allowed > 0 && denied > 0;
    Ok(ExitCode::from(u8::from(!is_right)))
}
