//! One bounded GET over HTTP/1.1, plain or through TLS. What is got is somebody
//! else's word: bounded in size and time, redirected only within `http` and
//! `https`, never from `https` to `http`, and never to addresses that [`egress`]
//! refuses. The first address is the operator's own choice and goes wherever it leads.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clock::WallClock;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::header::{AUTHORIZATION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use node_config::egress;
use percent_encoding::percent_decode_str;
use pod::ByteString;
use pod_manifest::MAX_MANIFEST_BYTES;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::tls::{Tls, TlsError};

/// Time for all of a request, redirects included (the kubelet's).
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a connection, of that: so that one that never comes about is told as that.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(8);

/// When the next address of a name is tried too (Go's default, and so the kubelet's). The
/// kernel alone gives up on one that does not answer after two minutes.
const NEXT_ADDRESS: Duration = Duration::from_millis(300);

/// Addresses of which it is told why they could not be connected to.
const MAX_FAILURES: usize = 4;

/// Redirects that are followed (Go's default, and so the kubelet's).
const MAX_REDIRECTS: usize = 10;

const PRODUCT: &str = concat!("bulkhead/", env!("CARGO_PKG_VERSION"));

/// Why nothing was got.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
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
        source: io::Error,
    },
    /// A redirect led where none may lead.
    #[error("a redirect leads to {authority}, which is {address}: {refusal}")]
    RefusedAddress {
        /// Host and port.
        authority: String,
        /// The address that the host has.
        address: IpAddr,
        /// Why not there.
        refusal: egress::Refusal,
    },
    /// No connection that could be trusted.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The connection broke, or its other end does not speak HTTP.
    #[error("{authority} gave no proper answer")]
    Exchange {
        /// Host and port.
        authority: String,
        /// The cause.
        source: hyper::Error,
    },
    /// The answer is not 200.
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
pub(crate) struct HttpRequest {
    /// The URL. Only its host gets the user and the password in it.
    pub uri: Uri,
    /// Headers of the operator's; only the host of the URL gets them.
    pub headers: HeaderMap,
}

/// Asks one server again and again.
#[derive(Debug)]
pub(crate) struct HttpClient {
    tls: Tls,
}

impl HttpClient {
    /// Trusts the system's authorities. `clock` tells whether a certificate is
    /// valid now.
    #[must_use]
    pub(crate) fn new(clock: WallClock) -> Self {
        Self::with_tls(Tls::new(clock))
    }

    pub(crate) fn with_tls(tls: Tls) -> Self {
        Self { tls }
    }

    /// Gets the body of a successful answer.
    ///
    /// # Errors
    /// When there is none in time, of a bearable size.
    pub(crate) async fn get(&mut self, request: &HttpRequest) -> Result<Bytes, HttpError> {
        match tokio::time::timeout(TIMEOUT, self.get_redirected(request)).await {
            Ok(result) => result,
            Err(_) => Err(HttpError::Timeout),
        }
    }

    async fn get_redirected(&mut self, request: &HttpRequest) -> Result<Bytes, HttpError> {
        let first = Target::of(&request.uri)?;
        let mut target = Target::of(&request.uri)?;
        let mut own_headers = request.headers.clone();
        if let Some(authorization) = authorization(&request.uri) {
            own_headers.entry(AUTHORIZATION).or_insert(authorization);
        }
        let mut redirected_by = None;
        for _ in 0..=MAX_REDIRECTS {
            let headers = if target.is_same_host(&first) {
                own_headers.clone()
            } else {
                HeaderMap::new()
            };
            let (peer, answer) = self.exchange(&target, headers, redirected_by).await?;
            match answer {
                Answer::Body(body) => return Ok(body),
                Answer::Redirect(location) => target = target.relative(&location)?,
            }
            redirected_by = Some(peer);
        }
        Err(HttpError::Redirects)
    }

