//! A thread that asks every server again and again while a test does harm:
//! whether every call was answered, and what each pod looked like over time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use bulkhead_api::v1;
use serde_json::Value;
use test_support::observe::{Observer, condition};
use test_support::wait::wait_until;
use test_support::{BulkheadInstance, wait_for};
use topology::{Caller, PROCESSES, Process};

/// Longer than any restart of the whole node takes on a busy machine: a call
/// that is not answered by then is lost.
const DEADLINE: Duration = Duration::from_secs(20);

/// Looks at the pods for each time that all other servers are asked too: those
/// calls cost more, and nothing is seen by making them more often.
const LOOKS_PER_ROUND: usize = 8;

/// The call that shows all pods.
const LIST_PODS: &str = "bulkhead.v1.Statuses/ListPodStatuses";

/// The services that nobody asks here: the runtime answers them in its own time, which is
/// longer than the pool lives in some tests.
const OF_THE_RUNTIME: [&str; 2] = ["bulkhead.v1.Usage", "bulkhead.v1.Sessions"];

/// No test lasts as long.
const FOR_EVER: Duration = Duration::from_secs(4 * 3600);

/// What a disturbance must not change of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// `status.phase`.
    pub phase: String,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// Since when it is so, or is not: readiness that was lost and found
    /// between two looks shows here.
    pub since: String,
    /// Id and restart count of each container by name.
    pub containers: BTreeMap<String, (String, u64)>,
}

/// What was seen of all pods.
#[derive(Debug, Default)]
pub struct Testimony {
    /// How often each call was made.
    pub calls: BTreeMap<&'static str, usize>,
    /// Calls that were not answered.
    pub failures: Vec<String>,
    /// The longest time that an answer took.
    pub longest: Duration,
    /// The looks of each pod by UID, equal ones in a row being one; nothing
    /// for those in which it was missing after it had been there.
    looks: BTreeMap<String, Vec<Option<Look>>>,
}

/// Looks on until it is heard.
#[derive(Debug)]
pub struct Witness {
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<Testimony>>,
}

impl Look {
    /// What matters of a pod with its status.
    #[must_use]
    pub fn of(pod: &Value) -> Self {
        let lists = ["initContainerStatuses", "containerStatuses"];
        let statuses = lists
            .iter()
            .filter_map(|list| pod["status"][list].as_array())
            .flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = pod["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let readiness = conditions.find(|condition| condition["type"] == "Ready");
        Self {
            phase: text(&pod["status"]["phase"]),
            ready: condition(pod, "Ready") == Some(true),
            since: readiness.map_or_else(String::new, |it| text(&it["lastTransitionTime"])),
            containers: statuses
                .map(|status| {
                    let restarts = status["restartCount"].as_u64().unwrap_or_default();
                    (
                        text(&status["name"]),
                        (text(&status["containerID"]), restarts),
                    )
                })
                .collect(),
        }
    }
}

impl Witness {
    /// Begins to look; returns after the first look. The log that it reads is
    /// that of the pod `running`, which has to run until it is heard.
    ///
    /// # Errors
    /// When nobody answers even undisturbed, or there is no such pod.
    pub fn call(bulkhead: &BulkheadInstance, running: &str) -> Result<Self> {
        Self::call_with_patience(bulkhead, running, DEADLINE)
    }

    /// The same, where an answer may take so long.
    ///
    /// # Errors
    /// As [`Witness::call`].
    pub fn call_with_patience(
        bulkhead: &BulkheadInstance,
        running: &str,
        patience: Duration,
    ) -> Result<Self> {
        let observer = bulkhead.with_deadline(patience);
        let pod = bulkhead
            .pod(running)?
            .context("the pod to read the log of")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let log = v1::ReadLogsRequest {
            pod_uid: text(&pod["metadata"]["uid"]),
            container_name: text(&pod["status"]["containerStatuses"][0]["name"]),
            tail_lines: Some(1),
            ..v1::ReadLogsRequest::default()
        };
        let mut testimony = Testimony::default();
        testimony.look(&observer);
        testimony.ask(&observer, &log);
        testimony.all_were_answered()?;
        testimony.no_server_is_left_out()?;
        let enough = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&enough);
        let thread = std::thread::spawn(move || {
            // It always comes to an end: the test's, or that of its patience.
            let _ = wait_until("the end of the test", FOR_EVER, || {
                if testimony.look(&observer) % LOOKS_PER_ROUND == 0 {
                    testimony.ask(&observer, &log);
                }
                of_thread.load(Ordering::SeqCst)
            });
            testimony
        });
        Ok(Self {
            enough,
            thread: Some(thread),
        })
    }

