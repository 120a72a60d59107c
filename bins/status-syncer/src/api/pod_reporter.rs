//! Reports pods: one report of a pod at a time, the newest state each time.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::report_request::Report;
use ipc::{CallError, StateEvent, SubscriptionEvent};
use pod::PodSource;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Code;

use super::gateway::Gateway;
use super::held::{HeldPod, HeldPods, News};
use super::mirror::StaticPod;
use super::pod_report::{self, Again, NodeIdentity, Origin, OwnPod};
use crate::command::Command;
use crate::publication::{LocalReaders, PublishedPod};
use crate::registry::KnownPods;

/// How often all pods are looked at: a report that failed is made again then, and what others
/// changed is put right. The kubelet's.
const TICK: Duration = Duration::from_secs(10);

/// A report that the API server refused is made again after so long, or when something is new.
const RETRY_REFUSED: Duration = Duration::from_secs(60);

/// Reports under way at a time.
const MAX_REPORTS: usize = 32;

/// HTTP status of a report about a pod that the API server no longer has.
const NOT_FOUND: u32 = 404;

/// What came of a report of a pod.
struct Reported {
    /// The pod's own UID.
    uid: String,
    /// Which pod of the API server was deleted, if one was.
    ended: Option<String>,
    result: Result<v1::ReportResponse, CallError>,
}

/// The pods that sync-loop knows, since it has said so.
pub(crate) type Known = watch::Receiver<Option<Arc<KnownPods>>>;

struct Reporter {
    node_name: Arc<str>,
    gateway: Gateway,
    known: Known,
    /// Where conditions of others are made use of.
    commands: mpsc::Sender<Command>,
    own: BTreeMap<String, OwnPod>,
    held: HeldPods,
    /// Pods that are to be looked at, by their own UID.
    due: BTreeSet<String>,
    /// Pods of which a report is under way.
    reported: BTreeSet<String>,
    /// Pods of which the API server refused the last report, and when.
    refused: BTreeMap<String, Instant>,
    reports: JoinSet<Reported>,
}

/// Reports for ever. What the API server holds is followed into `held`, the Node too.
pub(crate) async fn run(
    node_name: Arc<str>,
    gateway: Gateway,
    readers: LocalReaders,
    known: Known,
    commands: mpsc::Sender<Command>,
    held: HeldPods,
) -> Infallible {
    let mut published = readers.hub().subscribe();
    let mut stream = gateway.watch();
    let mut reporter = Reporter {
        node_name,
        gateway,
        known,
        commands,
        own: BTreeMap::new(),
        held,
        due: BTreeSet::new(),
        reported: BTreeSet::new(),
        refused: BTreeMap::new(),
        reports: JoinSet::new(),
    };
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Cancel-safe, see there.
            event = published.next() => match event {
                StateEvent::Item(uid, pod) => reporter.publish(uid, &pod),
                StateEvent::Removed(uid) => reporter.remove(&uid),
                StateEvent::SnapshotBegin | StateEvent::SnapshotEnd => {}
            },
            // Cancel-safe, see there.
            event = stream.next() => if let SubscriptionEvent::Message(response) = event
                && let Some(message) = response.message
            {
                let news = reporter.held.on(message);
                reporter.tell_conditions(&news).await;
                reporter.take(news);
            },
            // Cancel-safe: it only waits for a task.
            Some(reported) = reporter.reports.join_next() => if let Ok(reported) = reported {
                reporter.note(reported);
            },
            // Cancel-safe: a tick that is not taken stays due.
            _ = tick.tick() => {
                reporter.refused.retain(|_, at| at.elapsed() < RETRY_REFUSED);
                let waits = |uid: &&String| !reporter.refused.contains_key(*uid);
                reporter.due.extend(reporter.own.keys().filter(waits).cloned());
            }
        }
        reporter.go_on();
    }
}

impl Reporter {
    /// What others say in a pod's conditions may decide whether it is ready.
    async fn tell_conditions(&self, news: &News) {
        let uids = match news {
            News::Nothing => Vec::new(),
            News::Pod(reference) => vec![reference.uid.clone()],
            News::All => self.held.uids().cloned().collect(),
        };
        for uid in uids {
            let held = self.held.pod(&uid).map(HeldPod::conditions_of_others);
            // Without a main loop this process ends.
            let _ = self.commands.send(Command::SetHeld(uid, held)).await;
        }
    }

    fn publish(&mut self, uid: String, published: &PublishedPod) {
        let Ok(pod) = published.document.decode() else {
            return;
        };
        let identity = published.document.identity();
        let origin = match published.document.source() {
            PodSource::Api => Origin::Api,
            PodSource::File | PodSource::Http => {
                Origin::Static(published.desired.as_ref().and_then(StaticPod::of))
            }
        };
        let own = OwnPod {
            namespace: identity.namespace().to_owned(),
            name: identity.name().to_owned(),
            is_deleted: pod.metadata.deletion_timestamp.is_some(),
            status: pod.status.unwrap_or_default(),
            phase: published.worker.phase,
            origin,
        };
        self.own.insert(uid.clone(), own);
        self.refused.remove(&uid);
        self.due.insert(uid);
    }