    /// One request, and which address answered it.
    async fn exchange(
        &mut self,
        target: &Target,
        headers: HeaderMap,
        redirected_by: Option<IpAddr>,
    ) -> Result<(IpAddr, Answer), HttpError> {
        let (stream, peer) = connect(target, redirected_by).await?;
        let answer = match target.scheme {
            Scheme::Http => converse(stream, target, headers).await?,
            Scheme::Https => {
                let stream = self
                    .tls
                    .connect(&target.host, &target.authority, stream)
                    .await?;
                converse(stream, target, headers).await?
            }
        };
        Ok((peer, answer))
    }
}

/// What the user and the password in a URL make of `Authorization`. As for the kubelet,
/// a header that the operator wrote wins over it.
fn authorization(uri: &Uri) -> Option<HeaderValue> {
    let (named, _host) = uri.authority()?.as_str().rsplit_once('@')?;
    let (user, password) = named.split_once(':').unwrap_or((named, ""));
    let mut credentials: Vec<u8> = percent_decode_str(user).collect();
    credentials.push(b':');
    credentials.extend(percent_decode_str(password));
    let encoded = serde_json::to_value(ByteString(credentials)).ok()?;
    let mut value = HeaderValue::try_from(format!("Basic {}", encoded.as_str()?)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Connects to an address of a target. The addresses that were judged are those that are
/// connected to: a name that has others a moment later changes nothing.
async fn connect(
    target: &Target,
    redirected_by: Option<IpAddr>,
) -> Result<(TcpStream, IpAddr), HttpError> {
    let failed = |source| HttpError::Connect {
        authority: target.authority.clone(),
        source,
    };
    let addresses: Vec<SocketAddr> = lookup_host((target.host.as_str(), target.port))
        .await
        .map_err(failed)?
        .collect();
    if let Some((address, refusal)) = refused(&addresses, redirected_by) {
        return Err(HttpError::RefusedAddress {
            authority: target.authority.clone(),
            address,
            refusal,
        });
    }
    let stream = first_to_answer(&addresses, TcpStream::connect);
    let stream = stream.await.map_err(failed)?;
    let peer = stream.peer_addr().map_err(failed)?.ip();
    Ok((stream, peer))
}

/// The first connection that comes about with one of these addresses. One that does not
/// answer holds up the next one for no longer than [`NEXT_ADDRESS`].
async fn first_to_answer<S, F: Future<Output = io::Result<S>>>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<S> {
    let begin = Instant::now();
    let connect = &connect;
    let tries = (0u32..).zip(addresses).map(|(number, address)| async move {
        let turn = begin + NEXT_ADDRESS * number;
        let tried = async {
            tokio::time::sleep_until(turn).await;
            connect(*address).await
        };
        tokio::time::timeout_at(begin + CONNECTION_TIMEOUT, tried)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| format!("{address}: {error}"))
    });
    let mut tries: FuturesUnordered<_> = tries.collect();
    let mut failures = Vec::new();
    while let Some(tried) = tries.next().await {
        match tried {
            Ok(stream) => return Ok(stream),
            Err(failure) => failures.push(failure),
        }
    }
    failures.truncate(MAX_FAILURES);
    Err(io::Error::other(failures.join("; ")))
}

/// Which of these addresses may not be connected to. Where the operator's own URL leads
/// (`redirected_by` is `None`) is for the operator to say, and may be a metadata service
/// that has manifests. A redirect may stay at the address that sent it, which has nothing
/// to gain from that, and leads to no other address that is refused.
fn refused(
    addresses: &[SocketAddr],
    redirected_by: Option<IpAddr>,
) -> Option<(IpAddr, egress::Refusal)> {
    let redirected_by = redirected_by?;
    addresses
        .iter()
        .map(SocketAddr::ip)
        .filter(|address| *address != redirected_by)
        .find_map(|address| Some((address, egress::refusal(address)?)))
}

enum Answer {
    Body(Bytes),
    Redirect(String),
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    target: &Target,
    headers: HeaderMap,
) -> Result<Answer, HttpError> {
    let authority = || target.authority.clone();
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
    let response = sender
        .send_request(outgoing(target, headers))
        .await
        .map_err(exchange_error)?;
    let status = response.status();
    if status.is_redirection()
        && let Some(location) = response.headers().get(LOCATION)
    {
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        return Ok(Answer::Redirect(location));
    }
    // As with a kubelet: any other success is no promise that this is the whole manifest.
    if status != StatusCode::OK {
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

fn outgoing(target: &Target, headers: HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = target.path.clone();
    *request.headers_mut() = headers;
    let headers = request.headers_mut();
    headers.entry(HOST).or_insert(target.host_header.clone());
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(PRODUCT));
    request
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn of(uri: &Uri) -> Option<Self> {
        match uri.scheme_str() {
            Some("http") => Some(Scheme::Http),
            Some("https") => Some(Scheme::Https),
            _ => None,
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// Where one request goes.
#[derive(Debug)]
struct Target {
    scheme: Scheme,
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
        let scheme = Scheme::of(uri).ok_or_else(|| refused("is no http or https URL"))?;
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
            Some("" | ":") => scheme.default_port(),
            _ => authority
                .port_u16()
                .ok_or_else(|| refused("has a port that is no number"))?,
        };
        let host_header = HeaderValue::from_str(without_user)
            .map_err(|_| refused("names a host that no header can have"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.parse().map_err(|_| refused("has no proper path"))?;
        Ok(Self {
            scheme,
            host: host.to_owned(),
            port,
            path,
            authority: without_user.to_owned(),
            host_header,
        })
    }

    /// Whether both are one server: the same host, and the same port or that of
    /// the scheme, which is another one with TLS.
    fn is_same_host(&self, other: &Self) -> bool {
        let own_port = |target: &Self| {
            let own = target.port != target.scheme.default_port();
            own.then_some(target.port)
        };
        self.host.eq_ignore_ascii_case(&other.host) && own_port(self) == own_port(other)
    }

    /// Where a redirect leads from here.
    fn relative(&self, location: &str) -> Result<Target, HttpError> {
        let refused = |problem| HttpError::Url {
            url: shown(location),
            problem,
        };
        let scheme = self.scheme.as_str();
        let absolute = if has_scheme(location) {
            location.to_owned()
        } else if let Some(rest) = location.strip_prefix("//") {
            format!("{scheme}://{rest}")
        } else if location.starts_with('/') {
            format!("{scheme}://{}{location}", self.authority)
        } else if location.starts_with('?') {
            format!(
                "{scheme}://{}{}{location}",
                self.authority,
                self.path.path()
            )
        } else {
            let directory = self
                .path
                .path()
                .rsplit_once('/')
                .map_or("", |(before, _)| before);
            format!("{scheme}://{}{directory}/{location}", self.authority)
        };
        let uri: Uri = absolute
            .parse()
            .map_err(|_| refused("is no URL to be redirected to"))?;
        match (self.scheme, Scheme::of(&uri)) {
            (_, None) => Err(refused("is a redirect to another scheme")),
            (Scheme::Https, Some(Scheme::Http)) => Err(refused("is a redirect away from https")),
            _ => Target::of(&uri),
        }
    }
}

/// Whether a reference begins with a scheme, as RFC 3986 has it in section 3.1.
fn has_scheme(reference: &str) -> bool {
    reference.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|each| each.is_ascii_alphanumeric() || "+-.".contains(each))
    })
}

/// A URL as it may be shown: without a password, without its query, which may be one too,
/// and short.
pub(crate) fn shown(url: &str) -> String {
    let mut text = node_config::url_without_secrets(url);
    if url.split('#').next().is_some_and(|it| it.contains('?')) {
        text.push_str("?...");
    }
    text.chars().take(256).collect()
}

#[cfg(test)]
mod tests;
