//! Somebody who asks node-api for things, as a person does with kubectl: over TLS, with an
//! upgrade for a session. What comes of it is recorded in `sessions`.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::WallClock;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ipc::Stream;
use memory_network::MemoryHub;
use rand::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::node_network::{CLIENTS_PORT, HEALTH_PORT};
use crate::sessions::{Ask, End, Outcome, Records, Session};

/// Characters of the id that a session begins with.
const ID_BYTES: usize = 64;

/// What is said in a session, and how often.
const WORDS: [u8; 5] = *b"hello";
const SAID_EVERY: Duration = Duration::from_secs(1);

/// What somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// An answer.
    Ask(String),
    /// A session, for one echo or until it ends.
    Open { path: String, stays: bool },
}

impl Errand {
    /// What somebody wants now, mostly nothing, of pods of these numbers.
    pub(crate) fn random(pods: u32, random: &mut impl Rng) -> Option<Errand> {
        let pod = format!("default/p{}-node", random.random_range(0..pods));
        let stays = random.random_bool(0.7);
        Some(match random.random_range(0..24) {
            0 => Errand::Ask("/pods".to_owned()),
            1 => Errand::Ask("/runningpods".to_owned()),
            2 => Errand::Ask("/stats/summary".to_owned()),
            3 => Errand::Ask(format!("/containerLogs/{pod}/main")),
            4 => Errand::Open {
                path: format!("/attach/{pod}/main?input=1&output=1"),
                stays,
            },
            5..9 => Errand::Open {
                path: exec_path(&pod),
                stays,
            },
            _ => return None,
        })
    }
}

fn exec_path(pod: &str) -> String {
    format!("/exec/{pod}/main?command=sh&input=1&output=1")
}

/// What is seen when everything is served that has to be.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) health: String,
    /// The answer to `/pods`.
    pub(crate) pods: Bytes,
    /// Of each pod that was named the container in which a command ran, or why none did.
    pub(crate) containers: Vec<Result<String, String>>,
}

/// Somebody who asks.
#[derive(Debug)]
pub(crate) struct Visitor {
    way: Way,
    records: Arc<Mutex<Records>>,
    errands: JoinSet<()>,
}

/// The way to node-api.
#[derive(Clone)]
struct Way {
    hub: MemoryHub,
    connector: TlsConnector,
    clock: WallClock,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Way").finish_non_exhaustive()
    }
}

impl Visitor {
    #[expect(clippy::unwrap_used, reason = "ring has the versions of TLS")]
    pub(crate) fn new(hub: MemoryHub, clock: WallClock) -> Visitor {
        let client = any_certificate::client().unwrap();
        let connector = TlsConnector::from(Arc::new(client.with_no_client_auth()));
        Visitor {
            way: Way {
                hub,
                connector,
                clock,
            },
            records: Arc::default(),
            errands: JoinSet::new(),
        }
    }

    /// What came of everything so far.
    pub(crate) fn records(&self) -> MutexGuard<'_, Records> {
        lock(&self.records)
    }

    /// Goes for something, and does not wait for it.
    pub(crate) fn go(&mut self, errand: Errand) {
        while self.errands.try_join_next().is_some() {}
        let (way, records) = (self.way.clone(), Arc::clone(&self.records));
        self.errands.spawn(async move {
            match errand {
                Errand::Ask(path) => {
                    let asked = asked(&way, &records, &path);
                    let outcome = match way.get(CLIENTS_PORT, &path).await {
                        Ok((status, _)) => Outcome::Answered(status),
                        Err(outcome) => outcome,
                    };
                    answered(&way, &records, asked, outcome);
                }
                Errand::Open { path, stays } => {
                    let asked = asked(&way, &records, &path);
                    let (outcome, stream) = match way.open(&path).await {
                        Ok(stream) => {
                            let status = StatusCode::SWITCHING_PROTOCOLS;
                            (Outcome::Answered(status), Some(stream))
                        }
                        Err(outcome) => (outcome, None),
                    };
                    answered(&way, &records, asked, outcome);
                    if let Some(stream) = stream {
                        Talk::begin(way.clock, records).go_on(stream, stays).await;
                    }
                }
            }
        });
    }

    /// Looks at all that is served: health, pods, and a command in `main` of each of these.
    pub(crate) fn look(
        &self,
        pods: Vec<String>,
    ) -> impl Future<Output = Result<Served, Outcome>> + Send + 'static {
        let way = self.way.clone();
        async move {
            let (_, health) = way.get(HEALTH_PORT, "/healthz").await?;
            let (_, listed) = way.get(CLIENTS_PORT, "/pods").await?;
            let mut containers = Vec::new();
            for pod in pods {
                let records = Arc::default();
                let container = match way.open(&exec_path(&pod)).await {
                    Err(outcome) => Err(format!("{outcome:?}")),
                    Ok(stream) => {
                        let talk = Talk::begin(way.clock.clone(), Arc::clone(&records));
                        talk.go_on(stream, false).await;
                        let session = lock(&records).sessions.pop();
                        let session = session.ok_or(Outcome::Broken)?;
                        let is_well = session.end.is_some_and(|(_, end)| end == End::Closed);
                        let container = session.container.clone().filter(|_| is_well);
                        container.ok_or_else(|| format!("{session:?}"))
                    }
                };
                containers.push(container);
            }
            Ok(Served {
                health: String::from_utf8_lossy(&health).into_owned(),
                pods: listed,
                containers,
            })
        }
    }
}

