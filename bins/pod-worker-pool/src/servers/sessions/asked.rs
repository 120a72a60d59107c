//! What is asked for, checked and bounded. Pure.

use bulkhead_api::v1;
use bulkhead_api::v1::open_session_request::Session as Wire;
use ipc::limits::truncate;
use pod::identity::{check_container_name, check_label, check_name, check_uid};
use tonic::Status;

use super::super::status;

/// Longest command, all its words together.
const MAX_COMMAND_BYTES: usize = 64 << 10;
const MAX_PORTS: usize = 16;
/// Longest name of whom it is for that is kept.
const MAX_REQUESTER_BYTES: usize = 256;

/// A session that is one.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) pod: v1::PodReference,
    /// For whom, as the caller claims; without control characters.
    pub(super) requester: String,
    pub(super) session: Session,
}

#[derive(Clone, Debug)]
pub(super) enum Session {
    Exec(v1::ExecSession),
    Attach(v1::AttachSession),
    PortForward(Vec<u16>),
}

/// A session that is asked for.
pub(super) fn session(request: v1::OpenSessionRequest) -> Result<Asked, Status> {
    let session = match request.session {
        Some(Wire::Exec(exec)) => Session::Exec(exec_session(exec)?),
        Some(Wire::Attach(attach)) => {
            container(&attach.container_name)?;
            streams(attach.stdin, attach.stdout, attach.stderr)?;
            Session::Attach(attach)
        }
        Some(Wire::PortForward(asked)) => Session::PortForward(ports(&asked.ports)?),
        None => return Err(Status::invalid_argument("no session")),
    };
    of(request.pod, &request.requester, session)
}

/// A command without a session that is asked for.
pub(super) fn command(request: v1::RunCommandRequest) -> Result<Asked, Status> {
    let exec = exec_session(v1::ExecSession {
        container_name: request.container_name,
        command: request.command,
        stdout: true,
        stderr: true,
        ..v1::ExecSession::default()
    })?;
    of(request.pod, &request.requester, Session::Exec(exec))
}

fn of(pod: Option<v1::PodReference>, requester: &str, session: Session) -> Result<Asked, Status> {
    let pod = pod.ok_or_else(|| Status::invalid_argument("no pod"))?;
    let checked = match pod.uid.as_str() {
        "" => check_label("namespace", &pod.namespace).and_then(|()| check_name("name", &pod.name)),
        uid => check_uid(uid),
    };
    checked.map_err(|error| status::of_identity(&error))?;
    let pod = match pod.uid.is_empty() {
        true => pod,
        // The rest is not looked at.
        false => v1::PodReference {
            uid: pod.uid,
            ..v1::PodReference::default()
        },
    };
    let requester = requester.chars().filter(|it| !it.is_control());
    let mut requester: String = requester.take(MAX_REQUESTER_BYTES).collect();
    truncate(&mut requester, MAX_REQUESTER_BYTES);
    Ok(Asked {
        pod,
        requester,
        session,
    })
}

fn container(name: &str) -> Result<(), Status> {
    check_container_name(name).map_err(|error| status::of_identity(&error))
}

fn streams(stdin: bool, stdout: bool, stderr: bool) -> Result<(), Status> {
    match stdin || stdout || stderr {
        true => Ok(()),
        false => Err(Status::invalid_argument(
            "one of stdin, stdout and stderr is needed",
        )),
    }
}

fn exec_session(exec: v1::ExecSession) -> Result<v1::ExecSession, Status> {
    container(&exec.container_name)?;
    streams(exec.stdin, exec.stdout, exec.stderr)?;
    if exec.tty && exec.stderr {
        let reason = "a terminal has no standard error of its own";
        return Err(Status::invalid_argument(reason));
    }
    let bytes: usize = exec.command.iter().map(String::len).sum();
    if exec.command.is_empty() || bytes > MAX_COMMAND_BYTES {
        let reason = format!("a command has 1 to {MAX_COMMAND_BYTES} bytes");
        return Err(Status::invalid_argument(reason));
    }
    if exec.command.iter().any(|word| word.contains('\0')) {
        return Err(Status::invalid_argument("a command has no NUL"));
    }
    Ok(exec)
}

