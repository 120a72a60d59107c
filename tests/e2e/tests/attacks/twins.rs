//! Each process as an attacker of those whom it calls: a program with its user does all
//! that a caller can do to a server. The server lives, with the same pid, and answers its
//! other callers meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::credential_program;
use e2e::ground::TIMEOUT;
use test_support::{BulkheadInstance, ContainerdOptions, PrivateContainerd, wait_for};
use topology::{Identities, Process, row};

/// Calls of a caller beside the attacker, one after the other.
const CALLS: usize = 20;

/// A user that may call a server.
#[derive(Clone, Debug)]
struct Caller {
    uid: u32,
    /// A method that it may call.
    allowed: String,
    /// One that it may not.
    foreign: String,
}

fn callers(identities: &Identities, server: Process) -> Vec<Caller> {
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

/// A program of the tests, on the node, as this user.
fn program_as(
    instance: &BulkheadInstance,
    uid: u32,
    program: &str,
    server: Process,
) -> Result<Command> {
    let name = instance
        .paths()
        .bin
        .join(program.rsplit('/').next().context("a name")?);
    if !name.exists() {
        fs::copy(program, &name)?;
    }
    let mut command = instance.node().command("setpriv");
    let uid = uid.to_string();
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
    command.arg(name);
    command.arg(instance.paths().run.join(server.socket_file_name()));
    Ok(command)
}

/// How many of so many calls are answered.
fn answered(
    instance: &BulkheadInstance,
    caller: &Caller,
    server: Process,
    calls: usize,
) -> Result<usize> {
    let mut command = program_as(instance, caller.uid, env!("CARGO_BIN_EXE_call-as"), server)?;
    command.args(["answered", &caller.allowed, &calls.to_string()]);
    let output = instance.node().run(|| command.output())??;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    said.parse().with_context(|| format!("{said:?}: {errors}"))
}

/// An attack; it ends when its standard input does.
struct Attack(Child);

impl Attack {
    fn begin(instance: &BulkheadInstance, caller: &Caller, server: Process) -> Result<Attack> {
        let program = env!("CARGO_BIN_EXE_hostile-twin");
        let mut command = program_as(instance, caller.uid, program, server)?;
        command.args([&caller.allowed, &caller.foreign]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = instance.node().run(|| command.spawn())??;
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
    fn end(mut self) -> Result<Vec<(String, u64, u64)>> {
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

#[test]
fn a_server_outlives_each_of_its_callers_as_an_attacker_and_answers_the_others() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let directory = containerd.node().directory_of(0);
    let options = credential_program::install(&directory, "exit 1", &["a.io".to_owned()])?;
    let instance = BulkheadInstance::start(&containerd, &options)?;
    let identities = Identities::from_base(instance.uid_base())?;
    let pids = instance.pids()?;
    for server in Process::ALL {
        let callers = callers(&identities, server);
        for attacker in &callers {
            let case = format!("uid {} attacks {server}", attacker.uid);
            let attack = Attack::begin(&instance, attacker, server)?;
            // Some servers have one caller only.
            let bystander = callers.iter().find(|caller| caller.uid != attacker.uid);
            if let Some(bystander) = bystander {
                let answered = answered(&instance, bystander, server, CALLS)?;
                assert_eq!(answered, CALLS, "{case}");
            }
            for (name, connections, bytes) in attack.end()? {
                println!("{case}: {name}: {connections} connections, {bytes} bytes");
                assert!(connections > 0 && bytes > 0, "{case}: {name}");
            }
            // Its places are free again once the server has seen all of it end.
            let what = format!("an answer after it is over: {case}");
            wait_for(&what, TIMEOUT, || {
                match answered(&instance, attacker, server, 1) {
                    Ok(1) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })?;
        }
    }
    assert_eq!(instance.pids()?, pids, "all live on");
    Ok(())
}
