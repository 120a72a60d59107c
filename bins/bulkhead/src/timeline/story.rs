//! What happened to a pod: lanes from its status and its events. Pure.
//!
//! Of each container the status knows the present instance and the one before; events add
//! pulls, earlier starts, and what failed. What nobody noted is not drawn: neither when a
//! sandbox was ready, nor how long a hook ran that succeeded.

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::core::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};
use pod::meta::Time;
use pod::{Pod, PodExt as _, PodPhase};

use super::chart::{Kind, Lane, Mark, Span};
use crate::events::message;
use crate::pod_row::{ending_word, status_word};
use crate::pulls;
use crate::table::Tone;
use crate::words::nanos;

/// The API cuts times to whole seconds.
const SECOND: i64 = 1_000_000_000;

/// All lanes of a pod: the pod, its sandbox, its containers in the order in which they
/// are started, and whether it is ready.
pub(super) fn lanes(pod: &Pod, status: &PodStatus, events: &[v1::Event]) -> Vec<Lane> {
    let story = Story {
        pod,
        status,
        events,
    };
    let mut lanes = vec![story.pod_lane(), story.sandbox_lane()];
    for (_, container) in pod.all_containers() {
        lanes.extend(story.container_lanes(&container.name));
    }
    lanes.push(story.ready_lane());
    lanes
}

struct Story<'a> {
    pod: &'a Pod,
    status: &'a PodStatus,
    events: &'a [v1::Event],
}

