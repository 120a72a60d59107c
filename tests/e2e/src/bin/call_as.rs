//! Makes one call to a process, as the user that runs it, and prints the code of the
//! answer and its words. For tests that act as a process which somebody has taken over:
//! its messages are valid, and what they ask for is not what it should.
//!
//! ```text
//! call-as SOCKET update KIND UID NAMESPACE NAME HASH
//! call-as SOCKET probe UID CONTAINER CONTAINER-ID
//! call-as SOCKET pods
//! call-as SOCKET answered METHOD CALLS
//! call-as SOCKET latencies METHOD CALLS MILLISECONDS-BETWEEN-CALLS
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its output is its result"
)]

use std::error::Error as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bulkhead_api::v1;
use bulkhead_api::v1::config_sourcer_client::ConfigSourcerClient;
use bulkhead_api::v1::pod_workers_client::PodWorkersClient;

use bulkhead_api::v1::probe_targets_client::ProbeTargetsClient;
use bulkhead_api::v1::watch_pods_response::Message;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::MissedTickBehavior;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// Far beyond what a busy server takes: who is not answered within it never is.
const ANSWER_TIME: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    runtime.block_on(async {
        let (socket, call) = words.split_first().context("which socket?")?;
        if let [what, method, calls, interval] = call
            && what == "latencies"
        {
            let interval = Duration::from_millis(interval.parse()?);
            return latencies(socket.into(), method, calls.parse()?, interval).await;
        }
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
            [what, method, calls] if what == "answered" => {
                answered(channel, method, calls.parse()?).await
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

/// How many of so many calls with an empty message are answered, one after the other: by
/// whatever status the server gives.
async fn answered(channel: Channel, method: &str, calls: usize) -> Result<()> {
    let mut client = Grpc::new(channel);
    let mut answered = 0;
    for _ in 0..calls {
        match is_answered(&mut client, method).await {
            Ok(()) => answered += 1,
            Err(error) => eprintln!("{error:#}"),
        }
    }
    println!("{answered}");
    Ok(())
}

/// How long each of so many calls takes until it is answered, in microseconds: on a
/// connection that is kept, and with one of its own.
async fn latencies(socket: PathBuf, method: &str, calls: usize, interval: Duration) -> Result<()> {
    let begin = Instant::now();
    // An attack as this user may have ended just now, and have its places still.
    while is_answered_anew(&socket, method).await.is_err() {
        ensure!(begin.elapsed() < ANSWER_TIME, "no answer");
    }
    let mut kept = Grpc::new(connect(socket.clone()).await?);
    is_answered(&mut kept, method).await?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..calls {
        ticks.tick().await;
        let begin = Instant::now();
        is_answered(&mut kept, method).await?;
        let on_kept = begin.elapsed().as_micros();
        ticks.tick().await;
        let begin = Instant::now();
        // A server that has not seen the last one end may refuse the next.
        while is_answered_anew(&socket, method).await.is_err() {
            ensure!(begin.elapsed() < ANSWER_TIME, "no answer");
        }
        println!("{on_kept} {}", begin.elapsed().as_micros());
    }
    Ok(())
}

/// The same on a connection of its own.
async fn is_answered_anew(socket: &Path, method: &str) -> Result<()> {
    is_answered(&mut Grpc::new(connect(socket.to_owned()).await?), method).await
}

/// Makes one call, whatever status the server answers it with.
async fn is_answered(client: &mut Grpc<Channel>, method: &str) -> Result<()> {
    client.ready().await.context("not ready")?;
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let path = PathAndQuery::try_from(method)?;
    let call = client.server_streaming(Request::new(()), path, codec);
    let answer = tokio::time::timeout(ANSWER_TIME, call).await;
    match answer.with_context(|| format!("no answer within {ANSWER_TIME:?}"))? {
        // Not one of the server: the connection broke.
        Err(status) if status.source().is_some() => Err(status.into()),
        _ => Ok(()),
    }
}

fn tell(answer: Result<String, Status>) {
    match answer {
        Ok(words) => println!("Ok {words}"),
        Err(status) => println!("{:?} {}", status.code(), status.message()),
    }
}
