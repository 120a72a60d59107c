//! Tries against servers in memory that answer byte by byte what a test says,
//! hostile ones included, under a paused clock.

mod bodies;
mod connections;
mod health;
mod hooks;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use super::*;
use crate::network::{ByteStream, LookupPlace};

type Serve = dyn Fn(SocketAddr, DuplexStream) + Send + Sync;

/// A network where `serve` gets the far end of each connection.
struct Network {
    names: BTreeMap<&'static str, Vec<IpAddr>>,
    serve: Box<Serve>,
    connected: Mutex<Vec<SocketAddr>>,
}

const REFUSING_PORT: u16 = 1;
const SILENT_PORT: u16 = 2;
/// The node has no descriptor for it.
const WANTING_PORT: u16 = 3;
/// It has none the first two times.
const SOON_PORT: u16 = 4;
const SILENT_ADDRESS: &str = "10.0.0.20";
const HANGING_NAME: &str = "hangs.test";
const EMFILE: i32 = 24;

#[async_trait]
impl ProbeNetwork for Network {
    async fn resolve(&self, host: &str, place: LookupPlace) -> io::Result<Vec<IpAddr>> {
        if host == HANGING_NAME {
            // As a thread that nobody waits for any more keeps it.
            std::mem::forget(place);
            return std::future::pending().await;
        }
        let addresses = self.names.get(host).cloned();
        addresses.ok_or_else(|| io::Error::other("no such host"))
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        let before = {
            let mut connected = self.connected.lock().unwrap();
            connected.push(address);
            connected.len() - 1
        };
        match address.port() {
            WANTING_PORT => Err(io::Error::from_raw_os_error(EMFILE)),
            SOON_PORT if before < 2 => Err(io::Error::from_raw_os_error(EMFILE)),
            _ if address.ip().to_string() == SILENT_ADDRESS => std::future::pending().await,
            REFUSING_PORT => Err(io::ErrorKind::ConnectionRefused.into()),
            SILENT_PORT => std::future::pending().await,
            _ => {
                let (near, far) = tokio::io::duplex(16 << 10);
                (self.serve)(address, far);
                Ok(Box::new(near))
            }
        }
    }
}

struct Bench {
    network: Arc<Network>,
    prober: Prober,
}

impl Bench {
    fn new(serve: impl Fn(SocketAddr, DuplexStream) + Send + Sync + 'static) -> Bench {
        let names = [
            ("web.test", vec!["10.0.0.9".parse().unwrap()]),
            (
                "slow.test",
                vec![SILENT_ADDRESS.parse().unwrap(), "10.0.0.9".parse().unwrap()],
            ),
            ("metadata.test", vec!["169.254.169.254".parse().unwrap()]),
            (
                "two.test",
                vec![
                    "10.0.0.8".parse().unwrap(),
                    "::ffff:169.254.1.1".parse().unwrap(),
                ],
            ),
        ];
        let network = Arc::new(Network {
            names: names.into(),
            serve: Box::new(serve),
            connected: Mutex::default(),
        });
        // Nothing here asks the pool.
        let pool = ipc::Network::unix("/nonexistent").channel(topology::Process::PodWorkerPool);
        Bench {
            network: Arc::clone(&network) as Arc<Network>,
            prober: Prober::new(network, pool).unwrap(),
        }
    }

    /// Answers each connection with the same bytes after the request's head.
    fn answering(answer: impl Into<Vec<u8>>) -> Bench {
        let answer = answer.into();
        Bench::new(move |_, stream| {
            tokio::spawn(reply(stream, answer.clone()));
        })
    }

    async fn attempt(&self, probe: &str) -> Outcome {
        self.attempt_of("u", probe).await
    }

    async fn attempt_of(&self, pod_uid: &str, probe: &str) -> Outcome {
        let spec = ProbeSpec::decode(probe.as_bytes(), &[]).unwrap();
        let job = Job {
            kind: Kind::Readiness,
            pod_uid: pod_uid.to_owned(),
            container_name: "c".to_owned(),
            container_id: "id".to_owned(),
            pod_ip: "10.0.0.1".to_owned(),
            spec: Arc::new(spec),
        };
        self.prober.attempt(&job).await
    }