impl Story<'_> {
    fn phase(&self) -> PodPhase {
        let phase = self.status.phase.as_deref().and_then(PodPhase::parse);
        phase.unwrap_or_default()
    }

    /// When the node took the pod.
    fn begin(&self) -> Option<UnixNanos> {
        known(self.status.start_time.as_ref())
    }

    fn statuses(&self) -> impl Iterator<Item = &ContainerStatus> {
        let init = self.status.init_container_statuses.iter().flatten();
        init.chain(self.status.container_statuses.iter().flatten())
    }

    /// When the pod was over: the last end of a container. None while it is not.
    fn end(&self) -> Option<UnixNanos> {
        if !self.phase().is_terminal() {
            return None;
        }
        let ends = self.statuses().filter_map(|status| {
            let ended = status.state.as_ref()?.terminated.as_ref()?;
            known(ended.finished_at.as_ref())
        });
        ends.max().or_else(|| self.begin())
    }

    fn pod_lane(&self) -> Lane {
        let word = status_word(self.pod, self.status);
        let kind = match self.phase() {
            PodPhase::Pending => Kind::Waiting,
            PodPhase::Failed => Kind::Failed,
            PodPhase::Running | PodPhase::Succeeded | PodPhase::Unknown => Kind::Running,
        };
        let span = self.begin().map(|begin| Span {
            begin,
            end: self.end(),
            kind,
            title: format!("on the node: {word}"),
        });
        let of_pod = self.events_of("");
        let mut marks = marks(
            of_pod.filter(|event| !is_of_sandbox(&event.reason)),
            message,
        );
        let initialized = self.condition("Initialized").filter(|it| it.0);
        if let Some((_, at, _)) = initialized.filter(|_| !self.pod.init_containers().is_empty()) {
            marks.push(Mark {
                at,
                tone: Tone::Plain,
                title: "initialized".to_owned(),
            });
        }
        Lane {
            name: "pod".to_owned(),
            spans: span.into_iter().collect(),
            marks,
        }
    }

    /// The time from when the node took the pod until the first word of a container. It
    /// is left out where nobody knows that word any more.
    fn sandbox_lane(&self) -> Lane {
        let first = self.first_word();
        let nothing_yet = first.is_none() && self.statuses().all(never_ran);
        let span = |begin: UnixNanos| Span {
            begin,
            end: first,
            kind: Kind::Preparing,
            title: "sandbox and volumes, until the first word of a container".to_owned(),
        };
        let is_told = first.is_some() || (nothing_yet && !self.phase().is_terminal());
        let of_pod = self.events_of("");
        Lane {
            name: "sandbox".to_owned(),
            spans: self
                .begin()
                .filter(|_| is_told)
                .map(span)
                .into_iter()
                .collect(),
            marks: marks(of_pod.filter(|event| is_of_sandbox(&event.reason)), message),
        }
    }

    /// When a container was first heard of, if a container's first start is still known.
    fn first_word(&self) -> Option<UnixNanos> {
        let first_starts = self.statuses().filter_map(|status| {
            let begin = |state: &Option<ContainerState>| begin_of(state.as_ref()?);
            match status.restart_count {
                0 => begin(&status.state),
                1 => begin(&status.last_state),
                _ => None,
            }
        });
        let first_start = first_starts.min();
        let words = ["Pulling", "Pulled", "Failed", "Created"];
        let told = self
            .events
            .iter()
            .filter(|event| !event.container.is_empty() && words.contains(&event.reason.as_str()));
        let told = told.flat_map(pulls::times).min();
        if first_start.is_none() && !self.statuses().all(never_ran) {
            return None;
        }
        told.into_iter().chain(first_start).min()
    }

    fn events_of<'a>(&'a self, container: &'a str) -> impl Iterator<Item = &'a v1::Event> {
        let events = self.events.iter();
        events.filter(move |event| match container {
            "" => event.container.is_empty() || self.pod.container(&event.container).is_none(),
            name => event.container == name,
        })
    }

    fn container_lanes(&self, name: &str) -> Vec<Lane> {
        let status = self.statuses().find(|status| status.name == name);
        let mut life = Lane {
            name: name.to_owned(),
            ..Lane::default()
        };
        if let Some(status) = status {
            life.spans = self.life(status);
            match status.restart_count {
                0 => {}
                1 => life.name += ", 1 restart",
                count => life.name += &format!(", {count} restarts"),
            }
        }
        let of_reasons = |belongs: fn(&str) -> bool| {
            let events = self.events_of(name).filter(|event| belongs(&event.reason));
            marks(events, |event| event.message.clone())
        };
        life.marks = of_reasons(is_of_life);
        life.marks.extend(self.earlier_starts(name, &life.spans));
        let lane = |what: &str, spans: Vec<Span>, marks: Vec<Mark>| Lane {
            name: format!("{name}: {what}"),
            spans,
            marks,
        };
        vec![
            lane("pull", self.pulls(name, status), Vec::new()),
            life,
            lane("hooks", Vec::new(), of_reasons(is_of_hook)),
            lane("probes", Vec::new(), of_reasons(is_of_probe)),
        ]
    }

    fn pulls(&self, name: &str, status: Option<&ContainerStatus>) -> Vec<Span> {
        let may_be_under_way = pulls::may_be_under_way(self.pod, self.status, status);
        let span = |pull: pulls::Pull| Span {
            begin: pull.begin,
            end: match pull.end {
                None if may_be_under_way => None,
                end => Some(end.unwrap_or(pull.begin)),
            },
            kind: if pull.failed {
                Kind::Failed
            } else {
                Kind::Pulling
            },
            title: pull.message,
        };
        let pulls = pulls::of_container(self.events, name);
        pulls.into_iter().map(span).collect()
    }

    /// The instances of a container that are known, and the time between them.
    fn life(&self, status: &ContainerStatus) -> Vec<Span> {
        let default = ContainerState::default();
        let state = status.state.as_ref().unwrap_or(&default);
        let last = status.last_state.as_ref();
        let before = last.and_then(|last| last.terminated.as_ref());
        let before = before.and_then(|ended| self.ended(&status.name, ended));
        let free_since = before.as_ref().and_then(|span| span.end);
        let present = if let Some(running) = &state.running {
            known(running.started_at.as_ref()).map(|begin| Span {
                begin: self.exact_start(&status.name, begin),
                end: None,
                kind: Kind::Running,
                title: "runs".to_owned(),
            })
        } else if let Some(ended) = &state.terminated {
            self.ended(&status.name, ended)
        } else {
            let begin = free_since.or_else(|| self.begin());
            begin.map(|begin| self.wait(state, begin))
        };
        let between = present.as_ref().zip(free_since);
        let between = between.filter(|(present, since)| *since < present.begin);
        let between = between.map(|(present, since)| Span {
            begin: since,
            end: Some(present.begin),
            kind: Kind::Waiting,
            title: "waited before its next start".to_owned(),
        });
        [before, between, present].into_iter().flatten().collect()
    }

    fn wait(&self, state: &ContainerState, begin: UnixNanos) -> Span {
        let waiting = state.waiting.as_ref();
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        let message = waiting.and_then(|waiting| waiting.message.as_deref());
        let mut title = format!("waits: {}", reason.unwrap_or("to be started"));
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            title += &format!(": {message}");
        }
        Span {
            begin,
            end: self.end(),
            kind: Kind::Waiting,
            title,
        }
    }

    fn ended(&self, name: &str, ended: &ContainerStateTerminated) -> Option<Span> {
        let end = known(ended.finished_at.as_ref())?;
        let begin = known(ended.started_at.as_ref()).unwrap_or(end);
        Some(Span {
            begin: self.exact_start(name, begin),
            end: Some(end),
            kind: if ended.exit_code == 0 {
                Kind::Running
            } else {
                Kind::Failed
            },
            title: format!(
                "ran, ended with exit code {} ({})",
                ended.exit_code,
                ending_word(ended)
            ),
        })
    }

    /// The time of the event about a start that the status knows to the second.
    fn exact_start(&self, name: &str, cut: UnixNanos) -> UnixNanos {
        let starts = self.times_of(name, "Started");
        let exact = starts.filter(|at| at.0 >= cut.0 && at.0 - cut.0 < 2 * SECOND);
        exact.min().unwrap_or(cut)
    }

    fn times_of<'a>(&'a self, name: &'a str, reason: &'a str) -> impl Iterator<Item = UnixNanos> {
        let events = self
            .events_of(name)
            .filter(move |event| event.reason == reason);
        events.flat_map(pulls::times)
    }

    /// Starts of instances that the status does not know any more.
    fn earlier_starts(&self, name: &str, spans: &[Span]) -> Vec<Mark> {
        let is_known = |at: UnixNanos| spans.iter().any(|span| span.begin == at);
        let earlier = self.times_of(name, "Started").filter(|at| !is_known(*at));
        let mark = |at: UnixNanos| Mark {
            at,
            tone: Tone::Plain,
            title: "an earlier instance was started".to_owned(),
        };
        earlier.map(mark).collect()
    }

    /// Whether a condition holds, since when, and its message or reason.
    fn condition(&self, type_: &str) -> Option<(bool, UnixNanos, String)> {
        let mut conditions = self.status.conditions.iter().flatten();
        let found = conditions.find(|condition| condition.type_ == type_)?;
        let since = known(found.last_transition_time.as_ref())?;
        let words = [&found.message, &found.reason];
        let why = words.into_iter().flatten().find(|it| !it.is_empty());
        Some((
            found.status == "True",
            since,
            why.cloned().unwrap_or_default(),
        ))
    }

    fn ready_lane(&self) -> Lane {
        let span = self.condition("Ready").map(|(ready, since, why)| {
            // Within a second the order is lost: nothing is ready before it runs.
            let starts = self.statuses().filter_map(|status| {
                let running = status.state.as_ref()?.running.as_ref()?;
                let cut = known(running.started_at.as_ref())?;
                Some(self.exact_start(&status.name, cut))
            });
            let same_second = starts.filter(|at| at.0 >= since.0 && at.0 - since.0 < SECOND);
            let begin = same_second.max().filter(|_| ready).unwrap_or(since);
            let title = match (ready, why.as_str()) {
                (true, _) => "ready".to_owned(),
                (false, "") => "not ready".to_owned(),
                (false, why) => format!("not ready: {why}"),
            };
            Span {
                begin,
                end: self.end().map(|end| end.max(begin)),
                kind: if ready { Kind::Running } else { Kind::Failed },
                title,
            }
        });
        Lane {
            name: "ready".to_owned(),
            // A pod that is over says that it is not ready, which is no news.
            spans: span
                .filter(|_| !self.phase().is_terminal())
                .into_iter()
                .collect(),
            marks: Vec::new(),
        }
    }
}

