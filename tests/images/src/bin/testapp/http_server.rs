//! A small HTTP/1.1 server, one request per connection. Written out because a
//! test wants to see and shape the bytes, and because the image stays small.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::options::Options;

/// Longest request head that is read.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Whether the program counts as healthy, and how often it was asked.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    healthy_after: Duration,
    unhealthy_after: Option<Duration>,
    file: Option<PathBuf>,
    /// Status ordered by `POST /healthz?status=N`; 0 when none was.
    ordered: AtomicU16,
    asked: AtomicU64,
}

impl Health {
    pub(crate) fn new(options: &Options, started: Instant) -> Self {
        Self {
            started,
            healthy_after: Duration::from_millis(options.healthy_after_ms),
            unhealthy_after: options.unhealthy_after_ms.map(Duration::from_millis),
            file: options.health_file.clone(),
            ordered: AtomicU16::new(0),
            asked: AtomicU64::new(0),
        }
    }

    /// The status code of a health answer now: an order comes before the
    /// file, the file before the time since the start.
    pub(crate) fn status(&self) -> u16 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let ordered = self.ordered.load(Ordering::Relaxed);
        if ordered != 0 {
            return ordered;
        }
        if let Some(text) = self
            .file
            .as_ref()
            .and_then(|path| std::fs::read_to_string(path).ok())
            && let Ok(status) = text.trim().parse()
        {
            return status;
        }
        let up = self.started.elapsed();
        let failing = up < self.healthy_after || self.unhealthy_after.is_some_and(|at| up >= at);
        if failing { 503 } else { 200 }
    }
}

/// Serves until the process ends.
pub(crate) async fn serve(
    listener: TcpListener,
    health: Arc<Health>,
    exit_requests: mpsc::Sender<u8>,
) -> std::io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        // Both are cancel-safe: accept takes nothing until it is ready, and
        // join_next leaves the set as it is.
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let (health, exit_requests) = (Arc::clone(&health), exit_requests.clone());
                connections.spawn(async move {
                    // A peer that went away concerns nobody.
                    let _ = answer(stream, &health, &exit_requests).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    head: String,
}

impl Request {
    /// The value of `key` in the query string.
    fn parameter<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == key)
            .and_then(|(_, value)| value.parse().ok())
    }
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<Request> {
    let mut bytes = Vec::new();
    let mut chunk = [0_u8; 4096];
    while !bytes.windows(4).any(|window| window == b"\r\n\r\n") && bytes.len() < MAX_HEAD_BYTES {
        match stream.read(&mut chunk).await? {
            0 => break,
            count => bytes.extend_from_slice(&chunk[..count]),
        }
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut words = head.lines().next().unwrap_or("").split_whitespace();
    let method = words.next().unwrap_or("").to_owned();
    let target = words.next().unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        head: head.clone(),
    })
}

async fn answer(
    mut stream: TcpStream,
    health: &Health,
    exit_requests: &mpsc::Sender<u8>,
) -> std::io::Result<()> {
    let request = read_request(&mut stream).await?;
    let mut extra = String::new();
    let (status, body) = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => (200, format!("hello from {}\n", hostname())),
        ("GET", "/healthz") => {
            let status = health.status();
            (status, format!("health {status}\n"))
        }
        ("POST", "/healthz") => {
            let status = request.parameter("status").unwrap_or(0);
            health.ordered.store(status, Ordering::Relaxed);
            (200, format!("health is {status} now\n"))
        }
        ("GET", "/asked") => (200, format!("{}\n", health.asked.load(Ordering::Relaxed))),
        ("GET", "/hostname") => (200, format!("{}\n", hostname())),
        ("GET", "/env") => (200, environment()),
        ("GET", "/headers") => (200, request.head.clone()),
        ("GET", "/slow") => {
            let wait = request.parameter("ms").unwrap_or(1000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            (200, "slow\n".to_owned())
        }
        ("GET", "/redirect") => {
            let to: String = request
                .parameter("to")
                .unwrap_or_else(|| "/healthz".to_owned());
            let _ = write!(extra, "Location: {to}\r\n");
            (302, String::new())
        }
        ("GET", "/file") => {
            let path: String = request.parameter("path").unwrap_or_default();
            match std::fs::read_to_string(path) {
                Ok(text) => (200, text),
                Err(error) => (404, format!("{error}\n")),
            }
        }
        ("POST", "/exit") => (200, "bye\n".to_owned()),
        _ => (404, "no such page\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{extra}Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await?;
    if (request.method.as_str(), request.path.as_str()) == ("POST", "/exit") {
        let code = request.parameter("code").unwrap_or(0);
        // Full or closed means that an ending is under way already.
        let _ = exit_requests.try_send(code);
    }
    Ok(())
}

fn hostname() -> String {
    nix::unistd::gethostname().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn environment() -> String {
    let mut lines: Vec<String> = std::env::vars_os()
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
        .collect();
    lines.sort();
    lines.join("\n") + "\n"
}
