//! Sessions with pods: which pod and container is meant, and the way to the session.

use std::net::Ipv4Addr;

use bulkhead_api::v1;
use bulkhead_api::v1::open_session_request::Session;
use bulkhead_api::v1::sessions_client::SessionsClient;
use ipc::{CallError, Channel};
use pod::{PodExt as _, ephemeral};
use tokio::net::TcpStream;
use tonic::Code;
use topology::Process;

use crate::connection::{Connection, DEADLINE};
use crate::container_choice;
use crate::failure::Failure;
use crate::pod_list::{self, pick};

/// A pod, and one of its containers.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) pod_uid: String,
    pub(crate) container: String,
    /// Whether the container's process has a terminal.
    pub(crate) tty: bool,
}

impl Target {
    /// The one that is meant by these names.
    pub(crate) async fn find(
        connection: &Connection,
        pod: &str,
        container: Option<&str>,
    ) -> Result<Target, Failure> {
        let all = pod_list::all(connection).await?;
        let pod = pick(&all, pod)?.read()?.pod;
        let container = match container {
            Some(wanted) => container_choice::named(&pod, wanted)?,
            None => container_choice::usual(&pod)?,
        };
        let spec = ephemeral::any_container(&pod, &container);
        Ok(Target {
            pod_uid: pod.uid().to_owned(),
            tty: spec.and_then(|spec| spec.tty).unwrap_or_default(),
            container,
        })
    }
}

/// Opens sessions with one pod.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    client: SessionsClient<Channel>,
    pod: v1::PodReference,
    requester: String,
}

impl Sessions {
    /// With the pod of this UID.
    pub(crate) fn new(connection: &Connection, pod_uid: &str) -> Result<Sessions, Failure> {
        let channel = connection.channel(Process::PodWorkerPool)?;
        // Whoever became root tells who it was.
        let user = std::env::var("SUDO_USER").unwrap_or_else(|_| "root".to_owned());
        Ok(Sessions {
            client: SessionsClient::new(channel),
            pod: v1::PodReference {
                uid: pod_uid.to_owned(),
                ..v1::PodReference::default()
            },
            requester: format!("bulkhead, run by {user}"),
        })
    }

    /// A connection to one session, and its path there.
    pub(crate) async fn open(&self, session: Session) -> Result<(TcpStream, String), Failure> {
        let kind = match &session {
            Session::Exec(_) => "exec",
            Session::Attach(_) => "attach",
            Session::PortForward(_) => "portforward",
        };
        let request = v1::OpenSessionRequest {
            pod: Some(self.pod.clone()),
            requester: self.requester.clone(),
            session: Some(session),
        };
        let opened = ipc::call(DEADLINE, || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.open_session(request).await }
        });
        let opened = opened.await.map_err(refused)?;
        if opened.tls {
            let message = "the container runtime serves sessions over TLS: that is not supported";
            return Err(Failure::NotRun(message.to_owned()));
        }
        let stream = connect(opened.port).await?;
        Ok((stream, format!("/{kind}/{}", opened.token)))
    }

    /// Runs a command and tells its exit code, and nothing of what it prints.
    pub(crate) async fn run(&self, container: &str, command: &[&str]) -> Result<i32, Failure> {
        let request = v1::RunCommandRequest {
            pod: Some(self.pod.clone()),
            requester: self.requester.clone(),
            container_name: container.to_owned(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
        };
        let ran = ipc::call(DEADLINE, || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.run_command(request).await }
        });
        Ok(ran.await.map_err(refused)?.exit_code)
    }
}

/// A refusal says more than that root is needed: only root gets that far.
fn refused(error: CallError) -> Failure {
    match error.code() {
        Some(Code::PermissionDenied) => Failure::Refused {
            process: Process::PodWorkerPool,
            source: error,
        },
        _ => Failure::of_call(Process::PodWorkerPool, error),
    }
}

/// The pool passes on no other address.
async fn connect(port: u32) -> Result<TcpStream, Failure> {
    let port = u16::try_from(port).unwrap_or_default();
    let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    let stream = connected.map_err(|source| Failure::Local {
        action: format!("reach the container runtime's sessions at port {port}"),
        source,
    })?;
    // Keys are sent one by one.
    stream.set_nodelay(true).map_err(|source| Failure::Local {
        action: "set up the connection".to_owned(),
        source,
    })?;
    Ok(stream)
}