    fn remove(&mut self, uid: &str) {
        self.own.remove(uid);
        self.refused.remove(uid);
    }

    fn take(&mut self, news: News) {
        match news {
            News::Nothing => {}
            News::All => self.due.extend(self.own.keys().cloned()),
            News::Pod(reference) => {
                let own = self.own.iter();
                let of_pod = own.filter(|(uid, own)| match own.origin {
                    Origin::Api => **uid == reference.uid,
                    Origin::Static(_) => {
                        own.name == reference.name && own.namespace == reference.namespace
                    }
                });
                self.due.extend(of_pod.map(|(uid, _)| uid.clone()));
            }
        }
    }

    /// Begins the reports that are due, as far as there is room.
    fn go_on(&mut self) {
        for uid in std::mem::take(&mut self.due) {
            if self.reported.contains(&uid) || self.reports.len() >= MAX_REPORTS {
                self.due.insert(uid);
                continue;
            }
            let Some(own) = self.own.get(&uid) else {
                continue;
            };
            let held = match own.origin {
                Origin::Api => self.held.pod(&uid),
                Origin::Static(_) => self.held.mirror(&own.namespace, &own.name),
            };
            let node = NodeIdentity {
                name: &self.node_name,
                uid: self.held.node_uid(),
            };
            if let Some(report) = pod_report::next(own, held, node) {
                self.begin(uid, report);
            }
        }
        for mirror in self.orphaned_mirrors() {
            self.begin(mirror.uid.clone(), Report::PodEnd(mirror));
        }
    }

    /// Mirrors of static pods that no source has any more, and of which nothing is left here.
    fn orphaned_mirrors(&self) -> Vec<v1::PodReference> {
        let known = self.known.borrow();
        let Some(known) = known.as_ref() else {
            return Vec::new();
        };
        let statics = [PodSource::File, PodSource::Http];
        if statics.iter().any(|it| !known.delivered.contains(it)) {
            return Vec::new();
        }
        let is_wanted = |mirror: &HeldPod| {
            let hash = mirror.mirror_of.as_deref().unwrap_or_default();
            let has_its_name = |own: &OwnPod| {
                own.name == mirror.reference.name && own.namespace == mirror.reference.namespace
            };
            let mut own = self.own.values();
            known.uids.contains(hash) || own.any(has_its_name)
        };
        let mirrors = self.held.mirrors().filter(|mirror| {
            let uid = &mirror.reference.uid;
            let waits = self.reported.contains(uid) || self.refused.contains_key(uid);
            !waits && !is_wanted(mirror)
        });
        mirrors.map(|mirror| mirror.reference.clone()).collect()
    }

    fn begin(&mut self, uid: String, report: Report) {
        self.reported.insert(uid.clone());
        let ended = match &report {
            Report::PodEnd(pod) => Some(pod.uid.clone()),
            _ => None,
        };
        let gateway = self.gateway.clone();
        self.reports.spawn(async move {
            let result = gateway.report(report).await;
            Reported { uid, ended, result }
        });
    }

    /// An answer has the pod as the API server holds it now. After a failure the next change or
    /// tick tries again.
    fn note(&mut self, reported: Reported) {
        let Reported { uid, ended, result } = reported;
        self.reported.remove(&uid);
        match result {
            Ok(answer) if answer.code < 300 || answer.code == NOT_FOUND && ended.is_some() => {
                match ended {
                    Some(ended) => {
                        self.held.forget(&ended);
                        self.due.insert(uid);
                    }
                    None => {
                        if let Ok(pod) = HeldPod::parse(&answer.body) {
                            let news = self.held.take(pod);
                            self.take(news);
                        }
                    }
                }
            }
            Ok(answer) => {
                let reason = String::from_utf8_lossy(&answer.body);
                if answer.code != NOT_FOUND {
                    let code = answer.code;
                    tracing::warn!(uid, code, %reason, "the API server refused a report");
                }
                self.due.remove(&uid);
                match pod_report::again(answer.code) {
                    Again::Now => {
                        self.due.insert(uid);
                    }
                    Again::Soon => {}
                    Again::Late => {
                        self.refused.insert(uid, Instant::now());
                    }
                }
            }
            // The gateway has seen it go, and says so.
            Err(error) if error.code() == Some(Code::NotFound) => {}
            Err(error) => {
                tracing::warn!(
                    uid,
                    error = telemetry::chain(&error),
                    "a report was not made"
                );
                self.due.remove(&uid);
            }
        }
    }
}
