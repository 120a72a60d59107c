//! Each process as an attacker of those whom it calls: a program with its user does all
//! that a caller can do to a server, which answers its other callers meanwhile.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

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
}

/// Calls of a caller beside the attacker, one after the other.
const CALLS: usize = 20;

/// A user that may call a server.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    /// A method that it may call.
    pub(crate) allowed: String,
    /// One that it may not.
    foreign: String,
}

pub(crate) fn callers(identities: &Identities, server: Process) -> Vec<Caller> {
    let uids = identities.callers(server).into_iter().chain([0]);
    let first_method = |service: &str| {
        let mut services = bulkhead_api::SERVICES.iter();
        let known = services.find(|(name, _)| *name == service);
        known.map(|(_, methods)| format!("/{service}/{}", methods[0]))
    };
    let of_uid = |uid| {
        let services = row(server).services.iter().map(|known| known.service);
        let (allowed, foreign): (Vec<_>, Vec<_>) =
            services.partition(|service| identities.permits(uid, server, service));
        let foreign = foreign.first().and_then(|service| first_method(service));
        Some(Caller {
            uid,
            allowed: first_method(allowed.first()?)?,
            foreign: foreign.unwrap_or_else(|| "/bulkhead.v1.Other/Method".to_owned()),
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

/// An attack; it ends when its standard input does.
pub(crate) struct Attack(Child);

impl Attack {
    /// `more` words are arguments of the program.
    pub(crate) fn begin(
        place: &impl Callable,
        program: &Path,
        (caller, server): (&Caller, Process),
        more: &[&str],
    ) -> Result<Attack> {
        let mut command = place.as_user(caller.uid, program)?;
        command.arg(place.socket(server));
        command.args([&caller.allowed, &caller.foreign]);
        command.args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = place.run(|| command.spawn())??;
        let mut begun = [0; 6];
        child
            .stdout
            .as_mut()
            .context("no output")?
            .read_exact(&mut begun)?;
        ensure!(&begun == b"begun\n");
        Ok(Attack(child))
    }

    /// What was sent: each kind of attack, with connections and bytes.
    pub(crate) fn end(mut self) -> Result<Vec<(String, u64, u64)>> {
        drop(self.0.stdin.take());
        let lines = BufReader::new(self.0.stdout.take().context("no output")?).lines();
        let sent = lines.map(|line| {
            let line = line?;
            let words: Vec<&str> = line.split(' ').collect();
            let [name, connections, bytes] = words.as_slice() else {
                anyhow::bail!("{line}");
            };
            Ok(((*name).to_owned(), connections.parse()?, bytes.parse()?))
        });
        let sent = sent.collect::<Result<Vec<_>>>()?;
        self.0.wait()?;
        Ok(sent)
    }
}

/// Has each caller of each of these servers attack it; `tell` hears what was sent.
///
/// # Errors
/// When an attack could not be made, another caller was not answered meanwhile, or the
/// attacker itself was not once it had ended.
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
            let attack = Attack::begin(place, &programs.hostile_twin, (attacker, server), &[])?;
            // Some servers have one caller only.
            let bystander = callers.iter().find(|caller| caller.uid != attacker.uid);
            if let Some(bystander) = bystander {
                let answered = answered(place, &programs.call_as, (bystander, server), CALLS)?;
                ensure!(
                    answered == CALLS,
                    "{case}: {answered} calls of {CALLS} were answered"
                );
            }
            for (name, connections, bytes) in attack.end()? {
                tell(&format!(
                    "{case}: {name}: {connections} connections, {bytes} bytes"
                ));
                ensure!(connections > 0 && bytes > 0, "{case}: {name}");
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