    async fn hook(&self, get: HttpGet) -> Result<(), String> {
        let timeout = Duration::from_secs(5);
        self.prober.hook(&get, ("u", "10.0.0.1"), timeout).await
    }

    fn connected(&self) -> Vec<String> {
        let connected = self.network.connected.lock().unwrap();
        connected.iter().map(SocketAddr::to_string).collect()
    }
}

/// Reads the head of a request.
async fn request(stream: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

async fn reply(mut stream: DuplexStream, answer: Vec<u8>) {
    request(&mut stream).await;
    // The prober may have seen enough before everything is written.
    drop(stream.write_all(&answer).await);
}

fn answer(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok")
}

fn is_success(outcome: &Outcome) -> bool {
    *outcome == Outcome::Success(String::new())
}

fn failure(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failure(message) => message,
        other => panic!("not a failure: {other:?}"),
    }
}

fn warning(outcome: Outcome) -> String {
    match outcome {
        Outcome::Success(message) if !message.is_empty() => message,
        other => panic!("not a warning: {other:?}"),
    }
}

fn error(outcome: Outcome) -> String {
    match outcome {
        Outcome::Error(message) => message,
        other => panic!("not an error: {other:?}"),
    }
}

const GET: &str = r#"{"httpGet":{"port":80,"path":"/healthz"}}"#;

#[tokio::test(start_paused = true)]
async fn http_statuses_from_200_to_399_are_a_success() {
    for status in ["200 OK", "204 No Content", "299 Odd"] {
        let bytes = match status {
            "204 No Content" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            status => answer(status),
        };
        let outcome = Bench::answering(bytes).attempt(GET).await;
        assert!(is_success(&outcome), "{status}: {outcome:?}");
    }
    for status in ["300 Choices", "302 Found", "305 Proxy", "399 Odd"] {
        let outcome = Bench::answering(answer(status)).attempt(GET).await;
        let said = warning(outcome);
        assert!(said.contains("terminated redirects"), "{status}: {said}");
    }
    for status in [
        "400 Bad",
        "404 Not Found",
        "500 Oops",
        "503 Later",
        "101 Switching",
    ] {
        let outcome = Bench::answering(answer(status)).attempt(GET).await;
        let message = failure(outcome);
        assert!(message.starts_with("Readiness probe failed: "), "{message}");
    }
}

/// Answers 200 and tells what was asked.
fn recording() -> (Bench, Arc<Mutex<Vec<String>>>) {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = Arc::clone(&requests);
    let bench = Bench::new(move |_, mut stream| {
        let record = Arc::clone(&record);
        tokio::spawn(async move {
            let head = request(&mut stream).await;
            record.lock().unwrap().push(head);
            drop(stream.write_all(answer("200 OK").as_bytes()).await);
        });
    });
    (bench, requests)
}

async fn head_of(probe: &str) -> String {
    let (bench, requests) = recording();
    let outcome = bench.attempt(probe).await;
    assert!(is_success(&outcome), "{outcome:?}");
    let mut requests = requests.lock().unwrap();
    let head = requests.pop().unwrap();
    assert!(head.contains("\r\nHost: "), "{head}");
    head.to_lowercase()
}

#[tokio::test(start_paused = true)]
async fn a_request_looks_like_the_kubelets() {
    let head = head_of(GET).await;
    assert!(head.starts_with("get /healthz http/1.1\r\n"), "{head}");
    for line in [
        "user-agent: kube-probe/1.33\r\n",
        "accept: */*\r\n",
        "host: 10.0.0.1:80\r\n",
        "connection: close\r\n",
    ] {
        assert!(head.contains(line), "{line:?} in {head}");
    }
}

