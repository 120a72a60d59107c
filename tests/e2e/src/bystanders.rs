//! How long a caller waits for its answers while another caller attacks their server,
//! against a quiet server: measured by turns, so that both see the same machine.

use std::io::BufRead as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use topology::{Identities, Process, row};

use crate::callers::Callable;
use crate::twins::{Attack, How, Programs, callers};

/// One attacker of one server, and how long somebody else waited meanwhile.
#[derive(Clone, Debug)]
pub struct Case {
    /// Who was attacked.
    pub server: Process,
    /// Who attacked it.
    pub attacker: String,
    /// Who called it meanwhile.
    pub bystander: String,
    /// Answers of a quiet server.
    pub quiet: Waits,
    /// Those of one that is attacked.
    pub attacked: Waits,
}

/// How long each of many calls took.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// On a connection that is kept, as processes have it.
    pub kept: Vec<Duration>,
    /// With a connection of its own, as the command line has it.
    pub fresh: Vec<Duration>,
}

impl Waits {
    /// Half of the answers on a connection that is kept took no longer.
    #[must_use]
    pub fn median(&self) -> Duration {
        let mut waits = self.kept.clone();
        waits.sort_unstable();
        waits.get(waits.len() / 2).copied().unwrap_or_default()
    }
}

/// How often is measured.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// Times that each attack begins anew.
    pub rounds: usize,
    /// Calls of either kind in each of them, quiet and attacked.
    pub calls: usize,
}

/// Measures each attacker of each server that has another caller; `tell` gets each case.
///
/// # Errors
/// When a call was not answered, or an attack could not be made.
pub fn measure(
    place: &impl Callable,
    programs: &Programs,
    identities: &Identities,
    turns: Turns,
    mut tell: impl FnMut(Case),
) -> Result<()> {
    let name = |uid| identities.process_of(uid).map_or("root", Process::name);
    for server in Process::ALL {
        let callers = callers(identities, server);
        for attacker in &callers {
            let bystander = callers.iter().find(|caller| caller.uid != attacker.uid);
            let Some(bystander) = bystander else {
                continue;
            };
            let mut case = Case {
                server,
                attacker: name(attacker.uid).to_owned(),
                bystander: name(bystander.uid).to_owned(),
                quiet: Waits::default(),
                attacked: Waits::default(),
            };
            let program = &programs.call_as;
            for _ in 0..turns.rounds {
                let method = bystander.allowed.as_str();
                let calls = (bystander.uid, method, server, turns.calls);
                wait(place, program, calls, &mut case.quiet)?;
                let who = (attacker, server);
                let attack = Attack::begin(place, programs, who, How::FirstProcessor)?;
                wait(place, program, calls, &mut case.attacked)?;
                attack.end()?;
            }
            tell(case);
        }
    }
    Ok(())
}

/// Has a user call a method of a server so often, and adds how long it waited; `program` is
/// `call-as`.
///
/// # Errors
/// When a call was not answered.
pub fn wait(
    place: &impl Callable,
    program: &Path,
    (uid, method, server, calls): (u32, &str, Process, usize),
    waits: &mut Waits,
) -> Result<()> {
    let mut command = place.as_user(uid, program)?;
    let interval = interval(server, method).to_string();
    command.arg(place.socket(server));
    command.args(["latencies", method, &calls.to_string(), &interval]);
    let output = place.run(|| command.output())??;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "a call to {server}: {errors}");
    for line in output.stdout.lines() {
        let line = line?;
        let (kept, fresh) = line.split_once(' ').context(errors.clone())?;
        waits.kept.push(Duration::from_micros(kept.parse()?));
        waits.fresh.push(Duration::from_micros(fresh.parse()?));
    }
    Ok(())
}

/// Milliseconds from one call to the next, so that no call waits for its caller's own
/// budget.
fn interval(server: Process, method: &str) -> u32 {
    let mut services = row(server).services.iter();
    let service = services.find(|service| method[1..].starts_with(service.service));
    let a_second = service.map_or(1, |service| service.budget.a_second);
    (1_200 / a_second.max(1)).max(5)
}
