//! Follows the objects of one kind: lists and watches them for ever, as `reflector` says.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use rand::Rng as _;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use crate::client::{ApiRequest, Client, ClientError};
use crate::health::Health;
use crate::kind::{Kind, Listed, NotTaken};
use crate::object::{MAX_OBJECT_BYTES, Refusal, WatchEvent};
use crate::objects::Objects;
use crate::pace::Lane;
use crate::reflector::{self, Next, Outcome, Reflector, Version};

/// How long a watch lasts at least, and at most twice: the API server ends it then.
const WATCH_SECONDS: u64 = 300;

/// Lists and watches the objects of one kind.
pub(crate) struct Follower {
    pub(crate) kind: Kind,
    pub(crate) lists: Arc<Client>,
    pub(crate) watches: Arc<Client>,
    pub(crate) objects: Objects,
    pub(crate) health: Health,
    pub(crate) random: SmallRng,
}

/// Why a line of a watch ends it.
enum End {
    Expired,
    Failed,
}

impl Follower {
    /// Follows for ever, from a list on that is not older than `seen`.
    pub(crate) async fn run(mut self, seen: Option<String>) -> Infallible {
        let begin = Instant::now();
        let mut reflector = Reflector::new(seen);
        loop {
            let outcome = match reflector.next().clone() {
                Next::List(version) => self.list(&version).await,
                Next::Watch(version) => self.watch(version).await,
            };
            let random = self.random.random_range(0.0..=1.0);
            let wait = reflector.on(outcome, begin.elapsed(), random);
            // Both are cancel-safe: they only wait. After a long outage the wait is long, and
            // other requests find out before that the API server is there again.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.health.comes_back() => {}
            }
        }
    }

    async fn list(&mut self, version: &Version) -> Outcome {
        let Kind { path, selector, .. } = &self.kind;
        let asked = match version {
            Version::Any => "&resourceVersion=0".to_owned(),
            Version::NotOlderThan(version) => {
                format!("&resourceVersion={version}&resourceVersionMatch=NotOlderThan")
            }
            Version::Newest => String::new(),
        };
        let path = format!("{path}?fieldSelector={selector}{asked}");
        let answer = match self.lists.send(Lane::Other, &ApiRequest::get(path)).await {
            Ok(answer) => answer,
            Err(_) => return Outcome::ListFailed,
        };
        if !answer.status.is_success() {
            let refusal = Refusal::of(answer.status.as_u16(), &answer.body);
            let is_of_version = refusal.is_of_version();
            // Asked for the newest, an API server that says so is not well.
            if !is_of_version || *version == Version::Newest {
                self.refused("list", &refusal);
            }
            if is_of_version {
                return Outcome::ListExpired;
            }
            return Outcome::ListFailed;
        }
        let seen = match version {
            Version::NotOlderThan(version) => Some(version.as_str()),
            Version::Any | Version::Newest => None,
        };
        let Listed {
            objects,
            version,
            left_out,
        } = match self.kind.list(&answer.body, seen) {
            Ok(listed) => listed,
            Err(error) => {
                self.failed(&telemetry::chain(&error));
                return Outcome::ListFailed;
            }
        };
        left_out.iter().for_each(|error| self.is_odd(error));
        self.objects.listed(objects, &version);
        Outcome::Listed(version)
    }

    async fn watch(&mut self, mut version: String) -> Outcome {
        let Kind { path, selector, .. } = &self.kind;
        let seconds = self.random.random_range(WATCH_SECONDS..=2 * WATCH_SECONDS);
        let path = format!(
            "{path}?fieldSelector={selector}&watch=true&allowWatchBookmarks=true\
             &resourceVersion={version}&timeoutSeconds={seconds}"
        );
        let begin = Instant::now();
        let response = match self.watches.watch(path).await {
            Ok(response) => response,
            Err(_) => return Outcome::WatchFailed,
        };
        let status = response.status();
        let mut lines = Lines::new(response.into_body());
        if !status.is_success() {
            let body = match lines.next().await {
                Ok(Some(Line::Whole(body))) => body,
                Ok(Some(Line::TooLong) | None) | Err(_) => Vec::new(),
            };
            let refusal = Refusal::of(status.as_u16(), &body);
            if refusal.is_of_version() {
                return Outcome::WatchExpired;
            }
            self.refused("watch", &refusal);
            return Outcome::WatchFailed;
        }
        // A watch that says nothing for longer than it was to last has been forgotten.
        let until = begin + Duration::from_secs(seconds) + Duration::from_secs(30);
        let before = version.clone();
        loop {
            let line = match tokio::time::timeout_at(until, lines.next()).await {
                Ok(Ok(Some(Line::Whole(line)))) => line,
                Ok(Ok(Some(Line::TooLong))) => {
                    let path = self.kind.path;
                    let what =
                        format!("{path} has an object of more than {MAX_OBJECT_BYTES} bytes");
                    self.health.is_odd(&what);
                    continue;
                }
                // The end, or a connection that broke: the last version stands.
                Ok(Ok(None) | Err(_)) | Err(_) => {
                    let (had_events, lasted) = (version != before, begin.elapsed());
                    if reflector::is_too_short(lasted, had_events) {
                        self.failed(&format!("a watch of {} ended at once", self.kind.path));
                    }
                    return Outcome::WatchEnded {
                        had_events,
                        version,
                        lasted,
                    };
                }
            };
            match self.take(&line, &version) {
                Ok(Some(reached)) => {
                    self.objects.reached(&reached);
                    version = reached;
                }
                Ok(None) => {}
                Err(End::Expired) => return Outcome::WatchExpired,
                Err(End::Failed) => return Outcome::WatchFailed,
            }
        }
    }

    /// Takes one line of a watch in, which has reached the version `seen`; the version that it
    /// reaches now.
    fn take(&self, line: &[u8], seen: &str) -> Result<Option<String>, End> {
        let Ok(WatchEvent { kind, object }) = serde_json::from_slice(line) else {
            self.failed(&format!("a watch of {} is no JSON", self.kind.path));
            return Err(End::Failed);
        };
        let json = object.get();
        let taken = match &*kind {
            "ADDED" | "MODIFIED" => self.kind.changed(json, seen).map(|object| {
                let version = object.version.clone();
                self.objects.changed(object);
                version
            }),
            "DELETED" => self.kind.changed(json, seen).map(|object| {
                self.objects.gone(&object.uid);
                object.version
            }),
            "BOOKMARK" => self.kind.bookmark(json, seen),
            _ => {
                let refusal = Refusal::of(500, json.as_bytes());
                if refusal.is_of_version() {
                    return Err(End::Expired);
                }
                self.refused("watch", &refusal);
                return Err(End::Failed);
            }
        };
        // One that is not taken changes nothing, and the watch goes on.
        Ok(taken.map_err(|error| self.is_odd(&error)).ok())
    }

    fn refused(&self, verb: &str, refusal: &Refusal) {
        let Refusal { code, message, .. } = refusal;
        self.failed(&format!("{verb} of {}: {code} {message}", self.kind.path));
    }

    fn failed(&self, error: &str) {
        self.health.failed(error);
    }

    fn is_odd(&self, error: &NotTaken) {
        self.health.is_odd(&telemetry::chain(error));
    }
}