#[tokio::test(start_paused = true)]
async fn custom_headers_are_sent_and_can_replace_the_usual_ones() {
    let head = head_of(
        r#"{"httpGet":{"port":80,"httpHeaders":[{"name":"Host","value":"v.example"},
            {"name":"X-A","value":"1"},{"name":"X-A","value":"2"},
            {"name":"User-Agent","value":"mine"},{"name":"Accept","value":""},
            {"name":"Content-Length","value":"100"}]}}"#,
    )
    .await;
    for line in [
        "host: v.example\r\n",
        "x-a: 1\r\n",
        "x-a: 2\r\n",
        "user-agent: mine\r\n",
    ] {
        assert!(head.contains(line), "{line:?} in {head}");
    }
    assert!(!head.contains("accept:"), "{head}");
    assert!(!head.contains("content-length"), "{head}");
    assert!(!head.contains("10.0.0.1"), "{head}");
}

#[tokio::test(start_paused = true)]
async fn nothing_can_be_smuggled_into_a_request() {
    let head = head_of(r#"{"httpGet":{"port":80,"path":"/x HTTP/1.1\r\nX-Evil: 1\r\n"}}"#).await;
    assert!(!head.contains("\r\nx-evil"), "{head}");
    for header in [
        r#""name":"a b","value":"1""#,
        r#""name":"a","value":"1\r\nb: 2""#,
    ] {
        let (bench, requests) = recording();
        let probe = format!(r#"{{"httpGet":{{"port":80,"httpHeaders":[{{{header}}}]}}}}"#);
        failure(bench.attempt(&probe).await);
        assert!(requests.lock().unwrap().is_empty());
    }
}

/// Redirects `/0` to `/1` and so on; `/9` answers 200.
fn redirecting(to: impl Fn(u32) -> String + Send + Sync + 'static) -> Bench {
    Bench::new(move |_, mut stream| {
        let next = |head: &str| {
            let path = head.split(' ').nth(1)?;
            path.rsplit('/').next()?.parse::<u32>().ok()
        };
        // The closure is not `Send` over an await: decide all answers up front.
        let locations: Vec<String> = (1..=100).map(&to).collect();
        tokio::spawn(async move {
            let head = request(&mut stream).await;
            let number = next(&head).unwrap_or(0) as usize;
            let reply = match number {
                9 => answer("200 OK"),
                _ => format!(
                    "HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 5\r\n\r\nthere",
                    locations[number % 100]
                ),
            };
            drop(stream.write_all(reply.as_bytes()).await);
        });
    })
}

#[tokio::test(start_paused = true)]
async fn redirects_to_the_same_host_are_followed() {
    let bench = redirecting(|number| format!("/a/{number}"));
    let outcome = bench
        .attempt(r#"{"httpGet":{"port":80,"path":"/a/0"}}"#)
        .await;
    assert!(is_success(&outcome), "{outcome:?}");
    assert_eq!(bench.connected().len(), 10);

    let bench = redirecting(|number| format!("http://10.0.0.1:8080/{number}"));
    let outcome = bench
        .attempt(r#"{"httpGet":{"port":80,"path":"/7"}}"#)
        .await;
    assert!(is_success(&outcome), "{outcome:?}");
    assert_eq!(
        bench.connected(),
        ["10.0.0.1:80", "10.0.0.1:8080", "10.0.0.1:8080"]
    );
}

#[tokio::test(start_paused = true)]
async fn endless_redirects_are_a_failure() {
    let bench = redirecting(|_| "/50".to_owned());
    let outcome = bench.attempt(GET).await;
    assert!(failure(outcome).contains("redirects"));
    assert_eq!(bench.connected().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_redirect_to_another_host_is_a_success_with_a_warning_and_not_followed() {
    for location in [
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.2/",
        "//evil.test/",
        "file:///etc/passwd",
    ] {
        let bench = redirecting(move |_| location.to_owned());
        let said = warning(bench.attempt(GET).await);
        let expected = "Probe terminated redirects, Response body: there";
        assert_eq!(said, format!("Readiness probe warning: {expected}"));
        assert_eq!(bench.connected(), ["10.0.0.1:80"], "{location}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_custom_host_header_stays_with_relative_redirects_only() {
    for (location, kept) in [("/final", true), ("http://10.0.0.1:80/final", false)] {
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = Arc::clone(&heads);
        let bench = Bench::new(move |_, mut stream| {
            let record = Arc::clone(&record);
            tokio::spawn(async move {
                let head = request(&mut stream).await;
                let reply = match head.contains("/final") {
                    true => answer("200 OK"),
                    false => format!("HTTP/1.1 302 F\r\nLocation: {location}\r\n\r\n"),
                };
                record.lock().unwrap().push(head);
                drop(stream.write_all(reply.as_bytes()).await);
            });
        });
        let probe =
            r#"{"httpGet":{"port":80,"httpHeaders":[{"name":"Host","value":"v.example"}]}}"#;
        assert!(is_success(&bench.attempt(probe).await));
        let heads = heads.lock().unwrap();
        assert_eq!(heads[1].contains("v.example"), kept, "{location}");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_takes_longer_than_the_timeout_fails_on_time() {
    let silent = Bench::new(|_, stream| {
        tokio::spawn(async move {
            let _open = stream;
            std::future::pending::<()>().await;
        });
    });
    let dripping = Bench::new(|_, mut stream| {
        tokio::spawn(async move {
            request(&mut stream).await;
            let drip = "HTTP/1.1 200 OK\r\nX: "
                .bytes()
                .chain(std::iter::repeat(b'x'));
            for byte in drip {
                if stream.write_u8(byte).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    });
    let probes = [
        (&silent, r#"{"httpGet":{"port":80},"timeoutSeconds":3}"#),
        (
            &silent,
            r#"{"httpGet":{"port":443,"scheme":"HTTPS"},"timeoutSeconds":3}"#,
        ),
        (&silent, r#"{"grpc":{"port":80},"timeoutSeconds":3}"#),
        (&silent, r#"{"tcpSocket":{"port":2},"timeoutSeconds":3}"#),
        (&dripping, r#"{"httpGet":{"port":80},"timeoutSeconds":3}"#),
    ];
    for (bench, probe) in probes {
        let began = Instant::now();
        let message = failure(bench.attempt(probe).await);
        assert!(
            message.contains("no answer within 3s"),
            "{probe}: {message}"
        );
        assert_eq!(began.elapsed(), Duration::from_secs(3), "{probe}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_http_is_a_failure() {
    let long_header = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many_headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: 1\r\n".repeat(1000));
    for bytes in [
        "",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n",
        long_header.as_str(),
        many_headers.as_str(),
    ] {
        let outcome = Bench::answering(bytes).attempt(GET).await;
        let start = &bytes[..bytes.len().min(40)];
        assert!(
            matches!(outcome, Outcome::Failure(_)),
            "{start}: {outcome:?}"
        );
    }
    let garbled = Bench::answering("this is not TLS at all, whatever it is\r\n\r\n");
    let https = r#"{"httpGet":{"port":443,"scheme":"HTTPS"}}"#;
    failure(garbled.attempt(https).await);
}

/// A server that is chatty is no failure; one that says much more than servers do is.
#[tokio::test(start_paused = true)]
async fn an_answer_may_have_256_headers_and_64_kib_of_them() {
    for (headers, head_bytes, is_success_expected) in [
        (250, 60 << 10, true),
        (256, 4 << 10, true),
        (257, 4 << 10, false),
        (100, 65 << 10, false),
    ] {
        let value = "x".repeat(head_bytes / headers - "X: \r\n".len());
        let fields = format!("X: {value}\r\n").repeat(headers);
        let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let outcome = Bench::answering(bytes).attempt(GET).await;
        let case = format!("{headers} headers, {head_bytes} bytes: {outcome:?}");
        assert_eq!(is_success(&outcome), is_success_expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn https_accepts_any_certificate() {
    let identity = rcgen::generate_simple_self_signed(["somebody.else".to_owned()]).unwrap();
    let key = tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer::from(
        identity.signing_key.serialize_der(),
    );
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let bench = Bench::new(move |_, stream| {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut head = [0; 4];
            stream.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"GET ");
            drop(stream.write_all(answer("200 OK").as_bytes()).await);
            drop(stream.shutdown().await);
        });
    });
    for host in ["", r#""host":"web.test","#] {
        let probe = format!(r#"{{"httpGet":{{{host}"port":443,"scheme":"HTTPS"}}}}"#);
        let outcome = bench.attempt(&probe).await;
        assert!(is_success(&outcome), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tcp_probe_succeeds_when_somebody_accepts() {
    let bench = Bench::new(|_, _| {});
    assert!(is_success(
        &bench.attempt(r#"{"tcpSocket":{"port":80}}"#).await
    ));
    let message = failure(bench.attempt(r#"{"tcpSocket":{"port":1}}"#).await);
    assert!(message.contains("10.0.0.1:1"), "{message}");
    assert!(is_success(
        &bench
            .attempt(r#"{"tcpSocket":{"port":80,"host":"web.test"}}"#)
            .await
    ));
    assert_eq!(bench.connected().pop().unwrap(), "10.0.0.9:80");
}

#[tokio::test(start_paused = true)]
async fn refused_destinations_are_never_reached_and_no_fault_of_the_container() {
    let bench = Bench::new(|_, _| {});
    for host in [
        "169.254.169.254",
        "[fe80::1]",
        "::ffff:169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "2002:a9fe:a9fe::1",
        "metadata.test",
        "two.test",
        "224.0.0.1",
    ] {
        for probe in ["httpGet", "tcpSocket"] {
            let probe = format!(r#"{{"{probe}":{{"port":80,"host":"{host}"}}}}"#);
            error(bench.attempt(&probe).await);
        }
    }
    assert!(bench.connected().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_be_looked_up_is_a_failure() {
    let bench = Bench::new(|_, _| {});
    for probe in ["httpGet", "tcpSocket"] {
        let probe = format!(r#"{{"{probe}":{{"port":80,"host":"unknown.test"}}}}"#);
        let message = failure(bench.attempt(&probe).await);
        let words = "cannot look up unknown.test: no such host";
        assert!(message.contains(words), "{message}");
    }
    assert!(bench.connected().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_is_an_error() {
    let bench = Bench::new(|_, _| {});
    assert!(error(bench.attempt("{}").await).contains("no handler"));
    let mut job = Job {
        kind: Kind::Liveness,
        pod_uid: "u".to_owned(),
        container_name: "c".to_owned(),
        container_id: "id".to_owned(),
        pod_ip: String::new(),
        spec: Arc::new(ProbeSpec::decode(GET.as_bytes(), &[]).unwrap()),
    };
    let message = error(bench.prober.attempt(&job).await);
    assert!(message.contains("no address"), "{message}");
    job.pod_ip = "fd00::1".to_owned();
    bench.prober.attempt(&job).await;
    assert_eq!(bench.connected(), ["[fd00::1]:80"]);
}

#[test]
fn the_pools_answers_to_exec_probes_are_understood() {
    let response = |exit_code, output: &str| v1::ExecProbeResponse {
        exit_code,
        output: output.as_bytes().to_vec(),
        ..Default::default()
    };
    let outcome = |response| exec_outcome(&response, Duration::from_secs(1)).unwrap();
    assert!(is_success(&outcome(response(0, "ignored"))));
    assert_eq!(failure(outcome(response(2, " no \n"))), "no");
    assert!(failure(outcome(response(2, ""))).contains("code 2"));
    let late = v1::ExecProbeResponse {
        timed_out: true,
        ..response(0, "")
    };
    assert!(failure(outcome(late)).contains("1s"));
    let broken = v1::ExecProbeResponse {
        error: "no such container".to_owned(),
        ..response(0, "")
    };
    let unmade = exec_outcome(&broken, Duration::from_secs(1)).unwrap_err();
    assert!(unmade.again);
}
