//! `httpGet`: one GET, and the redirects that stay at the same host (1.26
//! `pkg/probe/http`). The target is hostile: everything read from it is bounded,
//! and the caller's timeout covers all of it.

use std::error::Error;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    LOCATION, TRAILER, TRANSFER_ENCODING, USER_AGENT,
};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::{self, pki_types::ServerName};

use super::url::{Redirect, Url};
use super::way::{self, Destination, Unmade, Way};
use crate::network::{ByteStream, LookupPlace};
use crate::spec::{HttpGet, Scheme};
use crate::worker::Outcome;

/// Bytes of a body that are read; the rest is not waited for (the kubelet's
/// `maxRespBodyLength`).
const MAX_BODY_BYTES: usize = 10 << 10;

/// Bytes of an answer's head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Header fields of an answer.
const MAX_HEADERS: usize = 256;

/// Requests of one try, the first and those after redirects.
const MAX_REQUESTS: usize = 10;

/// As in the kubelet, an answer whose body breaks off, or is not there by `deadline`, is
/// thrown away, whatever its status.
pub(super) async fn probe(
    way: &Way,
    get: &HttpGet,
    pod_ip: &str,
    place: Option<LookupPlace>,
    deadline: Instant,
) -> Result<Outcome, Unmade> {
    let host = get.host.as_deref();
    let to = way.destination(host, pod_ip, place).await?;
    let mut url = match Url::new(get.scheme, &to.host, get.port, &get.path) {
        Ok(url) => url,
        Err(error) => return Ok(Outcome::Failure(error.to_string())),
    };
    let mut headers = match request_headers(&get.headers, way::USER_AGENT) {
        Ok(headers) => headers,
        Err(reason) => return Ok(Outcome::Failure(reason)),
    };
    let answer = get_all(way, &to, &mut url, &mut headers, deadline).await;
    Ok(match answer {
        Ok(Answer {
            body: Err(reason), ..
        }) => {
            let message = format!("GET {url}: cannot read the body of the answer: {reason}");
            return Err(Unmade {
                again: true,
                ..Unmade::for_good(message)
            });
        }
        Ok(Answer {
            status,
            body: Ok(body),
            ..
        }) => conclude(status, &body),
        Err(Failed::LocalShortage(error)) => return Err(Unmade::for_local_shortage(&error)),
        Err(Failed::Request(error)) => {
            let reason = telemetry::chain(error.as_ref());
            Outcome::Failure(format!("GET {url}: {reason}"))
        }
        Err(Failed::Redirect(reason)) => Outcome::Failure(reason),
    })
}

/// Carries out an HTTP lifecycle hook: any answer will do (1.26
/// `pkg/kubelet/lifecycle`). A server that speaks no TLS is asked again without it, and
/// without credentials.
pub(super) async fn hook(
    way: &Way,
    get: &HttpGet,
    pod_ip: &str,
    place: Option<LookupPlace>,
    deadline: Instant,
) -> Result<(), Unmade> {
    let host = get.host.as_deref();
    let to = way.destination(host, pod_ip, place).await?;
    let headers = request_headers(&get.headers, way::HOOK_USER_AGENT);
    let mut headers = headers.map_err(Unmade::for_good)?;
    let mut scheme = get.scheme;
    loop {
        let url = Url::new(scheme, &to.host, get.port, &get.path);
        let mut url = url.map_err(|error| Unmade::for_good(error.to_string()))?;
        match get_all(way, &to, &mut url, &mut headers, deadline).await {
            Ok(_) => return Ok(()),
            Err(Failed::Redirect(reason)) => return Err(Unmade::for_good(reason)),
            Err(Failed::LocalShortage(error)) => {
                return Err(Unmade {
                    again: true,
                    ..Unmade::for_local_shortage(&error)
                });
            }
            Err(Failed::Request(error)) => {
                if scheme == Scheme::Https && speaks_no_tls(error.as_ref()) {
                    scheme = Scheme::Http;
                    headers.remove(AUTHORIZATION);
                    continue;
                }
                let reason = telemetry::chain(error.as_ref());
                return Err(Unmade::for_good(format!("GET {url}: {reason}")));
            }
        }
    }
}

/// Whether the first bytes of a server were none of TLS.
fn speaks_no_tls(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    let tls = io.and_then(|error| error.get_ref()?.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidMessage(_)))
}

/// Why there is no answer.
enum Failed {
    /// This node could not connect, being short of something.
    LocalShortage(std::io::Error),
    Request(Box<dyn Error + Send + Sync>),
    Redirect(String),
}

