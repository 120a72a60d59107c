//! Each process as an attacker of those whom it calls: a program with its user does all
//! that a caller can do to a server, which answers its other callers meanwhile.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use test_support::wait_for;
use topology::{Identities, Process, row};

use crate::callers::Callable;
use crate::ground::TIMEOUT;

/// The programs that attack and call.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `hostile-twin`.
    pub hostile_twin: PathBuf,
    /// `call-as`.
    pub call_as: PathBuf,
    /// How long a server may take to meet one kind of attack.
    pub patience: Duration,
}

/// Calls of a caller beside the attacker, one after the other.
const CALLS: usize = 20;

/// A user that may call a server.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    /// A method that it may call.
    pub(crate) allowed: String,
    /// One that it may not: another's of this server, or of another server where this one
    /// has nothing for others.
    foreign: String,
}

pub(crate) fn callers(identities: &Identities, server: Process) -> Vec<Caller> {
    let uids = identities.callers(server).into_iter().chain([0]);
    let first_method = |service: &str| {
        let mut services = bulkhead_api::SERVICES.iter();
        let known = services.find(|(name, _)| *name == service);
        known.map(|(_, methods)| format!("/{service}/{}", methods[0]))
    };
    let elsewhere = || {
        let mut services = bulkhead_api::SERVICES.iter().map(|(name, _)| *name);
        services.find(|name| row(server).services.iter().all(|own| own.service != *name))
    };
    let of_uid = |uid| {
        let services = row(server).services.iter().map(|known| known.service);
        let (allowed, foreign): (Vec<_>, Vec<_>) =
            services.partition(|service| identities.permits(uid, server, service));
        let foreign = foreign.first().copied().or_else(elsewhere)?;
        Some(Caller {
            uid,
            allowed: first_method(allowed.first()?)?,
            foreign: first_method(foreign)?,
        })
    };
    uids.collect::<BTreeSet<u32>>()
        .into_iter()
        .filter_map(of_uid)
        .collect()
}

/// How many of so many calls are answered.
fn answered(
    place: &impl Callable,
    program: &Path,
    (caller, server): (&Caller, Process),
    calls: usize,
) -> Result<usize> {
    let mut command = place.as_user(caller.uid, program)?;
    command.arg(place.socket(server));
    command.args(["answered", &caller.allowed, &calls.to_string()]);
    let output = place.run(|| command.output())??;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    said.parse().with_context(|| format!("{said:?}: {errors}"))
}

/// How an attack goes on: as `hostile-twin` knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// One kind after the other; it ends by itself.
    InTurn,
    /// All of it, until its standard input ends.
    AtOnce,
    /// The same, on one processor and behind everybody else.
    FirstProcessor,
}

/// An attack that goes on.
pub(crate) struct Attack(Child);

/// What was sent of one kind of attack.
struct Sent {
    name: String,
    connections: u64,
    bytes: u64,
    /// Whether the server had to deal with it.
    is_met: bool,
}

impl Attack {
    pub(crate) fn begin(
        place: &impl Callable,
        programs: &Programs,
        (caller, server): (&Caller, Process),
        how: How,
    ) -> Result<Attack> {
        let mut command = place.as_user(caller.uid, &programs.hostile_twin)?;
        command.arg(place.socket(server));
        command.args([&caller.allowed, &caller.foreign]);
        command.arg(programs.patience.as_secs_f64().to_string());
        command.arg(match how {
            How::InTurn => "in-turn",
            How::AtOnce => "at-once",
            How::FirstProcessor => "first-processor",
        });
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = place.run(|| command.spawn())??;
        let mut begun = [0; 6];
        let output = child.stdout.as_mut().context("no output")?;
        let read = output.read_exact(&mut begun);
        let who = || format!("an attack of uid {} on {server}", caller.uid);
        read.with_context(who)?;
        ensure!(&begun == b"begun\n");
        Ok(Attack(child))
    }

    fn is_over(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.sent().map(drop)
    }

    /// Ends it, and tells each kind of it.
    fn sent(&mut self) -> Result<Vec<Sent>> {
        drop(self.0.stdin.take());
        let lines = BufReader::new(self.0.stdout.take().context("no output")?).lines();
        let sent = lines.map(|line| {
            let line = line?;
            let words: Vec<&str> = line.split(' ').collect();
            let [name, connections, bytes, met] = words.as_slice() else {
                anyhow::bail!("{line}");
            };
            Ok(Sent {
                name: (*name).to_owned(),
                connections: connections.parse()?,
                bytes: bytes.parse()?,
                is_met: *met == "met",
            })
        });
        let sent = sent.collect::<Result<Vec<_>>>()?;
        ensure!(self.0.wait()?.success());
        Ok(sent)
    }
}

/// Has each caller of each of these servers attack it; `tell` hears what was sent.
///
/// # Errors
/// When an attack could not be made, the server did not meet one, another caller was not
/// answered meanwhile, or the attacker itself was not once it had ended.
pub fn attack_everybody(
    place: &impl Callable,
    programs: &Programs,
    identities: &Identities,
    servers: &[Process],
    mut tell: impl FnMut(&str),
) -> Result<()> {
    for &server in servers {
        let callers = callers(identities, server);
        for attacker in &callers {
            let case = format!("uid {} attacks {server}", attacker.uid);
            // Some servers have one caller only.
            let bystander = callers.iter().find(|caller| caller.uid != attacker.uid);
            for how in [How::InTurn, How::AtOnce] {
                let who = (attacker, server);
                let sent = attack(place, programs, who, (bystander, how)).context(case.clone())?;
                let mut unmet = Vec::new();
                for Sent {
                    name,
                    connections,
                    bytes,
                    is_met,
                } in sent
                {
                    tell(&format!(
                        "{case}: {name}: {connections} connections, {bytes} bytes"
                    ));
                    ensure!(connections > 0 && bytes > 0, "{case}: {name}");
                    if !is_met {
                        unmet.push(name);
                    }
                }
                // Where all come at once, some may be hung up on for want of a place.
                let all_have_places = matches!(how, How::InTurn);
                ensure!(
                    unmet.is_empty() || !all_have_places,
                    "{case}: not met: {unmet:?}"
                );
            }
            // Its places are free again once the server has seen all of it end.
            let what = format!("an answer after it is over: {case}");
            wait_for(&what, TIMEOUT, || {
                match answered(place, &programs.call_as, (attacker, server), 1) {
                    Ok(1) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })?;
        }
    }
    Ok(())
}

/// One attack, during which somebody else is answered, and what was sent.
fn attack(
    place: &impl Callable,
    programs: &Programs,
    (attacker, server): (&Caller, Process),
    (bystander, how): (Option<&Caller>, How),
) -> Result<Vec<Sent>> {
    let mut attack = Attack::begin(place, programs, (attacker, server), how)?;
    while let Some(bystander) = bystander {
        let answered = answered(place, &programs.call_as, (bystander, server), CALLS)?;
        ensure!(
            answered == CALLS,
            "{answered} calls of {CALLS} were answered"
        );
        if !matches!(how, How::InTurn) || attack.is_over()? {
            break;
        }
    }
    attack.sent()
}