/// One line of a body.
enum Line {
    Whole(Vec<u8>),
    /// It is longer than [`MAX_OBJECT_BYTES`], and left out.
    TooLong,
}

/// The lines of a body.
struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    /// No line ends in so many bytes of the buffer.
    searched: usize,
    /// The line that comes is too long.
    skips: bool,
}

impl Lines {
    fn new(body: Incoming) -> Lines {
        Lines {
            body,
            buffer: Vec::new(),
            searched: 0,
            skips: false,
        }
    }

    /// The next line; none at the end.
    async fn next(&mut self) -> Result<Option<Line>, ClientError> {
        loop {
            let new = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(found) = new.iter().position(|byte| *byte == b'\n') {
                let end = std::mem::take(&mut self.searched) + found;
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(Some(match std::mem::take(&mut self.skips) {
                    true => Line::TooLong,
                    false => Line::Whole(line),
                }));
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_OBJECT_BYTES {
                self.skips = true;
                self.buffer = Vec::new();
                self.searched = 0;
            }
            let Some(frame) = self.body.frame().await else {
                let last = std::mem::take(&mut self.buffer);
                return Ok(match (std::mem::take(&mut self.skips), last.is_empty()) {
                    (true, _) => Some(Line::TooLong),
                    (false, true) => None,
                    (false, false) => Some(Line::Whole(last)),
                });
            };
            let data = frame?.into_data().unwrap_or(Bytes::new());
            self.buffer.extend_from_slice(&data);
        }
    }
}
