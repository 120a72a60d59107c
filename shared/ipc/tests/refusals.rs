//! What a caller sends that it may not: it is cut off, and whoever supervises the server is
//! told. On a real socket, as root: to the server the test is the operator.
#![expect(clippy::unwrap_used, reason = "a failing unwrap fails the test")]

use std::collections::BTreeSet;
use std::io::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use hyper_util::rt::TokioIo;
use ipc::{Listener, Refusal, RefusalKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service as _;
use tonic::codegen::http::{Request, header};
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use topology::{Identities, Process};
use v1::usage_server::{Usage, UsageServer};

#[derive(Debug)]
struct FakePool;

#[tonic::async_trait]
impl Usage for FakePool {
    async fn get_usage(
        &self,
        _: tonic::Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::UsageReport>, Status> {
        Ok(Response::new(v1::UsageReport::default()))
    }
}

/// Serves a pool that receives messages of 1 KiB, and hears what it reports.
fn serve(path: &Path) -> UnboundedReceiver<Refusal> {
    let socket = UnixListener::bind(path).unwrap().into_std().unwrap();
    let (sender, reported) = unbounded_channel();
    let listener = Listener::from_unix(socket)
        .unwrap()
        .reporting_to(move |refusal| sender.send(*refusal).unwrap());
    let usage = UsageServer::new(FakePool).max_decoding_message_size(1 << 10);
    tokio::spawn(ipc::serve(
        Process::PodWorkerPool,
        Arc::new(Identities::from_base(64_000).unwrap()),
        listener,
        Routes::new(usage),
        CancellationToken::new(),
    ));
    reported
}

/// What is reported next.
async fn next(reported: &mut UnboundedReceiver<Refusal>) -> Refusal {
    let next = tokio::time::timeout(Duration::from_secs(20), reported.recv());
    next.await.expect("nothing is reported").unwrap()
}

/// A connection that is not made again when it breaks.
async fn connect(path: &Path) -> Channel {
    let mut once = Some(path.to_owned());
    let connector = tower::service_fn(move |_| {
        let path = once.take();
        async move {
            let path = path.ok_or_else(|| Error::other("it broke"))?;
            UnixStream::connect(path).await.map(TokioIo::new)
        }
    });
    let endpoint = Endpoint::from_static("http://pool");
    endpoint.connect_with_connector(connector).await.unwrap()
}

/// The code of the answer to these bytes.
async fn answer(channel: &mut Channel, method: &str, bytes: Vec<u8>) -> Option<Code> {
    let body = tonic::body::Body::new(http_body_util::Full::from(bytes));
    let request = Request::post(format!("http://pool/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(body)
        .unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context))
        .await
        .ok()?;
    let answer = channel.call(request).await.ok()?;
    let status = Status::from_header_map(answer.headers());
    Some(status.map_or(Code::Ok, |status| status.code()))
}

#[tokio::test]
async fn who_sends_what_no_program_of_ours_sends_is_told_cut_off_and_reported() {
    const GET_USAGE: &str = "bulkhead.v1.Usage/GetUsage";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.sock");
    let mut reported = serve(&path);
    let own_pid = i32::try_from(std::process::id()).unwrap();
    let no_bytes = vec![0, 0, 0, 0, 0];
    let malformed = |bytes: &[u8]| {
        let kind = RefusalKind::MalformedMessage;
        (GET_USAGE, bytes.to_vec(), Code::Internal, kind)
    };
    let cases = [
        (
            "bulkhead.v1.PodWorkers/UpdatePod",
            no_bytes.clone(),
            Code::PermissionDenied,
            RefusalKind::ForeignService,
        ),
        // Only the head of a message of 2 KiB: it is not waited for.
        (
            GET_USAGE,
            vec![0, 0, 0, 8, 0],
            Code::OutOfRange,
            RefusalKind::OversizedMessage,
        ),
        // Not protobuf; not a message of gRPC; compressed, and not said how; it ends in the
        // middle; no message at all.
        malformed(&[0, 0, 0, 0, 2, 0xff, 0xff]),
        malformed(&[9, 0, 0, 0, 0]),
        malformed(&[1, 0, 0, 0, 0]),
        malformed(&[0, 0, 0, 0, 9, 1]),
        malformed(&[]),
    ];
    for (method, bytes, code, kind) in cases {
        let mut channel = connect(&path).await;
        let case = format!("{bytes:?} to {method}");
        let told = answer(&mut channel, method, bytes.clone()).await;
        assert_eq!(told, Some(code), "{case}");
        let refusal = next(&mut reported).await;
        let expected = Refusal {
            uid: 0,
            pid: own_pid,
            kind,
            count: 1,
        };
        assert_eq!(refusal, expected, "{case}");
        // It may be called with a proper message, but for the connection.
        while answer(&mut channel, GET_USAGE, no_bytes.clone())
            .await
            .is_some()
        {
            tokio::task::yield_now().await;
        }
    }
    let mut another = connect(&path).await;
    let told = answer(&mut another, GET_USAGE, no_bytes.clone()).await;
    assert_eq!(told, Some(Code::Ok), "a new connection is served");
    let unknown = answer(&mut another, "bulkhead.v1.New/Call", no_bytes.clone()).await;
    assert_eq!(unknown, Some(Code::PermissionDenied));
    assert_eq!(next(&mut reported).await.kind, RefusalKind::UnknownService);
    let told = answer(&mut another, GET_USAGE, no_bytes).await;
    assert_eq!(told, Some(Code::Ok), "a newer version is not cut off");
}

/// What a client of HTTP/2 sends first, and its settings, of which it changes none.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[tokio::test]
async fn a_connection_may_have_256_calls_at_once() {
    const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.sock");
    let _reported = serve(&path);
    let mut connection = UnixStream::connect(&path).await.unwrap();
    let bytes = [PREFACE, SETTINGS].concat();
    connection.write_all(&bytes).await.unwrap();
    // The server's first frame has its settings, of six bytes each.
    let mut header = [0; 9];
    connection.read_exact(&mut header).await.unwrap();
    let [0, 0, length, 4, 0, ..] = header else {
        panic!("other than settings: {header:?}");
    };
    let mut settings = vec![0; length.into()];
    connection.read_exact(&mut settings).await.unwrap();
    let mut told = settings.chunks(6);
    let told = told.find_map(|setting| setting.strip_prefix(&MAX_CONCURRENT_STREAMS));
    assert_eq!(told, Some(&256_u32.to_be_bytes()[..]));
}

#[tokio::test]
async fn who_breaks_http2_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.sock");
    let mut reported = serve(&path);
    // A window update of nothing; data of a stream that was never begun; a frame that is
    // larger than may be.
    let window: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let data: &[u8] = &[0, 0, 1, 0, 0, 0, 0, 0, 1, 0];
    let large: &[u8] = &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1];
    for frame in [window, data, large] {
        let mut connection = UnixStream::connect(&path).await.unwrap();
        let bytes = [PREFACE, SETTINGS, frame].concat();
        connection.write_all(&bytes).await.unwrap();
        let refusal = next(&mut reported).await;
        assert_eq!(refusal.kind, RefusalKind::ProtocolError, "{frame:?}");
        // The server closes it.
        let mut heard = Vec::new();
        let _reset_or_end = connection.read_to_end(&mut heard).await;
    }
}

