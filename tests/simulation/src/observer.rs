//! Watches what is published all along, as `bulkhead pods --watch` would, and
//! compares it with what the containers answered to their probes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use bulkhead_api::v1::list_pod_statuses_response::Message;
use bulkhead_api::v1::statuses_client::StatusesClient;
use clock::{UnixNanos, WallClock};
use ipc::{Network, SubscriptionEvent};
use pod::core::{ContainerStatus, PodStatus};
use pod::{Pod, PodDocument, PodExt as _};
use simulated_runtime::{Entry, Happening};
use tokio_util::task::AbortOnDropHandle;
use topology::Process;

use crate::desired::{Desired, SIDECAR, VERSION_LABEL};
use crate::evictions::Evicted;
use crate::targets::{Answers, Targets};
use crate::uids::uids_by_version;

/// What was published of a running container instance.
#[derive(Debug)]
struct Published {
    version: String,
    container: String,
    ready: Vec<(UnixNanos, bool)>,
    started: Vec<(UnixNanos, bool)>,
}

#[derive(Debug, Default)]
struct Seen {
    /// By container id.
    instances: BTreeMap<String, Published>,
    /// By version.
    evicted: BTreeMap<String, Evicted>,
    /// Phase and reason with which a pod ended, by version.
    ended: BTreeMap<String, (String, Option<String>)>,
    ended_at: BTreeMap<String, UnixNanos>,
    /// By UID: the pods whose status is gone.
    removed: BTreeSet<String>,
    contradictions: BTreeSet<String>,
}

/// Sees everything that is published, as long as it lives.
#[derive(Debug)]
pub(crate) struct Observer {
    seen: Arc<Mutex<Seen>>,
    _task: AbortOnDropHandle<()>,
}

