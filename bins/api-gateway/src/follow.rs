//! Follows the objects of one kind: lists and watches them for ever, as `reflector` says.

use std::convert::{Infallible, identity};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use rand::Rng as _;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use crate::client::{ApiRequest, Client, ClientError};
use crate::health::Health;
use crate::object::{List, MAX_OBJECT_BYTES, Object, Refusal, WatchEvent};
use crate::objects::Objects;
use crate::pace::Lane;
use crate::reflector::{self, Next, Outcome, Reflector, Version};
use crate::service;

/// How long a watch lasts at least, and at most twice: the API server ends it then.
const WATCH_SECONDS: u64 = 300;

/// Which objects.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// The path of their list.
    pub(crate) path: &'static str,
    /// `fieldSelector`, as it stands in a query.
    pub(crate) selector: String,
    /// Pods of other nodes, which were not asked for, are left out.
    pub(crate) node_name: Option<String>,
    /// What is kept of each.
    pub(crate) keep: fn(Object) -> Object,
}

impl Kind {
    /// The pods that are bound to a node.
    pub(crate) fn pods(node: &str) -> Kind {
        Kind {
            path: "/api/v1/pods",
            selector: format!("spec.nodeName%3D{node}"),
            node_name: Some(node.to_owned()),
            keep: identity,
        }
    }

    /// One Node.
    pub(crate) fn node(name: &str) -> Kind {
        Kind {
            path: "/api/v1/nodes",
            selector: format!("metadata.name%3D{name}"),
            node_name: None,
            keep: identity,
        }
    }

    /// The Services that have an address.
    pub(crate) fn services() -> Kind {
        Kind {
            path: "/api/v1/services",
            selector: service::SELECTOR.to_owned(),
            node_name: None,
            keep: service::kept,
        }
    }
}

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
            tokio::time::sleep(wait).await;
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
        let list: List<'_> = match serde_json::from_slice(&answer.body) {
            Ok(list) => list,
            Err(error) => {
                self.failed(&format!("a list of {}: {error}", self.kind.path));
                return Outcome::ListFailed;
            }
        };
        let objects = list.items.iter().filter_map(|item| self.parse(item.get()));
        self.objects
            .listed(objects.collect(), &list.metadata.resource_version);
        Outcome::Listed(list.metadata.resource_version)
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
            let body = lines.next().await.ok().flatten().unwrap_or_default();
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
                Ok(Ok(Some(line))) => line,
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
            match self.take(&line) {
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

    /// Takes one line of a watch in; the version that it reaches.
    fn take(&self, line: &[u8]) -> Result<Option<String>, End> {
        let Ok(WatchEvent { kind, object }) = serde_json::from_slice(line) else {
            self.failed(&format!("a watch of {} is no JSON", self.kind.path));
            return Err(End::Failed);
        };
        match &*kind {
            "ADDED" | "MODIFIED" => Ok(self.parse(object.get()).map(|object| {
                let version = object.version.clone();
                self.objects.changed(object);
                version
            })),
            "DELETED" => Ok(self.parse(object.get()).map(|object| {
                self.objects.gone(&object.uid);
                object.version
            })),
            "BOOKMARK" => Ok(Object::parse(object.get()).ok().map(|it| it.version)),
            _ => {
                let refusal = Refusal::of(500, object.get().as_bytes());
                if refusal.is_of_version() {
                    return Err(End::Expired);
                }
                self.refused("watch", &refusal);
                Err(End::Failed)
            }
        }
    }

    /// An object, if it is one that was asked for.
    fn parse(&self, json: &str) -> Option<Object> {
        let kind = self.kind.path;
        let object = match Object::parse(json) {
            Ok(object) => object,
            Err(error) => {
                tracing::warn!(kind, %error, "an object of the API server cannot be read");
                return None;
            }
        };
        let wanted = self.kind.node_name.as_ref();
        if object.uid.is_empty() || wanted.is_some_and(|node| *node != object.node_name) {
            let Object {
                namespace, name, ..
            } = &object;
            tracing::warn!(kind, namespace, name, "an object that was not asked for");
            return None;
        }
        Some((self.kind.keep)(object))
    }

    fn refused(&self, verb: &str, refusal: &Refusal) {
        let Refusal { code, message, .. } = refusal;
        self.failed(&format!("{verb} of {}: {code} {message}", self.kind.path));
    }

    fn failed(&self, error: &str) {
        self.health.failed(error);
    }
}

/// The lines of a body, each at most [`MAX_OBJECT_BYTES`] long; a longer one is left out.
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
    async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        loop {
            let new = self.buffer.get(self.searched..).unwrap_or_default();
            if let Some(found) = new.iter().position(|byte| *byte == b'\n') {
                let end = std::mem::take(&mut self.searched) + found;
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                if !std::mem::take(&mut self.skips) {
                    return Ok(Some(line));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.searched > MAX_OBJECT_BYTES {
                if !self.skips {
                    tracing::warn!("an object of more than {MAX_OBJECT_BYTES} bytes is left out");
                }
                self.skips = true;
                self.buffer = Vec::new();
                self.searched = 0;
            }
            let Some(frame) = self.body.frame().await else {
                let last = std::mem::take(&mut self.buffer);
                return Ok((!last.is_empty() && !self.skips).then_some(last));
            };
            let data = frame?.into_data().unwrap_or(Bytes::new());
            self.buffer.extend_from_slice(&data);
        }
    }
}
