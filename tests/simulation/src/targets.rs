//! What the containers of a simulated node answer to probes: each has a port of
//! its own for each kind of probe, which tells who is meant. Every answer that was
//! given is remembered, for comparing with what is published.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clock::{UnixNanos, WallClock};
use prober::{ByteStream, LookupPlace, ProbeNetwork};
use simulated_runtime::SimulatedRuntime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::desired::{Desired, VERSION_LABEL};
use crate::probe_ports::{ProbeKind, owner};

/// Room for one request and its answer.
const PIPE_BYTES: usize = 4096;

const WELL: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

const UNWELL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Equal answers to a readiness probe, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) well: bool,
    /// When the first was given.
    pub(crate) since: UnixNanos,
    pub(crate) tries: u32,
}

/// All that can be probed. Clones share it.
#[derive(Clone, Debug)]
pub struct Targets {
    runtime: SimulatedRuntime,
    clock: WallClock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    versions: BTreeMap<u32, Desired>,
    /// Version and container of those that are not ready.
    unready: BTreeSet<(u32, String)>,
    /// Container instances that do nothing any more, and since when.
    hung: BTreeMap<String, UnixNanos>,
    /// When instances were first asked whether they have started.
    starting: BTreeMap<String, UnixNanos>,
    /// Answers to readiness probes, by instance.
    readiness: BTreeMap<String, Vec<Answers>>,
    /// Answers to liveness and startup probes, by instance: when, and whether well.
    others: BTreeMap<(String, ProbeKind), Vec<(UnixNanos, bool)>>,
}

/// How a target answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Well,
    Unwell,
    /// Nobody listens.
    Refuses,
    /// Takes the request and says nothing.
    Silent,
}

impl Targets {
    pub(crate) fn new(runtime: SimulatedRuntime, clock: WallClock) -> Targets {
        Targets {
            runtime,
            clock,
            state: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a version known before it runs.
    pub(crate) fn add(&self, pod: &Desired) {
        self.lock().versions.insert(pod.version(), pod.clone());
    }

    /// Turns the readiness of a container; whether it is ready now.
    pub(crate) fn turn(&self, version: u32, container: &str) -> bool {
        let mut state = self.lock();
        let key = (version, container.to_owned());
        let was_unready = state.unready.remove(&key);
        if !was_unready {
            state.unready.insert(key);
        }
        was_unready
    }

    /// What a container that works answers to its readiness probe.
    pub(crate) fn is_ready(&self, version: u32, container: &str) -> bool {
        let key = (version, container.to_owned());
        !self.lock().unready.contains(&key)
    }

    /// From now on a container instance answers nothing.
    pub(crate) fn hang(&self, container_id: &str) {
        let now = self.clock.now();
        self.lock()
            .hung
            .entry(container_id.to_owned())
            .or_insert(now);
    }

    /// Since when an instance answers nothing.
    pub(crate) fn hung_since(&self, container_id: &str) -> Option<UnixNanos> {
        self.lock().hung.get(container_id).copied()
    }

    /// What an instance answered to its readiness probe so far.
    pub(crate) fn readiness_answers(&self, container_id: &str) -> Vec<Answers> {
        let state = self.lock();
        state
            .readiness
            .get(container_id)
            .cloned()
            .unwrap_or_default()
    }

    /// What an instance answered to its liveness or startup probe before `until`, the
    /// newest answer first.
    pub(crate) fn answers_before(
        &self,
        container_id: &str,
        kind: ProbeKind,
        until: UnixNanos,
    ) -> Vec<bool> {
        let state = self.lock();
        let all = state.others.get(&(container_id.to_owned(), kind));
        let all = all.into_iter().flatten().rev();
        all.filter(|(at, _)| *at < until)
            .map(|(_, well)| *well)
            .collect()
    }

    /// How whoever listens at a port answers now.
    fn ask(&self, port: u16) -> Manner {
        let Some((version, container, kind)) = owner(port) else {
            return Manner::Refuses;
        };
        let label = format!("v{version}");
        let Some(instance) = self.runtime.newest((VERSION_LABEL, &label), container) else {
            return Manner::Refuses;
        };
        let now = self.clock.now();
        let mut state = self.lock();
        let (id, is_hung) = (instance.id.clone(), state.hung.contains_key(&instance.id));
        let is_well = match kind {
            ProbeKind::Liveness => true,
            ProbeKind::Readiness => !state.unready.contains(&(version, container.to_owned())),
            ProbeKind::Startup => {
                let takes = state.versions.get(&version).and_then(Desired::start_time);
                let asked = *state.starting.entry(id.clone()).or_insert(now);
                now.since(asked) >= takes.unwrap_or(Duration::ZERO)
            }
        };
        let is_well = is_well && instance.running && !is_hung;
        match kind {
            ProbeKind::Readiness => note(state.readiness.entry(id).or_default(), is_well, now),
            ProbeKind::Liveness | ProbeKind::Startup => {
                let answers = state.others.entry((id, kind)).or_default();
                answers.push((now, is_well));
            }
        }
        let by_tcp = state.versions.get(&version).is_some_and(Desired::by_tcp);
        if is_well {
            Manner::Well
        } else if !instance.running || by_tcp {
            Manner::Refuses
        } else if is_hung {
            Manner::Silent
        } else {
            Manner::Unwell
        }
    }
}

fn note(answers: &mut Vec<Answers>, well: bool, now: UnixNanos) {
    match answers.last_mut() {
        Some(last) if last.well == well => last.tries += 1,
        _ => answers.push(Answers {
            well,
            since: now,
            tries: 1,
        }),
    }
}

#[async_trait]
impl ProbeNetwork for Targets {
    async fn resolve(&self, _host: &str, _place: LookupPlace) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::other("a simulated node knows no names"))
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        let answer = match self.ask(address.port()) {
            Manner::Well => Some(WELL),
            Manner::Unwell => Some(UNWELL),
            Manner::Silent => None,
            Manner::Refuses => return Err(io::ErrorKind::ConnectionRefused.into()),
        };
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        // Ends by itself when the prober closes its end.
        tokio::spawn(serve(far, answer));
        Ok(Box::new(near))
    }
}

/// Answers one request, or waits until nobody wants an answer any more.
async fn serve(mut stream: DuplexStream, answer: Option<&'static [u8]>) {
    let mut request = [0; PIPE_BYTES];
    while stream.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {
        if let Some(answer) = answer {
            drop(stream.write_all(answer).await);
            drop(stream.shutdown().await);
            return;
        }
    }
}