    /// Ends it and returns what it saw; every call has to have been answered.
    ///
    /// # Errors
    /// When one was not.
    pub fn hear(mut self) -> Result<Testimony> {
        self.enough.store(true, Ordering::SeqCst);
        let thread = self.thread.take().ok_or_else(|| anyhow!("heard before"))?;
        let testimony = thread.join().map_err(|_| anyhow!("the witness panicked"))?;
        testimony.all_were_answered()?;
        Ok(testimony)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Testimony {
    /// That `pod` never looked otherwise than it does now, and was always there.
    ///
    /// # Errors
    /// With its looks, when it changed.
    pub fn never_changed(&self, pod: &Value) -> Result<()> {
        let looks = self.looks_of(pod);
        ensure!(
            looks == [Some(Look::of(pod))],
            "{} changed: {looks:#?}",
            pod["metadata"]["name"]
        );
        Ok(())
    }

    /// All looks of a pod, equal ones in a row being one.
    #[must_use]
    pub fn looks_of(&self, pod: &Value) -> &[Option<Look>] {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        self.looks.get(uid).map_or(&[], Vec::as_slice)
    }

    fn all_were_answered(&self) -> Result<()> {
        ensure!(
            self.failures.is_empty(),
            "of {:?} calls were not answered: {:#?}",
            self.calls,
            self.failures
        );
        Ok(())
    }

    /// That each service of every node that people may call was, but for [`OF_THE_RUNTIME`].
    fn no_server_is_left_out(&self) -> Result<()> {
        let rows = PROCESSES.iter();
        let rows = rows.filter(|row| Process::ON_EVERY_NODE.contains(&row.process));
        let services = rows.flat_map(|row| row.services);
        let asked = |it: &&topology::ServiceRow| {
            it.callers.contains(&Caller::Operator) && !OF_THE_RUNTIME.contains(&it.service)
        };
        for service in services.filter(asked) {
            let method = format!("{}/", service.service);
            let asked = self.calls.keys().any(|call| call.starts_with(&method));
            ensure!(asked, "nobody asks {}", service.service);
        }
        Ok(())
    }

    fn note(&mut self, call: &'static str, outcome: Result<Duration, String>) {
        *self.calls.entry(call).or_default() += 1;
        match outcome {
            Ok(took) => self.longest = self.longest.max(took),
            Err(reason) => self.failures.push(format!("{call}: {reason}")),
        }
    }

    /// Asks all servers for what only people ask for.
    fn ask(&mut self, observer: &Observer, log: &v1::ReadLogsRequest) {
        match observer.read_everything(log) {
            Ok(answers) => {
                for (call, outcome) in answers {
                    self.note(call, outcome.map_err(|error| format!("{error:#}")));
                }
            }
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }

    /// Looks at all pods, and returns how often that has been done.
    fn look(&mut self, observer: &Observer) -> usize {
        let begin = Instant::now();
        let pods = observer.pods();
        let took = begin.elapsed();
        match pods {
            Ok(pods) => {
                self.note(LIST_PODS, Ok(took));
                self.compare(&pods);
            }
            Err(error) => self.note(LIST_PODS, Err(format!("{error:#}"))),
        }
        self.calls.get(LIST_PODS).copied().unwrap_or_default()
    }

    fn compare(&mut self, pods: &[Value]) {
        let mut now: BTreeMap<String, Look> = pods
            .iter()
            .map(|pod| {
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
                (uid.to_owned(), Look::of(pod))
            })
            .collect();
        for (uid, looks) in &mut self.looks {
            let look = now.remove(uid);
            if looks.last() != Some(&look) {
                looks.push(look);
            }
        }
        let new = now.into_iter().map(|(uid, look)| (uid, vec![Some(look)]));
        self.looks.extend(new);
    }
}

/// Waits until every pod that the node has is one of `names`.
///
/// # Errors
/// When others stay.
pub fn only_these_pods(
    bulkhead: &BulkheadInstance,
    names: &[String],
    within: Duration,
) -> Result<()> {
    let wanted: Vec<String> = names
        .iter()
        .map(|name| format!("{name}-{}", bulkhead.node_name()))
        .collect();
    wait_for("no other pods", within, || {
        let pods = bulkhead.pods().map_err(|error| format!("{error:#}"))?;
        let names = pods
            .iter()
            .filter_map(|pod| pod["metadata"]["name"].as_str());
        let others: Vec<&str> = names
            .filter(|name| !wanted.iter().any(|it| it == name))
            .collect();
        if others.is_empty() {
            Ok(())
        } else {
            Err(format!("{others:?}"))
        }
    })?;
    Ok(())
}