fn ports(asked: &[String]) -> Result<Vec<u16>, Status> {
    if asked.len() > MAX_PORTS {
        let reason = format!("at most {MAX_PORTS} ports at once");
        return Err(Status::invalid_argument(reason));
    }
    let port = |text: &String| match text.parse() {
        Ok(0) | Err(_) => Err(Status::invalid_argument("a port is 1 to 65535")),
        Ok(port) => Ok(port),
    };
    asked.iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(session: Wire) -> v1::OpenSessionRequest {
        v1::OpenSessionRequest {
            pod: Some(v1::PodReference {
                uid: String::new(),
                namespace: "ns".to_owned(),
                name: "web".to_owned(),
            }),
            requester: "jane\u{1b}[0m\r\n".to_owned(),
            session: Some(session),
        }
    }

    fn exec(change: impl FnOnce(&mut v1::ExecSession)) -> Wire {
        let mut exec = v1::ExecSession {
            container_name: "c".to_owned(),
            command: vec!["ls".to_owned()],
            stdout: true,
            ..v1::ExecSession::default()
        };
        change(&mut exec);
        Wire::Exec(exec)
    }

    fn forward(ports: &[&str]) -> Wire {
        let ports = ports.iter().map(|&port| port.to_owned()).collect();
        Wire::PortForward(v1::PortForwardSession { ports })
    }

    #[test]
    fn only_what_can_be_a_session_is_asked_of_the_runtime() {
        let attach = |name: &str, stdout| {
            Wire::Attach(v1::AttachSession {
                container_name: name.to_owned(),
                stdout,
                ..v1::AttachSession::default()
            })
        };
        for (what, wire, is_one) in [
            ("exec", exec(|_| {}), true),
            ("no command", exec(|it| it.command.clear()), false),
            ("no streams", exec(|it| it.stdout = false), false),
            (
                "stdin alone",
                exec(|it| (it.stdin, it.stdout) = (true, false)),
                true,
            ),
            ("terminal", exec(|it| it.tty = true), true),
            (
                "terminal with stderr",
                exec(|it| (it.tty, it.stderr) = (true, true)),
                false,
            ),
            (
                "container name",
                exec(|it| it.container_name = "../c".to_owned()),
                false,
            ),
            ("NUL", exec(|it| it.command.push("a\0".to_owned())), false),
            (
                "long",
                exec(|it| it.command = vec!["a".repeat(MAX_COMMAND_BYTES)]),
                true,
            ),
            (
                "too long",
                exec(|it| it.command.push("a".repeat(MAX_COMMAND_BYTES))),
                false,
            ),
            ("attach", attach("c", true), true),
            ("attach to nothing", attach("c", false), false),
            ("attach to no name", attach("", true), false),
            ("no ports", forward(&[]), true),
            ("ports", forward(&["1", "65535"]), true),
            ("port 0", forward(&["0"]), false),
            ("port too large", forward(&["65536"]), false),
            ("port that is none", forward(&["http"]), false),
            ("too many ports", forward(&["1"; MAX_PORTS + 1]), false),
        ] {
            assert_eq!(session(asks(wire)).is_ok(), is_one, "{what}");
        }
    }

    #[test]
    fn whom_it_is_for_is_bounded_text() {
        let asked = session(asks(exec(|_| {}))).unwrap();
        assert_eq!(asked.requester, "jane[0m");
        let mut long = asks(exec(|_| {}));
        long.requester = "ä".repeat(MAX_REQUESTER_BYTES);
        let asked = session(long).unwrap();
        assert_eq!(asked.requester.len(), MAX_REQUESTER_BYTES);
    }

    #[test]
    fn a_pod_is_named_by_uid_or_by_both_names() {
        for (uid, namespace, name, is_one) in [
            ("", "ns", "web", true),
            ("", "", "web", false),
            ("", "ns", "", false),
            ("u-1", "", "", true),
            ("u/1", "ns", "web", false),
        ] {
            let mut request = asks(exec(|_| {}));
            request.pod = Some(v1::PodReference {
                uid: uid.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
            let found = session(request);
            assert_eq!(found.is_ok(), is_one, "{uid:?} {namespace:?} {name:?}");
        }
    }
}