/// One GET, and the redirects that stay at the same host: the last answer.
async fn get_all(
    way: &Way,
    to: &Destination,
    url: &mut Url,
    headers: &mut HeaderMap,
    deadline: Instant,
) -> Result<Answer, Failed> {
    for _ in 0..MAX_REQUESTS {
        let answer = exchange(way, to, url, headers, deadline).await;
        let answer = answer?;
        let Some(location) = &answer.location else {
            return Ok(answer);
        };
        match url.redirect(location) {
            Redirect::SameHost {
                url: next,
                relative,
            } => {
                if !relative {
                    headers.remove(HOST);
                }
                *url = next;
            }
            Redirect::OtherHost => return Ok(answer),
            Redirect::Invalid => {
                let reason = format!("GET {url}: redirected to an invalid URL");
                return Err(Failed::Redirect(reason));
            }
        }
    }
    Err(Failed::Redirect(format!(
        "GET {url}: more than {MAX_REQUESTS} requests because of redirects"
    )))
}

/// The kubelet's words, which people search their events for.
fn conclude(status: StatusCode, body: &[u8]) -> Outcome {
    match status.as_u16() {
        200..=299 => Outcome::Success(String::new()),
        300..=399 => {
            let body = String::from_utf8_lossy(body);
            Outcome::Success(format!("Probe terminated redirects, Response body: {body}"))
        }
        code => Outcome::Failure(format!("HTTP probe failed with statuscode: {code}")),
    }
}

/// The headers of each request. An empty custom `User-Agent` or `Accept` takes
/// the header away. Those that describe a body are ours to set, and there is none.
fn request_headers(
    custom: &[(String, String)],
    user_agent: &'static str,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in custom {
        let name = HeaderName::try_from(name.as_str())
            .map_err(|_| format!("{name:?} is not the name of a header"))?;
        let value = HeaderValue::try_from(value.as_str())
            .map_err(|_| format!("the value of header {name} is not valid"))?;
        if ![CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER].contains(&name) {
            headers.append(name, value);
        }
    }
    for (name, usual) in [(USER_AGENT, user_agent), (ACCEPT, "*/*")] {
        match headers.get(&name) {
            None => drop(headers.insert(name, HeaderValue::from_static(usual))),
            Some(value) if value.is_empty() => drop(headers.remove(name)),
            Some(_) => {}
        }
    }
    if headers.get(HOST).is_some_and(HeaderValue::is_empty) {
        headers.remove(HOST);
    }
    if !headers.contains_key(CONNECTION) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(headers)
}

/// What is kept of an answer.
struct Answer {
    status: StatusCode,
    /// Where it redirects to, if it does.
    location: Option<String>,
    /// As much of its body as is looked at, or why it was not there in time.
    body: Result<Vec<u8>, String>,
}

async fn exchange(
    way: &Way,
    to: &Destination,
    url: &Url,
    headers: &HeaderMap,
    deadline: Instant,
) -> Result<Answer, Failed> {
    match way.connect(&to.addresses, url.port, deadline).await {
        Ok(stream) => converse(way, to, url, headers, (stream, deadline))
            .await
            .map_err(Failed::Request),
        Err(error) if way::is_local_shortage(&error) => Err(Failed::LocalShortage(error)),
        Err(error) => Err(Failed::Request(error.into())),
    }
}

/// Asks over a connection that stands.
async fn converse(
    way: &Way,
    to: &Destination,
    url: &Url,
    headers: &HeaderMap,
    (stream, deadline): (Box<dyn ByteStream>, Instant),
) -> Result<Answer, Box<dyn Error + Send + Sync>> {
    let stream: Box<dyn ByteStream> = match url.scheme {
        Scheme::Http => stream,
        Scheme::Https => {
            let name = ServerName::try_from(to.host.clone())
                .unwrap_or_else(|_| ServerName::IpAddress(to.addresses[0].into()));
            Box::new(way.tls.connect(name, stream).await?)
        }
    };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        // As Go writes them; some servers compare names byte by byte.
        .title_case_headers(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .handshake(TokioIo::new(stream))
        .await?;
    let mut request = Request::get(url.target.as_str()).body(Empty::<Bytes>::new())?;
    request.headers_mut().clone_from(headers);
    if !headers.contains_key(HOST) {
        let host = HeaderValue::try_from(url.authority.as_str())?;
        request.headers_mut().insert(HOST, host);
    }
    let answer = async {
        let response = sender.send_request(request).await?;
        Ok(read(response, deadline).await)
    };
    // The connection may end before all of its answer has been looked at.
    let connection = async {
        drop(connection.await);
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => match never {},
    }
}

async fn read(mut response: Response<Incoming>, deadline: Instant) -> Answer {
    let body = match timeout_at(deadline, read_body(response.body_mut())).await {
        Ok(read) => read.map_err(|error| telemetry::chain(&error)),
        Err(_) => Err("it was not there in time".to_owned()),
    };
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| redirects);
    Answer {
        status: response.status(),
        location: location
            .filter(|location| !location.is_empty())
            .map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned()),
        body,
    }
}

async fn read_body(body: &mut Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_BODY_BYTES {
        let Some(frame) = body.frame().await else {
            break;
        };
        if let Some(data) = frame?.data_ref() {
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}
