//! Makes one call to a process, as the user that runs it, and prints the code of the
//! answer and its words. For tests that act as a process which somebody has taken over:
//! its messages are valid, and what they ask for is not what it should.
//!
//! ```text
//! call-as SOCKET update KIND UID NAMESPACE NAME HASH
//! call-as SOCKET probe UID CONTAINER CONTAINER-ID
//! call-as SOCKET pods
//! call-as SOCKET run NAMESPACE NAME CONTAINER COMMAND
//! ```
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use bulkhead_api::v1;
use bulkhead_api::v1::config_sourcer_client::ConfigSourcerClient;
use bulkhead_api::v1::pod_workers_client::PodWorkersClient;

use bulkhead_api::v1::probe_targets_client::ProbeTargetsClient;
use bulkhead_api::v1::sessions_client::SessionsClient;
use bulkhead_api::v1::watch_pods_response::Message;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    runtime.block_on(async {
        let (socket, call) = words.split_first().context("which socket?")?;
        let channel = match connect(socket.into()).await {
            Err(error) if is_denied(&error) => {
                println!("PermissionDenied at the socket");
                return Ok(());
            }
            channel => channel?,
        };
        match call {
            [what, kind, pod @ .., hash] if what == "update" => {
                update(channel, kind, pod, hash).await
            }
            [what, uid, container, id] if what == "probe" => {
                probe(channel, uid, container, id).await
            }
            [what] if what == "pods" => pods(channel).await,
            [what, pod @ .., container, command] if what == "run" => {
                run(channel, pod, container, command).await
            }
            _ => bail!("which call?"),
        }
    })
}

async fn connect(socket: PathBuf) -> Result<Channel> {
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://socket");
    let channel = endpoint.connect_with_connector(connector).await;
    channel.context("cannot connect")
}

/// The kernel does not let this user connect.
fn is_denied(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::PermissionDenied)
    })
}

async fn update(channel: Channel, kind: &str, pod: &[String], hash: &str) -> Result<()> {
    let [uid, namespace, name] = pod else {
        bail!("which pod?");
    };
    let kind = format!("UPDATE_TYPE_{}", kind.to_uppercase());
    let request = v1::UpdatePodRequest {
        r#type: v1::UpdateType::from_str_name(&kind).context(kind)?.into(),
        pod: Some(v1::PodReference {
            uid: uid.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
        }),
        hash: hash.to_owned(),
        ..v1::UpdatePodRequest::default()
    };
    let answer = PodWorkersClient::new(channel).update_pod(request).await;
    tell(answer.map(|answer| format!("{:?}", answer.into_inner().phase())));
    Ok(())
}

async fn probe(channel: Channel, uid: &str, container: &str, id: &str) -> Result<()> {
    let request = v1::ExecProbeRequest {
        pod_uid: uid.to_owned(),
        container_name: container.to_owned(),
        container_id: id.to_owned(),
        kind: v1::ProbeKind::Liveness.into(),
    };
    let answer = ProbeTargetsClient::new(channel).exec_probe(request).await;
    tell(answer.map(|answer| {
        let answer = answer.into_inner();
        format!("exit {} {}", answer.exit_code, answer.error)
    }));
    Ok(())
}

async fn run(channel: Channel, pod: &[String], container: &str, command: &str) -> Result<()> {
    let [namespace, name] = pod else {
        bail!("which pod?");
    };
    let request = v1::RunCommandRequest {
        pod: Some(v1::PodReference {
            uid: String::new(),
            namespace: namespace.clone(),
            name: name.clone(),
        }),
        requester: "somebody else".to_owned(),
        container_name: container.to_owned(),
        command: vec![command.to_owned()],
    };
    let answer = SessionsClient::new(channel).run_command(request).await;
    tell(answer.map(|answer| format!("exit {}", answer.into_inner().exit_code)));
    Ok(())
}

/// UID and hash of each pod, as sync-loop is told of them.
async fn pods(channel: Channel) -> Result<()> {
    let request = v1::WatchPodsRequest {};
    let mut stream = ConfigSourcerClient::new(channel)
        .watch_pods(request)
        .await?
        .into_inner();
    while let Some(response) = stream.message().await? {
        match response.message {
            Some(Message::Pod(pod)) => {
                let pod = pod.pod.context("no pod")?;
                let uid = pod.reference.unwrap_or_default().uid;
                println!("{uid} {}", pod.hash);
            }
            Some(Message::SnapshotEnd(_)) => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

fn tell(answer: Result<String, Status>) {
    match answer {
        Ok(words) => println!("Ok {words}"),
        Err(status) => println!("{:?} {}", status.code(), status.message()),
    }
}
