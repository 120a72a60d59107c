//! What the query of a session asks for (`remotecommand.NewOptions`,
//! `portforward.NewV4Options`). Pure.

use bulkhead_api::v1;
use bulkhead_api::v1::open_session_request::Session;

use crate::query::Query;
use crate::route::Target;

/// No stream is asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("you must specify at least 1 of stdin, stdout, stderr")]
pub(crate) struct NoStream;

struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

fn streams(query: &Query) -> Result<Streams, NoStream> {
    let is_set = |name: &str| query.first(name) == Some("1");
    let tty = is_set("tty");
    let streams = Streams {
        stdin: is_set("input"),
        stdout: is_set("output"),
        // A terminal has one output.
        stderr: is_set("error") && !tty,
        tty,
    };
    match streams.stdin || streams.stdout || streams.stderr {
        true => Ok(streams),
        false => Err(NoStream),
    }
}

pub(crate) fn exec(target: &Target, query: &Query) -> Result<Session, NoStream> {
    let streams = streams(query)?;
    Ok(Session::Exec(v1::ExecSession {
        container_name: target.container.clone(),
        command: query.all("command").map(str::to_owned).collect(),
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
        tty: streams.tty,
    }))
}

pub(crate) fn attach(target: &Target, query: &Query) -> Result<Session, NoStream> {
    let streams = streams(query)?;
    Ok(Session::Attach(v1::AttachSession {
        container_name: target.container.clone(),
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
    }))
}

/// Ports are named beforehand by clients that speak WebSocket alone.
pub(crate) fn port_forward(query: &Query) -> Session {
    let ports = query.all("port").map(str::to_owned);
    Session::PortForward(v1::PortForwardSession {
        ports: ports.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            namespace: "d".to_owned(),
            pod: "p".to_owned(),
            uid: String::new(),
            container: "c".to_owned(),
        }
    }

    #[test]
    fn streams_and_commands_are_a_kubelets() {
        let query = |text| Query::parse(Some(text));
        let session = exec(
            &target(),
            &query("input=1&output=1&error=1&tty=1&command=sh&command=-c"),
        );
        let expected = Session::Exec(v1::ExecSession {
            container_name: "c".to_owned(),
            command: vec!["sh".to_owned(), "-c".to_owned()],
            stdin: true,
            stdout: true,
            stderr: false,
            tty: true,
        });
        assert_eq!(session, Ok(expected));
        for text in ["", "tty=1", "input=true", "error=1&tty=1"] {
            assert_eq!(attach(&target(), &query(text)), Err(NoStream), "{text}");
        }
        let Session::PortForward(found) = port_forward(&query("port=80&port=81")) else {
            panic!("no port-forward");
        };
        assert_eq!(found.ports, ["80", "81"]);
    }
}