impl Observer {
    /// Begins to watch.
    pub(crate) fn new(network: &Network, clock: WallClock) -> Observer {
        let seen = Arc::<Mutex<Seen>>::default();
        let channel = network.channel(Process::StatusSyncer);
        let task = watch(StatusesClient::new(channel), clock, Arc::clone(&seen));
        Observer {
            seen,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }

    /// The versions of pods that were ended or refused so far because the node is short
    /// of something.
    pub(crate) fn evicted(&self) -> BTreeMap<String, Evicted> {
        lock(&self.seen).evicted.clone()
    }

    /// What was published that was not so: readiness that turned although the
    /// container answered as before, a start that was taken back, a pod that
    /// contradicts its containers.
    pub(crate) fn broken_promises(
        &self,
        versions: &[Desired],
        targets: &Targets,
        history: &[Entry],
    ) -> Vec<String> {
        let seen = lock(&self.seen);
        let ends = ends_of(history);
        let mut broken: Vec<String> = seen.contradictions.iter().cloned().collect();
        broken.extend(ran_after_their_ends(&seen.ended_at, history));
        for (id, published) in &seen.instances {
            let mut versions = versions.iter();
            let Some(pod) = versions.find(|pod| pod.version_label() == published.version) else {
                broken.push(format!("published is an unknown {published:?}"));
                continue;
            };
            let name = &published.container;
            if let Some(at) = taken_back(&published.started) {
                broken.push(format!("{name} of {pod} had started until {at:?}"));
            }
            if let Some(threshold) = pod.readiness_threshold(name) {
                let answers = targets.readiness_answers(id);
                let alive = until_its_end(&published.ready, ends.get(&**id).copied());
                if let Some(at) = turned_without_reason(&alive, &answers, threshold) {
                    broken.push(format!(
                        "readiness of {name} of {pod} turned at {at:?} without a reason: \
                         {:?}, but it answered {answers:?}",
                        published.ready
                    ));
                }
            } else if let Some(at) = taken_back(&published.ready) {
                broken.push(format!("{name} of {pod} was ready until {at:?}"));
            }
        }
        broken
    }
}

/// Containers that ran, or were started, after their pod had been told to have ended.
fn ran_after_their_ends(ended_at: &BTreeMap<String, UnixNanos>, history: &[Entry]) -> Vec<String> {
    let uids = uids_by_version(history);
    let ends = ended_at
        .iter()
        .filter_map(|(version, at)| Some((uids.get(version)?, *at)));
    let ends: BTreeMap<&String, UnixNanos> = ends.collect();
    let runs = |entry: &&Entry| {
        let happening = &entry.happening;
        matches!(happening, Happening::Started | Happening::Exited { .. })
    };
    let late = history.iter().filter(runs).filter_map(|entry| {
        let end = *ends.get(&entry.pod_uid)?;
        (entry.at > end).then(|| {
            let (name, uid, at) = (&entry.container, &entry.pod_uid, entry.at);
            let what = &entry.happening;
            format!("{name} of {uid}, which had ended at {end:?}, {what:?} at {at:?}")
        })
    });
    late.collect()
}

/// When each container ended that did.
fn ends_of(history: &[Entry]) -> BTreeMap<&str, UnixNanos> {
    let exits = history
        .iter()
        .filter(|entry| matches!(entry.happening, Happening::Exited { .. }));
    exits.map(|entry| (&*entry.id, entry.at)).collect()
}

/// What was published before an instance ended. One that did may be known to some as
/// not ready before others know that it does not run; and while the runtime does not tell
/// of its end, answers of the next instance, at the same address, are taken for its own.
fn until_its_end(turns: &[(UnixNanos, bool)], end: Option<UnixNanos>) -> Vec<(UnixNanos, bool)> {
    let turns = turns.iter().copied();
    turns
        .take_while(|(at, _)| end.is_none_or(|end| *at < end))
        .collect()
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn watch(client: StatusesClient<ipc::Channel>, clock: WallClock, seen: Arc<Mutex<Seen>>) {
    let mut statuses = ipc::subscribe("pod statuses", move || {
        let mut client = client.clone();
        async move {
            let request = v1::ListPodStatusesRequest {
                watch: true,
                pod: None,
            };
            client.list_pod_statuses(request).await
        }
    });
    loop {
        let SubscriptionEvent::Message(response) = statuses.next().await else {
            continue;
        };
        let entry = match response.message {
            Some(Message::Entry(entry)) => entry,
            Some(Message::RemovedPodUid(uid)) => {
                lock(&seen).removed.insert(uid);
                continue;
            }
            Some(Message::SnapshotComplete(_)) | None => continue,
        };
        let document = entry
            .pod
            .and_then(|pod| PodDocument::from_message(pod).ok());
        let pod = document.and_then(|document| document.decode().ok());
        let mut seen = lock(&seen);
        match pod {
            Some(pod) => seen.note(&pod, clock.now()),
            None => {
                let contradiction = "a published pod cannot be read".to_owned();
                seen.contradictions.insert(contradiction);
            }
        }
    }
}

impl Seen {
    /// A pod that has ended stays so, for the same reason.
    fn note_end(&mut self, version: &str, status: &PodStatus, now: UnixNanos) {
        let phase = status.phase.clone().unwrap_or_default();
        let ends = ["Failed", "Succeeded"].contains(&&*phase);
        let says = (phase, status.reason.clone());
        match self.ended.get(version) {
            Some(ended) if *ended != says => {
                let contradiction = format!(
                    "{version} was {ended:?} at {:?}, and is {says:?} at {now:?}",
                    self.ended_at.get(version)
                );
                self.contradictions.insert(contradiction);
            }
            None if ends => {
                self.ended.insert(version.to_owned(), says);
                self.ended_at.insert(version.to_owned(), now);
            }
            _ => {}
        }
    }

    fn note(&mut self, pod: &Pod, now: UnixNanos) {
        let labels = pod.metadata.labels.as_ref();
        let version = labels.and_then(|labels| labels.get(VERSION_LABEL));
        let version = version.cloned().unwrap_or_default();
        let Some(status) = &pod.status else {
            return;
        };
        if let Some(evicted) = Evicted::of(pod.uid(), status, now) {
            self.evicted.entry(version.clone()).or_insert(evicted);
        }
        self.note_end(&version, status, now);
        if self.removed.contains(pod.uid()) {
            let contradiction = format!("the status of {version} was gone and is back");
            self.contradictions.insert(contradiction);
        }
        let containers = status.container_statuses.as_deref().unwrap_or_default();
        for container in containers.iter().filter(|one| runs(one)) {
            let Some(id) = container.container_id.as_deref() else {
                continue;
            };
            let id = id.split_once("://").map_or(id, |(_, id)| id);
            let published = self.instances.entry(id.to_owned());
            let published = published.or_insert_with(|| Published {
                version: version.clone(),
                container: container.name.clone(),
                ready: Vec::new(),
                started: Vec::new(),
            });
            turn(&mut published.ready, container.ready, now);
            turn(&mut published.started, container.started == Some(true), now);
        }
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let condition = conditions.iter().find(|one| one.type_ == "ContainersReady");
        let says_all = condition.is_some_and(|one| one.status == "True");
        let sidecars = status.init_container_statuses.iter().flatten();
        let sidecars = sidecars.filter(|one| one.name == SIDECAR);
        let has_all =
            !containers.is_empty() && containers.iter().chain(sidecars).all(|one| one.ready);
        if says_all != has_all {
            self.contradictions.insert(format!(
                "{version} says at {now:?} that its containers are ready: {says_all}"
            ));
        }
    }
}

fn runs(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.running.is_some())
}

fn turn(turns: &mut Vec<(UnixNanos, bool)>, value: bool, now: UnixNanos) {
    if turns.last().is_none_or(|(_, last)| *last != value) {
        turns.push((now, value));
    }
}

/// When what was true became false.
fn taken_back(turns: &[(UnixNanos, bool)]) -> Option<UnixNanos> {
    turns.windows(2).find_map(|two| match two {
        [(_, true), (at, false)] => Some(*at),
        _ => None,
    })
}

/// When readiness turned to something that the container had not answered since
/// it last turned, or not often enough. Before the first answer it is not ready.
fn turned_without_reason(
    published: &[(UnixNanos, bool)],
    answers: &[Answers],
    threshold: u32,
) -> Option<UnixNanos> {
    let initial = Answers {
        well: false,
        since: UnixNanos(0),
        tries: threshold,
    };
    // A try that the prober did not live to see ended its count, so that answers
    // given in a row are all that it can have counted.
    let counts = |answers: &&Answers| answers.well || answers.tries >= threshold;
    let mut reasons = std::iter::once(&initial).chain(answers).filter(counts);
    let unexplained = published.iter().find(|(at, ready)| {
        let reason = reasons.find(|reason| reason.well == *ready);
        reason.is_none_or(|reason| reason.since > *at)
    });
    unexplained.map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> UnixNanos {
        UnixNanos(seconds * 1_000_000_000)
    }

    fn answers(all: &[(i64, bool, u32)]) -> Vec<Answers> {
        let all = all.iter().map(|(since, well, tries)| Answers {
            well: *well,
            since: at(*since),
            tries: *tries,
        });
        all.collect()
    }

    fn unexplained(published: &[(i64, bool)], answered: &[(i64, bool, u32)]) -> Option<UnixNanos> {
        let published: Vec<_> = published
            .iter()
            .map(|(s, ready)| (at(*s), *ready))
            .collect();
        turned_without_reason(&published, &answers(answered), 2)
    }

    #[test]
    fn readiness_follows_answers_late_or_not_at_all() {
        let answered = [(2, true, 3), (5, false, 2), (7, true, 1)];
        assert_eq!(
            unexplained(&[(1, false), (2, true), (6, false), (7, true)], &answered),
            None
        );
        assert_eq!(
            unexplained(&[(3, true), (9, false), (10, true)], &answered),
            None
        );
        assert_eq!(unexplained(&[(9, true)], &answered), None);
        assert_eq!(unexplained(&[], &answered), None);
    }

    #[test]
    fn readiness_that_turns_without_an_answer_is_found() {
        let always = [(2, true, 30)];
        assert_eq!(unexplained(&[(1, true)], &always), Some(at(1)));
        assert_eq!(unexplained(&[(2, true), (9, false)], &always), Some(at(9)));
        let once_unwell = [(2, true, 3), (5, false, 1), (6, true, 9)];
        assert_eq!(
            unexplained(&[(2, true), (6, false)], &once_unwell),
            Some(at(6))
        );
    }

    #[test]
    fn only_an_instance_that_ended_turns_without_an_answer() {
        let turns = [(at(1), true), (at(5), false)];
        assert_eq!(until_its_end(&turns, None), turns);
        assert_eq!(until_its_end(&turns, Some(at(6))), turns);
        assert_eq!(until_its_end(&turns, Some(at(5))), [(at(1), true)]);
        assert_eq!(until_its_end(&[(at(7), true)], Some(at(5))), []);
    }

    #[test]
    fn a_start_is_not_taken_back() {
        assert_eq!(taken_back(&[(at(1), false), (at(2), true)]), None);
        assert_eq!(taken_back(&[(at(1), true), (at(2), false)]), Some(at(2)));
    }
}
