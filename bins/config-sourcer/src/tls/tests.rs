//! Servers with good and bad certificates, asked as the HTTP source asks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clock::UnixNanos;
use http::HeaderMap;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls_native_certs::load_certs_from_paths;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, SupportedProtocolVersion, version};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::http_client::{HttpClient, HttpError, HttpRequest};

/// 2026-01-01: within the validity that the certificates here have.
const NOW: i64 = 1_767_225_600 * 1_000_000_000;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// An authority, with its certificate in a file.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    disk: TempDir,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        valid_for_a_year(&mut params);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let disk = tempfile::tempdir().unwrap();
        std::fs::write(disk.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, disk }
    }

    fn file(&self) -> PathBuf {
        self.disk.path().join("ca.pem")
    }

    fn issue(&self, name: &str) -> (CertificateDer<'static>, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        valid_for_a_year(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), key)
    }
}

fn valid_for_a_year(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2025, 7, 1);
    params.not_after = rcgen::date_time_ymd(2026, 7, 1);
}

/// Answers every request with the same, through TLS.
struct Server {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    async fn start(identity: (CertificateDer<'static>, KeyPair), answer: &'static str) -> Server {
        Self::with_versions(identity, answer, &[&version::TLS12, &version::TLS13]).await
    }

    async fn with_versions(
        (certificate, key): (CertificateDer<'static>, KeyPair),
        answer: &'static str,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Server {
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that does not trust us breaks off.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => break,
                    }
                }
                drop(stream.write_all(answer.as_bytes()).await);
                drop(stream.shutdown().await);
            }
        });
        Server {
            address,
            _task: AbortOnDropHandle::new(task),
        }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/pods", self.address.port())
    }
}

/// With which a TLS client begins.
const HANDSHAKE_RECORD: u8 = 22;

const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npods";

fn request(url: &str) -> HttpRequest {
    HttpRequest {
        uri: url.parse().unwrap(),
        headers: HeaderMap::new(),
    }
}

/// A client that trusts what is in this file.
fn trusting(file: &Path, clock: WallClock) -> HttpClient {
    let file = file.to_owned();
    let read = move || load_certs_from_paths(Some(&file), None);
    HttpClient::with_tls(Tls::with_authorities(clock, Arc::new(read)))
}

/// The same, and how often it has been read.
fn counting(file: &Path) -> (HttpClient, Arc<AtomicU32>) {
    let (file, times) = (file.to_owned(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&times);
    let read = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        load_certs_from_paths(Some(&file), None)
    };
    let tls = Tls::with_authorities(now(), Arc::new(read));
    (HttpClient::with_tls(tls), times)
}

fn now() -> WallClock {
    WallClock::simulated(UnixNanos(NOW))
}

/// The text about a handshake that is refused.
async fn refusal(client: &mut HttpClient, url: &str) -> String {
    let error = client.get(&request(url)).await.unwrap_err();
    assert!(matches!(error, HttpError::Tls(_)), "{error:?}");
    telemetry::chain(&error)
}

