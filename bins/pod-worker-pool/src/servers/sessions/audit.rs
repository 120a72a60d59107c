//! One line for each session that was opened or refused: what, with whom, for whom. Neither
//! the token nor the arguments of a command are in it.

use ipc::Peer;
use ipc::limits::truncate;
use tonic::Status;

use super::asked::{Asked, Session};

/// Longest program name that is told.
const MAX_PROGRAM_BYTES: usize = 256;

/// What a line says.
#[derive(Debug)]
pub(super) struct Line<'a> {
    kind: &'static str,
    container: &'a str,
    program: String,
    asked: &'a Asked,
    caller: Option<Peer>,
}

impl<'a> Line<'a> {
    pub(super) fn of(asked: &'a Asked, caller: Option<Peer>) -> Line<'a> {
        let (kind, container, command) = match &asked.session {
            Session::Exec(exec) => ("exec", exec.container_name.as_str(), exec.command.first()),
            Session::Attach(attach) => ("attach", attach.container_name.as_str(), None),
            Session::PortForward(_) => ("port-forward", "", None),
        };
        let mut program = command.cloned().unwrap_or_default();
        truncate(&mut program, MAX_PROGRAM_BYTES);
        Line {
            kind,
            container,
            program,
            asked,
            caller,
        }
    }

    /// Writes the line. The log shows control characters as what they are.
    pub(super) fn write(&self, refusal: Option<&Status>) {
        let (code, reason) = match refusal {
            None => ("opened".to_owned(), ""),
            Some(status) => (format!("refused: {:?}", status.code()), status.message()),
        };
        let Asked { pod, requester, .. } = self.asked;
        tracing::info!(
            kind = self.kind,
            namespace = pod.namespace,
            pod = pod.name,
            uid = pod.uid,
            container = self.container,
            program = self.program,
            requester,
            caller_uid = self.caller.map(|caller| caller.uid),
            caller_pid = self.caller.and_then(|caller| caller.pid),
            outcome = code,
            reason,
            "session"
        );
    }
}