/// A time of the API, unless it says that it is unknown.
fn known(time: Option<&Time>) -> Option<UnixNanos> {
    time.map(nanos).filter(|at| at.0 > 0)
}

fn begin_of(state: &ContainerState) -> Option<UnixNanos> {
    let running = state.running.as_ref().and_then(|it| it.started_at.as_ref());
    let ended = state.terminated.as_ref();
    known(running.or_else(|| ended?.started_at.as_ref()))
}

fn never_ran(status: &ContainerStatus) -> bool {
    let is_gone = |state: &Option<ContainerState>| {
        state
            .as_ref()
            .is_some_and(|it| it.terminated.is_some() || it.running.is_some())
    };
    status.restart_count == 0 && !is_gone(&status.state) && !is_gone(&status.last_state)
}

fn is_of_sandbox(reason: &str) -> bool {
    matches!(
        reason,
        "SandboxChanged"
            | "FailedCreatePodSandBox"
            | "NetworkNotReady"
            | "FailedMount"
            | "FailedMountPodDir"
            | "FailedCreatePodContainer"
    )
}

fn is_of_hook(reason: &str) -> bool {
    matches!(reason, "FailedPostStartHook" | "FailedPreStopHook")
}

fn is_of_probe(reason: &str) -> bool {
    matches!(reason, "Unhealthy" | "ProbeWarning")
}

/// What is neither in a lane of its own nor drawn as a span.
fn is_of_life(reason: &str) -> bool {
    let drawn = ["Pulling", "Pulled", "Created", "Started", "BackOff"].contains(&reason);
    !drawn && !is_of_hook(reason) && !is_of_probe(reason)
}

/// Events as marks with this text: one for the first time, and one for the last.
fn marks<'a>(
    events: impl Iterator<Item = &'a v1::Event>,
    text: fn(&v1::Event) -> String,
) -> Vec<Mark> {
    let of_event = |event: &v1::Event| -> Vec<Mark> {
        let tone = match event.r#type() {
            v1::EventType::Warning => Tone::Bad,
            v1::EventType::Normal | v1::EventType::Unspecified => Tone::Notable,
        };
        let mut title = format!("{}: {}", event.reason, text(event));
        if event.count > 1 {
            title += &format!(" (first or last of {} times)", event.count);
        }
        let mark = |at: UnixNanos| Mark {
            at,
            tone,
            title: title.clone(),
        };
        pulls::times(event).map(mark).collect()
    };
    events.flat_map(of_event).collect()
}