#[tokio::test]
async fn a_server_with_a_good_certificate_is_asked() {
    let authority = Authority::new("one");
    for (host, versions) in [
        ("localhost", vec![&version::TLS13]),
        ("localhost", vec![&version::TLS12]),
        ("127.0.0.1", vec![&version::TLS12, &version::TLS13]),
    ] {
        let server = Server::with_versions(authority.issue(host), GOOD, &versions).await;
        let mut client = trusting(&authority.file(), now());
        for _ in 0..2 {
            let body = client.get(&request(&server.url(host))).await.unwrap();
            assert_eq!(body, "pods", "{host} {versions:?}");
        }
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_with_its_names() {
    let authority = Authority::new("one");
    let server = Server::start(authority.issue("elsewhere.test"), GOOD).await;
    let mut client = trusting(&authority.file(), now());
    for host in ["localhost", "127.0.0.1"] {
        let text = refusal(&mut client, &server.url(host)).await;
        for words in [host, "is not for", "elsewhere.test", "have it issued"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

#[tokio::test]
async fn an_authority_that_is_added_counts_from_the_next_request() {
    let (unknown, authority) = (Authority::new("other"), Authority::new("one"));
    let server = Server::start(unknown.issue("localhost"), GOOD).await;
    let mut client = trusting(&authority.file(), now());
    let url = server.url("localhost");
    for _ in 0..2 {
        let text = refusal(&mut client, &url).await;
        for words in ["issued by nobody who is known", "SSL_CERT_FILE"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    std::fs::copy(unknown.file(), authority.file()).unwrap();
    assert_eq!(client.get(&request(&url)).await.unwrap(), "pods");
}

#[tokio::test]
async fn a_ca_that_was_made_anew_under_its_name_is_told_so() {
    let (new, old) = (Authority::new("one"), Authority::new("one"));
    let server = Server::start(new.issue("localhost"), GOOD).await;
    let mut client = trusting(&old.file(), now());
    let text = refusal(&mut client, &server.url("localhost")).await;
    assert!(text.contains("known here under this name"), "{text}");
}

#[tokio::test]
async fn certificates_are_judged_by_the_clock_and_always_with_the_same_words() {
    let authority = Authority::new("one");
    let server = Server::start(authority.issue("localhost"), GOOD).await;
    let clock = now();
    let url = server.url("localhost");
    clock.jump(YEAR.as_nanos() as i64);
    let mut client = trusting(&authority.file(), clock.clone());
    let late = refusal(&mut client, &url).await;
    assert!(late.contains("has expired: renew it"), "{late}");
    clock.jump(1_000_000_000);
    assert_eq!(refusal(&mut client, &url).await, late);
    clock.jump(-2 * YEAR.as_nanos() as i64);
    let early = refusal(&mut client, &url).await;
    assert!(early.contains("not valid yet: correct"), "{early}");
}

#[tokio::test]
async fn a_ca_that_serves_with_its_own_certificate_is_told_so() {
    let authority = Authority::new("one");
    let key = KeyPair::try_from(authority.issuer.key().serialize_der()).unwrap();
    let identity = (authority.issuer.der().clone(), key);
    let server = Server::start(identity, GOOD).await;
    let mut client = trusting(&authority.file(), now());
    let text = refusal(&mut client, &server.url("localhost")).await;
    assert!(text.contains("is a CA's own"), "{text}");
}

#[tokio::test]
async fn without_authorities_nobody_is_trusted() {
    let authority = Authority::new("one");
    let server = Server::start(authority.issue("localhost"), GOOD).await;
    std::fs::write(authority.disk.path().join("empty"), "no certificate").unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(authority.disk.path().join("broken"), broken).unwrap();
    for (file, words) in [
        ("missing", "No such file"),
        ("empty", "none was found"),
        ("broken", "1 certificates cannot be used"),
    ] {
        let mut client = trusting(&authority.disk.path().join(file), now());
        let text = refusal(&mut client, &server.url("localhost")).await;
        for words in [words, "SSL_CERT_FILE", "install"] {
            assert!(text.contains(words), "{file}, {words}: {text}");
        }
    }
}

#[tokio::test]
async fn authorities_are_read_once_and_only_for_https() {
    let authority = Authority::new("one");
    let server = Server::start(authority.issue("localhost"), GOOD).await;
    let (mut client, times) = counting(&authority.file());
    // Nobody speaks HTTP there, whatever is asked for.
    let plain = format!("http://{}/", server.address);
    assert!(client.get(&request(&plain)).await.is_err());
    assert_eq!(times.load(Ordering::SeqCst), 0);
    for _ in 0..3 {
        client
            .get(&request(&server.url("localhost")))
            .await
            .unwrap();
    }
    assert_eq!(times.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_with_a_bad_certificate() {
    let authority = Authority::new("one");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let _server = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
        }
    }));
    let mut client = trusting(&authority.file(), now());
    let text = refusal(&mut client, &format!("https://localhost:{port}/")).await;
    assert!(text.contains("does it serve https there?"), "{text}");
}

#[tokio::test]
async fn silence_in_the_handshake_is_a_timeout_and_says_nothing_about_authorities() {
    let authority = Authority::new("one");
    let (mut client, times) = counting(&authority.file());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    for _ in 0..2 {
        let asked = request(&url);
        let asking = tokio::spawn(async move { (client.get(&asked).await, client) });
        // Accepted and begun, but never answered.
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), HANDSHAKE_RECORD);
        tokio::time::pause();
        let (result, asker) = asking.await.unwrap();
        tokio::time::resume();
        assert!(matches!(result, Err(HttpError::Timeout)), "{result:?}");
        client = asker;
    }
    assert_eq!(times.load(Ordering::SeqCst), 1);
    // One that does fail does.
    for _ in 0..2 {
        let asked = request(&url);
        let asking = tokio::spawn(async move { (client.get(&asked).await, client) });
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        let (result, asker) = asking.await.unwrap();
        assert!(matches!(result, Err(HttpError::Tls(_))), "{result:?}");
        client = asker;
    }
    assert_eq!(times.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn size_and_redirects_are_bounded_through_tls_too() {
    let authority = Authority::new("one");
    let mut client = trusting(&authority.file(), now());
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n";
    let server = Server::start(authority.issue("localhost"), huge).await;
    let error = client.get(&request(&server.url("localhost"))).await;
    assert!(matches!(error, Err(HttpError::Body { .. })), "{error:?}");
    let again = "HTTP/1.1 302 Found\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(authority.issue("localhost"), again).await;
    let error = client.get(&request(&server.url("localhost"))).await;
    assert!(matches!(error, Err(HttpError::Redirects)), "{error:?}");
    let away = "HTTP/1.1 302 Found\r\nlocation: http://localhost/\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(authority.issue("localhost"), away).await;
    let error = client.get(&request(&server.url("localhost"))).await;
    assert!(matches!(error, Err(HttpError::Url { .. })), "{error:?}");
}

#[test]
fn names_of_a_hostile_certificate_are_bounded() {
    let names: Vec<_> = (0..1000).map(|_| "\u{7}n".repeat(1000)).collect();
    let shown = shown_names(&names);
    assert!(shown.len() < 2000 && !shown.contains('\u{7}'), "{shown}");
    assert!(shown.ends_with(", 995 others"));
    assert!(shown_names(&[]).contains("no name at all"));
}
