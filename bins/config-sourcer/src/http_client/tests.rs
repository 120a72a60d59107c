//! Requests and hostile answers.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A server that gives the same bytes to everybody and keeps what it was asked.
struct Server {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    async fn answering(answer: impl Into<Vec<u8>>) -> Server {
        let answer = answer.into();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                        break;
                    }
                    request.push(byte[0]);
                }
                seen.lock()
                    .unwrap()
                    .push(String::from_utf8(request).unwrap());
                // The client may have had enough.
                drop(stream.write_all(&answer).await);
            }
        });
        Server {
            address,
            requests,
            _task: AbortOnDropHandle::new(task),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

async fn fetch(url: &str) -> Result<Bytes, HttpError> {
    let mut headers = HeaderMap::new();
    headers.insert("x-token", HeaderValue::from_static("secret"));
    let request = HttpRequest {
        uri: url.parse().unwrap(),
        headers,
    };
    HttpClient::new(WallClock::system()).get(&request).await
}

#[tokio::test]
async fn the_body_of_a_success_is_got() {
    let server = Server::answering(response("200 OK", "", "pods")).await;
    assert_eq!(fetch(&server.url("/a?b=c")).await.unwrap(), "pods");
    let request = server.requests().remove(0);
    assert!(request.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{request}");
    assert!(
        request.contains(&format!("host: {}\r\n", server.address)),
        "{request}"
    );
    assert!(request.contains("x-token: secret\r\n"), "{request}");
    assert!(request.contains("user-agent: bulkhead/"), "{request}");
}

/// What becomes of connections to addresses that answer (1), refuse (2) or are silent (3).
async fn connected_to(addresses: &[&str]) -> (Result<SocketAddr, String>, Duration) {
    let addresses: Vec<SocketAddr> = addresses.iter().map(|it| it.parse().unwrap()).collect();
    let begin = Instant::now();
    let connected = first_to_answer(&addresses, async |address| match address.port() {
        1 => Ok(address),
        2 => Err(io::ErrorKind::ConnectionRefused.into()),
        _ => std::future::pending().await,
    });
    let connected = connected.await.map_err(|error| error.to_string());
    (connected, begin.elapsed())
}

#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_answer_keeps_nobody_from_the_next_one() {
    let next = |number| NEXT_ADDRESS * number;
    for (addresses, expected, after) in [
        (vec!["[fd00::1]:3", "192.0.2.1:1"], 1, next(1)),
        (
            vec!["192.0.2.1:3", "192.0.2.2:2", "192.0.2.3:1"],
            2,
            next(2),
        ),
        (vec!["192.0.2.1:1", "192.0.2.2:1"], 0, next(0)),
    ] {
        let (connected, elapsed) = connected_to(&addresses).await;
        assert_eq!(connected.unwrap().to_string(), addresses[expected]);
        // Timers of tokio are of milliseconds.
        assert!(
            elapsed.abs_diff(after) <= Duration::from_millis(1),
            "{elapsed:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn addresses_that_cannot_be_connected_to_are_named_in_time() {
    let (connected, elapsed) = connected_to(&["192.0.2.1:3", "192.0.2.2:2"]).await;
    let expected = "192.0.2.2:2: connection refused; 192.0.2.1:3: timed out";
    assert_eq!(connected.unwrap_err(), expected);
    assert!(elapsed < TIMEOUT);
    // However many a name has.
    let (connected, elapsed) = connected_to(&["192.0.2.1:3"; 1000]).await;
    assert_eq!(
        connected.unwrap_err().matches("timed out").count(),
        MAX_FAILURES
    );
    assert!(elapsed < TIMEOUT);
}

#[tokio::test]
async fn other_answers_are_errors() {
    for status in [
        "404 Not Found",
        "500 Oh",
        "304 Not Modified",
        "302 Found",
        "202 Accepted",
        "204 No Content",
        "206 Partial Content",
    ] {
        let server = Server::answering(response(status, "", "x")).await;
        let error = fetch(&server.url("/")).await.unwrap_err();
        assert!(
            matches!(error, HttpError::Status { .. }),
            "{status}: {error}"
        );
    }
    let server = Server::answering("this is no HTTP\r\n\r\n").await;
    assert!(matches!(
        fetch(&server.url("/")).await,
        Err(HttpError::Exchange { .. })
    ));
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    assert!(matches!(
        fetch(&server.url("/")).await,
        Err(HttpError::Body { .. })
    ));
}

#[tokio::test]
async fn nobody_there_is_an_error() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let error = fetch(&format!("http://{address}/")).await.unwrap_err();
    assert!(matches!(error, HttpError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn a_body_over_the_cap_is_refused() {
    let size = MAX_MANIFEST_BYTES + 1;
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + size, b' ');
    let server = Server::answering(answer).await;
    assert!(matches!(
        fetch(&server.url("/")).await,
        Err(HttpError::Body { .. })
    ));
}

#[tokio::test]
async fn redirects_are_followed_within_http() {
    let last = Server::answering(response("200 OK", "", "pods")).await;
    let location = format!("location: {}\r\n", last.url("/there"));
    let first = Server::answering(response("302 Found", &location, "")).await;
    assert_eq!(fetch(&first.url("/here")).await.unwrap(), "pods");
    let request = last.requests().remove(0);
    assert!(request.starts_with("GET /there "), "{request}");
    assert!(
        !request.contains("secret"),
        "another host got the headers: {request}"
    );
    for elsewhere in ["file:///etc/passwd", "gopher://x/", "ws://h/"] {
        let location = format!("location: {elsewhere}\r\n");
        let server = Server::answering(response("301 Moved", &location, "")).await;
        let error = fetch(&server.url("/")).await.unwrap_err();
        assert!(
            matches!(error, HttpError::Url { .. }),
            "{elsewhere}: {error}"
        );
    }
}

#[tokio::test]
async fn user_and_password_of_the_address_are_sent_to_its_host_only() {
    let last = Server::answering(response("200 OK", "", "pods")).await;
    let location = format!("location: {}\r\n", last.url("/there"));
    let first = Server::answering(response("302 Found", &location, "")).await;
    let address = first.url("/").replace("://", "://user:p%40ss%3a@");
    assert_eq!(fetch(&address).await.unwrap(), "pods");
    let request = first.requests().remove(0);
    let sent = "authorization: Basic dXNlcjpwQHNzOg==\r\n";
    assert!(request.contains(sent), "{request}");
    let request = last.requests().remove(0);
    assert!(!request.contains("authorization"), "{request}");

    // The operator's own header wins.
    let request = HttpRequest {
        uri: address.parse().unwrap(),
        headers: HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer a"))]),
    };
    let body = HttpClient::new(WallClock::system()).get(&request).await;
    assert_eq!(body.unwrap(), "pods");
    let request = first.requests().remove(1);
    assert!(request.contains("authorization: Bearer a\r\n"), "{request}");
    assert!(!request.contains("Basic"), "{request}");
}

#[test]
fn a_user_needs_no_password() {
    for (url, expected) in [
        ("https://h/", None),
        ("https://token@h/", Some("Basic dG9rZW46")),
        ("https://token:@h/", Some("Basic dG9rZW46")),
        ("https://:secret@h:1/", Some("Basic OnNlY3JldA==")),
    ] {
        let found = authorization(&url.parse().unwrap());
        assert!(found.as_ref().is_none_or(HeaderValue::is_sensitive));
        let found = found.as_ref().map(|value| value.to_str().unwrap());
        assert_eq!(found, expected, "{url}");
    }
}

#[tokio::test]
async fn a_redirect_to_a_metadata_service_is_not_followed() {
    for host in [
        "169.254.169.254",
        "168.63.129.16:1",
        "[::ffff:100.100.100.200]",
        "[fe80::1]",
        // Spellings that only a look-up understands.
        "2852039166",
        "0xa9fea9fe",
    ] {
        let location = format!("location: http://{host}/latest\r\n");
        let server = Server::answering(response("302 Found", &location, "")).await;
        let error = fetch(&server.url("/")).await.unwrap_err();
        let refused = matches!(error, HttpError::RefusedAddress { .. });
        assert!(refused, "{host}: {error}");
        assert!(error.to_string().contains(host), "{host}: {error}");
    }
}

#[test]
fn only_redirects_have_refused_addresses_and_they_may_stay_where_they_are() {
    let metadata = "169.254.169.254";
    for (addresses, redirected_by, allowed) in [
        // The operator's own URL.
        (&[metadata][..], None, true),
        (&["10.0.0.1"], None, true),
        // A redirect.
        (&["10.0.0.1"], Some("10.0.0.2"), true),
        (&["127.0.0.1"], Some("10.0.0.2"), true),
        (&[metadata], Some("10.0.0.2"), false),
        (&["fd00:ec2::254"], Some("10.0.0.2"), false),
        // A name with one good address.
        (&["10.0.0.1", metadata], Some("10.0.0.2"), false),
        // Within a metadata service, and from one to another.
        (&[metadata], Some(metadata), true),
        (&["168.63.129.16"], Some(metadata), false),
    ] {
        let sockets: Vec<SocketAddr> = addresses
            .iter()
            .map(|address| SocketAddr::new(address.parse().unwrap(), 80))
            .collect();
        let redirected_by = redirected_by.map(|address: &str| address.parse().unwrap());
        let refused = refused(&sockets, redirected_by);
        assert_eq!(
            refused.is_none(),
            allowed,
            "{addresses:?} {redirected_by:?}"
        );
    }
}

#[tokio::test]
async fn redirects_without_end_are_given_up() {
    let server = Server::answering(response("302 Found", "location: again\r\n", "")).await;
    assert!(matches!(
        fetch(&server.url("/a/b")).await,
        Err(HttpError::Redirects)
    ));
    let requests = server.requests();
    assert_eq!(requests.len(), MAX_REDIRECTS + 1);
    assert!(requests[1].starts_with("GET /a/again "), "{}", requests[1]);
    assert!(requests[1].contains("secret"));
}

#[tokio::test]
async fn what_is_no_http_or_https_url_is_refused() {
    for (url, text) in [
        ("ftp://a/", "no http or https URL"),
        ("/a/b", "no http or https URL"),
        ("http://h:x/", "port"),
        ("http://h:70000/", "port"),
        ("https://h:70000/", "port"),
    ] {
        let error = fetch(url).await.unwrap_err();
        assert!(error.to_string().contains(text), "{url}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_timeout() {
    // Accepted by the kernel, never answered.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    assert!(matches!(fetch(&url).await, Err(HttpError::Timeout)));
}

#[test]
fn passwords_are_not_shown() {
    assert_eq!(shown("http://user:secret@host/a@b"), "http://host/a@b");
    assert_eq!(shown("http://host/a"), "http://host/a");
    for (url, expected) in [
        ("https://h/p?token=x", "https://h/p?..."),
        ("https://u:secret@h?token=a@b/c#d", "https://h?..."),
        ("https://h/p#token", "https://h/p"),
        // Where a redirect leads.
        ("/p?token=x", "/p?..."),
    ] {
        assert_eq!(shown(url), expected);
    }
    let uri: Uri = "http://user:secret@host:81/a".parse().unwrap();
    let target = Target::of(&uri).unwrap();
    assert_eq!(target.authority, "host:81");
    assert_eq!((target.host.as_str(), target.port), ("host", 81));
    let target = Target::of(&"http://[::1]:81/a".parse().unwrap()).unwrap();
    assert_eq!(target.host, "::1");
}

fn target(url: &str) -> Target {
    Target::of(&url.parse().unwrap()).unwrap()
}

#[test]
fn only_one_and_the_same_server_gets_the_headers() {
    for (first, then, same) in [
        ("http://h/a", "http://h/b", true),
        ("http://h/", "http://H:80/", true),
        ("http://h/", "https://h/", true),
        ("https://h:8443/", "https://h:8443/a", true),
        ("http://h:8080/", "https://h:8080/", true),
        ("http://h:8080/", "https://h:8443/", false),
        ("http://h/", "http://h:8080/", false),
        ("https://h/", "https://i.h/", false),
        ("https://h/", "https://i/", false),
    ] {
        assert_eq!(
            target(then).is_same_host(&target(first)),
            same,
            "{first} {then}"
        );
    }
}

#[test]
fn a_redirect_never_leads_away_from_https() {
    for (from, location, to) in [
        ("http://h:1/a/b", "/c", "http h:1 /c"),
        ("https://h:1/a/b", "/c", "https h:1 /c"),
        ("https://h/a/b", "c?d", "https h /a/c?d"),
        ("https://h/a/b", "//i:2/c", "https i:2 /c"),
        ("https://h/", "HTTPS://i/c", "https i /c"),
        ("http://h/", "https://i/c", "https i /c"),
        // What looks like another URL behind the path is none.
        ("https://h/", "/l?next=http://i", "https h /l?next=http://i"),
        (
            "https://h/a/b",
            "l?next=http://i",
            "https h /a/l?next=http://i",
        ),
        (
            "https://h/a/b?c",
            "?next=http://i",
            "https h /a/b?next=http://i",
        ),
        ("https://h/a/b", "./c:d", "https h /a/./c:d"),
        ("https://h/a/b", "1:2", "https h /a/1:2"),
    ] {
        let found = target(from).relative(location).unwrap();
        let found = format!(
            "{} {} {}",
            found.scheme.as_str(),
            found.authority,
            found.path
        );
        assert_eq!(found, to, "{from} {location}");
    }
    for (from, location, words) in [
        ("https://h/", "http://h/", "away from https"),
        ("https://h/", "HTTP://h/", "away from https"),
        ("https://h/", "ftp://h/", "another scheme"),
        ("https://h/", "git+ssh://h/", "another scheme"),
        ("https://h/", "mailto:h", "redirect"),
        ("https://h/", "http:c", "redirect"),
    ] {
        let error = target(from).relative(location).unwrap_err().to_string();
        assert!(error.contains(words), "{location}: {error}");
    }
}