/// Notes that something is asked for: the number of the ask.
fn asked(way: &Way, records: &Mutex<Records>, path: &str) -> usize {
    let mut records = lock(records);
    records.asks.push(Ask {
        path: path.to_owned(),
        at: way.clock.now(),
        outcome: None,
    });
    records.asks.len() - 1
}

fn answered(way: &Way, records: &Mutex<Records>, ask: usize, outcome: Outcome) {
    let now = way.clock.now();
    if let Some(ask) = lock(records).asks.get_mut(ask) {
        ask.outcome = Some((now, outcome));
    }
}

impl Way {
    async fn connect(&self, port: u16) -> Result<SendRequest<Empty<Bytes>>, Outcome> {
        let connected = self.hub.connect_to_port(None, port);
        let stream = connected.map_err(|_| Outcome::Refused)?;
        let stream: Box<dyn Stream> = match port {
            HEALTH_PORT => Box::new(stream),
            _ => {
                let name = ServerName::try_from("node").map_err(|_| Outcome::Broken)?;
                let encrypted = self.connector.connect(name, stream).await;
                Box::new(encrypted.map_err(|_| Outcome::Broken)?)
            }
        };
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|_| Outcome::Broken)?;
        // It ends with the sender, or what it was upgraded to.
        tokio::spawn(async move { drop(connection.with_upgrades().await) });
        Ok(sender)
    }

    async fn get(&self, port: u16, path: &str) -> Result<(StatusCode, Bytes), Outcome> {
        let mut sender = self.connect(port).await?;
        let response = send(&mut sender, path, None).await?;
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map_err(|_| Outcome::Broken)?;
        Ok((status, body.to_bytes()))
    }

    /// The bytes of a session.
    async fn open(&self, path: &str) -> Result<TokioIo<Upgraded>, Outcome> {
        let mut sender = self.connect(CLIENTS_PORT).await?;
        let mut response = send(&mut sender, path, Some("SPDY/3.1")).await?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                let upgraded = hyper::upgrade::on(&mut response).await;
                let upgraded = upgraded.map_err(|_| Outcome::Broken)?;
                Ok(TokioIo::new(upgraded))
            }
            status => Err(Outcome::Answered(status)),
        }
    }
}

async fn send(
    sender: &mut SendRequest<Empty<Bytes>>,
    path: &str,
    upgrade: Option<&str>,
) -> Result<Response<Incoming>, Outcome> {
    let mut request = Request::get(path).header(HOST, "node");
    if let Some(protocol) = upgrade {
        request = request
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, protocol);
    }
    let request = request.body(Empty::new()).map_err(|_| Outcome::Broken)?;
    let sent = sender.send_request(request).await;
    sent.map_err(|_| Outcome::Broken)
}

/// A session that goes on.
struct Talk {
    clock: WallClock,
    records: Arc<Mutex<Records>>,
    number: usize,
}

impl Talk {
    fn begin(clock: WallClock, records: Arc<Mutex<Records>>) -> Talk {
        let now = clock.now();
        let mut locked = lock(&records);
        let number = locked.sessions.len();
        locked.sessions.push(Session {
            container: None,
            began: now,
            waits_since: Some(now),
            end: None,
        });
        drop(locked);
        Talk {
            clock,
            records,
            number,
        }
    }

    fn note(&self, change: impl FnOnce(&mut Session)) {
        if let Some(session) = lock(&self.records).sessions.get_mut(self.number) {
            change(session);
        }
    }

    /// Talks until the session ends, or once.
    async fn go_on(self, stream: TokioIo<Upgraded>, stays: bool) {
        let end = self.talk(stream, stays).await.unwrap_or(End::Broken);
        let now = self.clock.now();
        self.note(|session| session.end = Some((now, end)));
    }

    async fn talk(&self, mut stream: TokioIo<Upgraded>, stays: bool) -> io::Result<End> {
        let mut id = [0; ID_BYTES];
        stream.read_exact(&mut id).await?;
        let id = String::from_utf8_lossy(&id).into_owned();
        self.note(|session| (session.container, session.waits_since) = (Some(id), None));
        loop {
            let now = self.clock.now();
            self.note(|session| session.waits_since = Some(now));
            stream.write_all(&WORDS).await?;
            stream.flush().await?;
            let mut echo = [0; WORDS.len()];
            stream.read_exact(&mut echo).await?;
            self.note(|session| session.waits_since = None);
            if echo != WORDS {
                return Ok(End::Garbled);
            }
            if !stays {
                return Ok(End::Closed);
            }
            tokio::select! {
                biased;
                // Cancel-safe: a byte that comes unasked is the end, as any error is.
                read = stream.read_u8() => return read.map(|_| End::Garbled),
                // Cancel-safe: only waits.
                () = tokio::time::sleep(SAID_EVERY) => {}
            }
        }
    }
}

fn lock(records: &Mutex<Records>) -> MutexGuard<'_, Records> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}