/// Beyond what any user may have.
const MANY: usize = 64;

#[tokio::test(start_paused = true)]
async fn who_connects_and_says_nothing_loses_its_places() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool.sock");
    let mut reported = serve(&path);
    // It sends one byte after the other, so it is never quite silent.
    let mut slow = UnixStream::connect(&path).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut silent = Vec::new();
    for _ in 0..MANY {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    // There is no place left for anybody of this user.
    let asked = tokio::time::Instant::now();
    let mut refused = UnixStream::connect(&path).await.unwrap();
    assert_eq!(refused.read(&mut [0; 64]).await.unwrap_or(0), 0);
    // It would try again at once.
    assert!(asked.elapsed() >= ipc::limits::HANG_UP_DELAY);
    assert!(begun.elapsed() < ipc::limits::MAX_GREETING);
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r" {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if slow.write_all(&[*byte]).await.is_err() {
            break;
        }
    }
    for stream in silent.iter_mut().chain([&mut slow]) {
        // What the server says first, and that it is over.
        let mut heard = Vec::new();
        let ended = tokio::time::timeout(ipc::limits::MAX_GREETING, stream.read_to_end(&mut heard));
        let _reset_or_end = ended.await.expect("it is not closed");
    }
    let mut channel = connect(&path).await;
    let method = "bulkhead.v1.Usage/GetUsage";
    // Who has sent its first bytes may be silent then.
    for _ in 0..2 {
        let told = answer(&mut channel, method, vec![0, 0, 0, 0, 0]).await;
        assert_eq!(told, Some(Code::Ok));
        tokio::time::sleep(ipc::limits::MAX_GREETING * 3).await;
    }
    // To have been too slow accuses nobody: a process may have been stopped for that long.
    let mut kinds = BTreeSet::new();
    while let Ok(refusal) = reported.try_recv() {
        kinds.insert(refusal.kind);
    }
    assert_eq!(kinds, [RefusalKind::TooManyConnections].into());
}
