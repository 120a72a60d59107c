//! One bounded GET over plain HTTP/1.1. What is got is somebody else's word:
//! bounded in size and time, redirected only within its scheme.

use std::time::Duration;

use http::header::{HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use pod_validation::MAX_MANIFEST_BYTES;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

/// Time for all of a request, redirects included (the kubelet's).
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Redirects that are followed (Go's default, and so the kubelet's).
const MAX_REDIRECTS: usize = 10;

const PRODUCT: &str = concat!("bulkhead/", env!("CARGO_PKG_VERSION"));

/// Why nothing was got.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The URL cannot be used.
    #[error("{url:?} {problem}")]
    Url {
        /// The URL, or where a redirect led.
        url: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No connection.
    #[error("cannot connect to {authority}")]
    Connect {
        /// Host and port.
        authority: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The connection broke, or its other end does not speak HTTP.
    #[error("{authority} gave no proper answer")]
    Exchange {
        /// Host and port.
        authority: String,
        /// The cause.
        source: hyper::Error,
    },
    /// The answer is no success.
    #[error("{authority} answered {status}")]
    Status {
        /// Host and port.
        authority: String,
        /// Its answer.
        status: StatusCode,
    },
    /// The body broke off or is too large.
    #[error("cannot read the answer of {authority}")]
    Body {
        /// Host and port.
        authority: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Redirects without end.
    #[error("more than {MAX_REDIRECTS} redirects")]
    Redirects,
    /// It took too long.
    #[error("no complete answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// What and whom to ask.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// The URL.
    pub uri: Uri,
    /// Headers of the operator's; only the host of the URL gets them.
    pub headers: HeaderMap,
}

/// Gets the body of a successful answer.
///
/// # Errors
/// When there is none in time, of a bearable size.
pub async fn get(request: &HttpRequest) -> Result<Bytes, HttpError> {
    match tokio::time::timeout(TIMEOUT, get_redirected(request)).await {
        Ok(result) => result,
        Err(_) => Err(HttpError::Timeout),
    }
}

async fn get_redirected(request: &HttpRequest) -> Result<Bytes, HttpError> {
    let mut uri = request.uri.clone();
    for _ in 0..=MAX_REDIRECTS {
        let target = Target::of(&uri)?;
        let trusted = uri.authority() == request.uri.authority();
        let headers = if trusted {
            request.headers.clone()
        } else {
            HeaderMap::new()
        };
        let response = exchange(&target, headers).await?;
        match response {
            Answer::Body(body) => return Ok(body),
            Answer::Redirect(location) => uri = target.relative(&location)?,
        }
    }
    Err(HttpError::Redirects)
}

enum Answer {
    Body(Bytes),
    Redirect(String),
}

async fn exchange(target: &Target, headers: HeaderMap) -> Result<Answer, HttpError> {
    let authority = || target.authority.clone();
    let stream = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(|source| HttpError::Connect {
            authority: authority(),
            source,
        })?;
    let exchange_error = |source| HttpError::Exchange {
        authority: authority(),
        source,
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(exchange_error)?;
    // Ends with this function; its own errors come out of the request too.
    let _connection = AbortOnDropHandle::new(tokio::spawn(async move {
        drop(connection.await);
    }));
    let mut outgoing = Request::new(Empty::<Bytes>::new());
    *outgoing.uri_mut() = target.path.clone();
    *outgoing.headers_mut() = headers;
    outgoing
        .headers_mut()
        .entry(HOST)
        .or_insert(target.host_header.clone());
    outgoing
        .headers_mut()
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(PRODUCT));
    let response = sender
        .send_request(outgoing)
        .await
        .map_err(exchange_error)?;
    let status = response.status();
    if status.is_redirection()
        && let Some(location) = response.headers().get(LOCATION)
    {
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        return Ok(Answer::Redirect(location));
    }
    if !status.is_success() {
        return Err(HttpError::Status {
            authority: authority(),
            status,
        });
    }
    Limited::new(response.into_body(), MAX_MANIFEST_BYTES)
        .collect()
        .await
        .map(|body| Answer::Body(body.to_bytes()))
        .map_err(|source| HttpError::Body {
            authority: authority(),
            source,
        })
}

/// Where one request goes.
#[derive(Debug)]
struct Target {
    host: String,
    port: u16,
    /// Path and query.
    path: Uri,
    authority: String,
    host_header: HeaderValue,
}

impl Target {
    fn of(uri: &Uri) -> Result<Self, HttpError> {
        let refused = |problem| HttpError::Url {
            url: shown(&uri.to_string()),
            problem,
        };
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(refused("is https, which is not supported yet")),
            _ => return Err(refused("is no http URL")),
        }
        let authority = uri.authority().ok_or_else(|| refused("names no host"))?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if host.is_empty() {
            return Err(refused("names no host"));
        }
        // Without a user's name and password, which are not for logs.
        let without_user = match authority.as_str().rsplit_once('@') {
            Some((_, rest)) => rest,
            None => authority.as_str(),
        };
        let port = match without_user.strip_prefix(authority.host()) {
            Some("" | ":") => 80,
            _ => authority
                .port_u16()
                .ok_or_else(|| refused("has a port that is no number"))?,
        };
        let host_header = HeaderValue::from_str(without_user)
            .map_err(|_| refused("names a host that no header can have"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.parse().map_err(|_| refused("has no proper path"))?;
        Ok(Self {
            host: host.to_owned(),
            port,
            path,
            authority: without_user.to_owned(),
            host_header,
        })
    }

    /// Where a redirect leads from here; never to another scheme.
    fn relative(&self, location: &str) -> Result<Uri, HttpError> {
        let refused = |problem| HttpError::Url {
            url: shown(location),
            problem,
        };
        let absolute = if location.contains("://") {
            location.to_owned()
        } else if let Some(rest) = location.strip_prefix("//") {
            format!("http://{rest}")
        } else if location.starts_with('/') {
            format!("http://{}{location}", self.authority)
        } else {
            let directory = self
                .path
                .path()
                .rsplit_once('/')
                .map_or("", |(before, _)| before);
            format!("http://{}{directory}/{location}", self.authority)
        };
        let uri: Uri = absolute
            .parse()
            .map_err(|_| refused("is no URL to be redirected to"))?;
        match uri.scheme_str() {
            Some("http") => Ok(uri),
            _ => Err(refused("is a redirect to another scheme")),
        }
    }
}

/// A URL as it may be shown: without a password, and short.
pub(crate) fn shown(url: &str) -> String {
    let without_user = match url.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            match rest[..end].rfind('@') {
                Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
                None => url.to_owned(),
            }
        }
        None => url.to_owned(),
    };
    without_user.chars().take(256).collect()
}

#[cfg(test)]
mod tests;
