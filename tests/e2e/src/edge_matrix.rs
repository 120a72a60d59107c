//! Every user calls every method on every socket. What comes through must be the topology
//! exactly.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use topology::{Identities, Process};

use crate::callers::Callable;

/// No process of ours and not root.
pub const STRANGER: u32 = 65_534;

/// What a server says of a message that is wrong in itself.
const NOT_VALID: &str = "InvalidArgument";

/// What calls came to.
#[derive(Debug, Default)]
pub struct Matrix {
    /// How many came through.
    pub allowed: usize,
    /// How many did not.
    pub denied: usize,
    /// Where it is not as the topology says.
    pub wrong: Vec<String>,
}

/// Who calls: the user of each process, among them root, and a stranger.
#[must_use]
pub fn callers(identities: &Identities) -> BTreeSet<u32> {
    let users = Process::ALL.map(|process| identities.uid(process));
    users.into_iter().chain([STRANGER]).collect()
}

/// Calls all that these servers have and do not have; `program` is `call-every-method`.
///
/// # Errors
/// When it cannot be run, or says something else than it should.
pub fn call_everything(
    place: &impl Callable,
    program: &Path,
    identities: &Identities,
    servers: &[Process],
) -> Result<Matrix> {
    let mut matrix = Matrix::default();
    for &server in servers {
        for uid in callers(identities) {
            for (service, method, code) in calls(place, program, uid, server)? {
                let came_through = code.is_some();
                if came_through != identities.permits(uid, server, &service) {
                    let how = if came_through { "may" } else { "may not" };
                    let wrong = format!("uid {uid} {how} call {service}/{method} of {server}");
                    matrix.wrong.push(wrong);
                }
                if code.as_deref() == Some(NOT_VALID) {
                    let wrong = format!("{server} does not take the message for {method}");
                    matrix.wrong.push(wrong);
                }
                match came_through {
                    true => matrix.allowed += 1,
                    false => matrix.denied += 1,
                }
            }
        }
    }
    Ok(matrix)
}

/// Every method as `uid` on the socket of `server`, and what it was answered if it came
/// through.
fn calls(
    place: &impl Callable,
    program: &Path,
    uid: u32,
    server: Process,
) -> Result<Vec<(String, String, Option<String>)>> {
    let mut command = place.as_user(uid, program)?;
    command.arg(place.socket(server));
    let output = place.run(|| command.output())??;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "uid {uid} calls {server}: {errors}"
    );
    let calls = String::from_utf8_lossy(&output.stdout);
    let calls = calls.lines().map(|line| {
        let (name, verdict) = line.split_once(' ').context("no verdict")?;
        let (service, method) = name.split_once('/').context("no method")?;
        let code = verdict.strip_prefix("allowed ").map(str::to_owned);
        Ok((service.to_owned(), method.to_owned(), code))
    });
    calls.collect()
}
