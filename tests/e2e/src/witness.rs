//! A thread that asks for all pods again and again while a test does harm:
//! whether every call was answered, and what each pod looked like over time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::Value;
use test_support::observe::{Observer, condition};
use test_support::wait::wait_until;
use test_support::{BulkheadInstance, wait_for};

/// Longer than any restart of the whole node takes on a busy machine: a call
/// that is not answered by then is lost.
const DEADLINE: Duration = Duration::from_secs(20);

/// No test lasts as long.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// What a disturbance must not change of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// `status.phase`.
    pub phase: String,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// Id and restart count of each container by name.
    pub containers: BTreeMap<String, (String, u64)>,
}

/// What was seen of all pods.
#[derive(Debug, Default)]
pub struct Testimony {
    /// How often all pods were asked for.
    pub calls: usize,
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
        Self {
            phase: text(&pod["status"]["phase"]),
            ready: condition(pod, "Ready") == Some(true),
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
    /// Begins to look; returns after the first look.
    ///
    /// # Errors
    /// When nobody answers even undisturbed.
    pub fn call(bulkhead: &BulkheadInstance) -> Result<Self> {
        let observer = bulkhead.observer(DEADLINE);
        let mut testimony = Testimony::default();
        testimony.look(&observer);
        ensure!(testimony.failures.is_empty(), "{:?}", testimony.failures);
        let enough = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&enough);
        let thread = std::thread::spawn(move || {
            // It always comes to an end: the test's, or that of its patience.
            let _ = wait_until("the end of the test", FOR_EVER, || {
                testimony.look(&observer);
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
        ensure!(
            testimony.failures.is_empty(),
            "of {} calls were not answered: {:?}",
            testimony.calls,
            testimony.failures
        );
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

    fn look(&mut self, observer: &Observer) {
        let begin = Instant::now();
        let pods = observer.pods();
        self.calls += 1;
        self.longest = self.longest.max(begin.elapsed());
        let pods = match pods {
            Ok(pods) => pods,
            Err(error) => return self.failures.push(format!("{error:#}")),
        };
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
