//! What containers wait for or fail of: since when, how often, and what to do about it.
//! Pure.

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::accessors::sidecar_index;
use pod::core::{Container, ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};
use pod::meta::Time;
use pod::{Pod, PodExt as _};

use super::facts::{Beside, Trouble};
use super::{pod_wide, remedies, repeats};
use crate::pod_row::ending_word;
use crate::pulls::{self, UnderWay};
use crate::words::nanos;

/// Reasons of containers that ended without ever having run: they wrote nothing.
const NEVER_RAN: [&str; 2] = ["StartError", "ContainerCannotRun"];

/// Events that are not about a failed start.
const OF_RUNNING: [&str; 4] = ["BackOff", "FailedPreStopHook", "ProbeWarning", "Unhealthy"];

/// Of the pod, and of each container that waits or fails for a reason of its own.
pub(super) fn of(pod: &Pod, status: &PodStatus, beside: &Beside<'_>) -> Vec<Trouble> {
    let pulls = pulls::under_way(pod, status, beside.events);
    let views: Vec<View<'_>> = views(pod, status, beside, &pulls).collect();
    let waits = views.iter().any(|view| view.is_silent());
    let of_pod = pod_wide::of(pod, status, beside, waits);
    let is_told = |view: &&View<'_>| of_pod.is_some() && view.is_silent();
    let of_containers = views.iter().filter(|view| !is_told(view));
    let mut troubles: Vec<Trouble> = of_containers.filter_map(View::trouble).collect();
    troubles.splice(0..0, of_pod);
    troubles
}

/// Why a container has not run: what it waits for or failed of, or else its pod.
pub(super) fn of_container(
    pod: &Pod,
    status: &PodStatus,
    beside: &Beside<'_>,
    container: &str,
) -> Option<Trouble> {
    let mut troubles = of(pod, status, beside);
    let own = troubles.iter().position(|it| it.subject == container);
    let of_pod = troubles
        .iter()
        .position(|it| it.subject == pod_wide::THE_POD);
    own.or(of_pod).map(|index| troubles.swap_remove(index))
}

/// Whether the newest instance of a container is one whose program never ran.
pub(super) fn container_never_ran(status: &PodStatus, container: &str) -> bool {
    let init = status.init_container_statuses.iter().flatten();
    let mut statuses = init.chain(status.container_statuses.iter().flatten());
    let Some(status) = statuses.find(|status| status.name == container) else {
        return false;
    };
    let states = [&status.state, &status.last_state].into_iter().flatten();
    let mut ended = states.filter_map(|state| state.terminated.as_ref());
    ended.any(|ended| ended.container_id == status.container_id && never_ran(ended))
}

fn views<'a>(
    pod: &'a Pod,
    status: &'a PodStatus,
    beside: &'a Beside<'_>,
    pulls: &'a [UnderWay],
) -> impl Iterator<Item = View<'a>> {
    let init = status.init_container_statuses.iter().flatten();
    let statuses = init.chain(status.container_statuses.iter().flatten());
    let containers = pod.init_containers().iter().chain(pod.containers());
    containers.filter_map(move |container| {
        Some(View {
            pod,
            pod_status: status,
            container,
            status: statuses.clone().find(|it| it.name == container.name)?,
            pull: pulls.iter().find(|pull| pull.container == container.name),
            beside,
        })
    })
}

/// One container and what became of it.
#[derive(Clone, Copy)]
struct View<'a> {
    pod: &'a Pod,
    pod_status: &'a PodStatus,
    container: &'a Container,
    status: &'a ContainerStatus,
    pull: Option<&'a UnderWay>,
    beside: &'a Beside<'a>,
}

impl View<'_> {
    fn trouble(&self) -> Option<Trouble> {
        let default = ContainerState::default();
        let state = self.status.state.as_ref().unwrap_or(&default);
        if let Some(pull) = self.pull {
            return Some(self.pulling(pull));
        }
        if let Some(waiting) = &state.waiting {
            let message = waiting.message.as_deref().unwrap_or_default();
            return Some(self.waiting(waiting.reason.as_deref().unwrap_or_default(), message));
        }
        if let Some(ended) = &state.terminated {
            return self.ended(ended);
        }
        let running = state.running.as_ref()?;
        self.not_ready(running.started_at.as_ref())
    }

    fn found(&self, what: String, since: Option<UnixNanos>, remedy: String) -> Trouble {
        Trouble {
            subject: self.container.name.clone(),
            what,
            since,
            seen: None,
            remedy,
        }
    }

    /// Whether it waits and its status does not say for what.
    fn is_silent(&self) -> bool {
        let state = self.status.state.as_ref();
        let waiting = state.and_then(|state| state.waiting.as_ref());
        let reason = waiting.map(|waiting| waiting.reason.as_deref().unwrap_or_default());
        let is_default = matches!(reason, Some("" | "ContainerCreating" | "PodInitializing"));
        is_default && self.pull.is_none() && !self.has_new_instance()
    }

    /// A pull that goes on is what is waited for, whatever failed before.
    fn pulling(&self, pull: &UnderWay) -> Trouble {
        let what = format!("its image {} is being pulled", pull.image);
        let remedy = "wait; the runtime does not say how far a pull is".to_owned();
        self.found(what, Some(pull.since), remedy)
    }

    fn waiting(&self, reason: &str, message: &str) -> Trouble {
        let told = |what: &str| match message {
            "" => format!("{reason}: {what}"),
            message => format!("{reason}: {what}: {message}"),
        };
        let (what, remedy) = match reason {
            "" | "ContainerCreating" | "PodInitializing" => return self.not_yet(reason),
            "CrashLoopBackOff" => {
                let last = self.last_ending();
                let ended = last.map_or_else(|| "it ended".to_owned(), ended_with);
                let what = format!("{ended}, and waits before its next start");
                (told(&what), self.after_end(last, "--previous "))
            }
            "PostStartHookError" => (told("its postStart hook failed"), self.logs("--previous ")),
            _ => {
                let image = self.container.image.as_deref().unwrap_or_default();
                let (what, remedy) = remedies::of_waiting(reason, message, image);
                (told(&what), remedy.to_owned())
            }
        };
        let failed = self.failures();
        let or_else = match reason {
            "CrashLoopBackOff" | "PostStartHookError" => self
                .last_ending()
                .and_then(|ended| ended.finished_at.as_ref()),
            _ => self.pod_status.start_time.as_ref(),
        };
        let since = failed.as_ref().map(|failed| failed.since);
        let restarts = self.status.restart_count;
        let what = match reason {
            "CrashLoopBackOff" if restarts > 0 => format!("{what}; restarts so far: {restarts}"),
            _ => what,
        };
        Trouble {
            seen: failed.map(|failed| failed.seen),
            ..self.found(what, since.or(or_else.map(nanos)), remedy)
        }
    }

    /// It waits, and has no reason of its own.
    fn not_yet(&self, reason: &str) -> Trouble {
        if self.has_new_instance() {
            return self.new_instance();
        }
        if let Some(name) = self.init_in_the_way() {
            let what = format!("PodInitializing: init container {name} comes first");
            let since = self.pod_status.start_time.as_ref().map(nanos);
            return self.found(what, since, format!("see what {name} waits for or does"));
        }
        if let Some((name, since)) = self.hook_in_the_way() {
            let what = format!("the postStart hook of {name} comes first");
            return self.found(what, Some(since), format!("see {name}"));
        }
        let reason = match reason {
            "" => "ContainerCreating",
            reason => reason,
        };
        let what = match self.beside.last_plan {
            "" => format!("{reason}: sandbox, volumes and image come first"),
            plan => format!("{reason}: its worker's plan is: {plan}"),
        };
        let since = self.pod_status.start_time.as_ref().map(nanos);
        let remedy = "wait; nothing of it has failed so far";
        self.found(what, since, remedy.to_owned())
    }

    /// An instance of it has been made and counts as not started yet.
    fn has_new_instance(&self) -> bool {
        let state = self.status.state.as_ref();
        let waits = state.is_some_and(|state| state.waiting.is_some());
        let last = self
            .last_ending()
            .and_then(|last| last.container_id.as_ref());
        let newest = self.status.container_id.as_ref();
        waits && newest.is_some() && newest != last
    }

    fn new_instance(&self) -> Trouble {
        match self.in_post_start() {
            Some(since) => self.found(
                "its postStart hook runs; the container counts as started when that has ended"
                    .to_owned(),
                Some(since),
                format!(
                    "wait for it, or correct lifecycle.postStart in the manifest if it hangs; \
                     what the container does meanwhile: {}",
                    self.logs("")
                ),
            ),
            None => self.found(
                "it is made, and about to be started".to_owned(),
                self.last_event("Created"),
                "wait".to_owned(),
            ),
        }
    }

    /// Since when its postStart hook runs, if it does.
    fn in_post_start(&self) -> Option<UnixNanos> {
        let lifecycle = self.container.lifecycle.as_ref()?;
        lifecycle.post_start.as_ref()?;
        let started = self.last_event("Started")?;
        let is_since_made = self.last_event("Created") <= Some(started);
        (self.has_new_instance() && is_since_made).then_some(started)
    }

    /// The container whose postStart hook this one waits for.
    fn hook_in_the_way(&self) -> Option<(&str, UnixNanos)> {
        let views = views(self.pod, self.pod_status, self.beside, &[]);
        let mut before = views.take_while(|view| view.container.name != self.container.name);
        before.find_map(|view| Some((view.container.name.as_str(), view.in_post_start()?)))
    }

    fn events(&self) -> impl Iterator<Item = &v1::Event> + Clone {
        let events = self.beside.events.iter();
        events.filter(|event| event.container == self.container.name)
    }

    /// When an event of this reason was seen last.
    fn last_event(&self, reason: &str) -> Option<UnixNanos> {
        let events = self.events().filter(|event| event.reason == reason);
        events.map(|event| UnixNanos(event.unix_nanos)).max()
    }

    /// What its last starts failed of.
    fn failures(&self) -> Option<repeats::Repeats> {
        let started = self.last_event("Started");
        repeats::newest(self.events().filter(|event| {
            event.r#type() == v1::EventType::Warning
                && !OF_RUNNING.contains(&event.reason.as_str())
                && Some(UnixNanos(event.unix_nanos)) >= started
        }))
    }

    fn last_ending(&self) -> Option<&ContainerStateTerminated> {
        self.status.last_state.as_ref()?.terminated.as_ref()
    }

    /// The first init container that the others wait for.
    fn init_in_the_way(&self) -> Option<&str> {
        let statuses = self.pod_status.init_container_statuses.iter().flatten();
        let mut in_the_way = statuses.filter(|status| {
            let state = status.state.as_ref();
            let ended = state.and_then(|state| state.terminated.as_ref());
            let done = ended.is_some_and(|ended| ended.exit_code == 0);
            let is_sidecar = sidecar_index(self.pod, &status.name).is_some();
            let runs_on = is_sidecar && status.started == Some(true);
            !done && !runs_on && status.name != self.container.name
        });
        in_the_way.next().map(|status| status.name.as_str())
    }

    /// An ending is trouble unless it is a good one.
    fn ended(&self, ended: &ContainerStateTerminated) -> Option<Trouble> {
        if ended.exit_code == 0 {
            return None;
        }
        let remedy = match ended.reason.as_deref() {
            Some("OOMKilled") => {
                let limits = self.container.resources.as_ref();
                let limits = limits.and_then(|it| it.limits.as_ref());
                let limit = limits.and_then(|limits| limits.get("memory"));
                let limit = limit.map_or_else(String::new, |limit| format!(" ({})", limit.0));
                format!("raise its limit of memory{limit}, or have it use less")
            }
            _ => self.after_end(Some(ended), ""),
        };
        let since = ended.finished_at.as_ref().map(nanos);
        Some(self.found(ended_with(ended), since, remedy))
    }

    /// What to do after it ended: one that never ran has written nothing.
    fn after_end(&self, ended: Option<&ContainerStateTerminated>, options: &str) -> String {
        match ended {
            Some(ended) if never_ran(ended) => remedies::OF_A_PROGRAM.to_owned(),
            _ => self.logs(options),
        }
    }

    /// A container that runs and is not ready, or not started as its probe sees it.
    fn not_ready(&self, started_at: Option<&Time>) -> Option<Trouble> {
        let events = "read the events Unhealthy below; the probe is shown with its container";
        if self.container.startup_probe.is_some() && self.status.started == Some(false) {
            let what = "its startup probe has not succeeded yet".to_owned();
            return Some(self.found(what, started_at.map(nanos), events.to_owned()));
        }
        if self.status.ready || self.container.readiness_probe.is_none() {
            return None;
        }
        let conditions = self.pod_status.conditions.iter().flatten();
        let mut since = conditions
            .filter(|it| it.type_ == "ContainersReady" && it.status == "False")
            .filter_map(|it| it.last_transition_time.as_ref());
        let since = since.next().or(started_at).map(nanos);
        let what = "its readiness probe does not succeed".to_owned();
        Some(self.found(what, since, events.to_owned()))
    }

    /// To read what it wrote.
    fn logs(&self, options: &str) -> String {
        let (namespace, pod) = (self.pod.namespace(), self.pod.name());
        let container = &self.container.name;
        format!("bulkhead logs {options}{namespace}/{pod} -c {container}")
    }
}

/// Whether what ended is a program that was never started.
fn never_ran(ended: &ContainerStateTerminated) -> bool {
    let reason = ended.reason.as_deref();
    reason.is_some_and(|reason| NEVER_RAN.contains(&reason))
}

/// How a container ended, in words.
fn ended_with(ended: &ContainerStateTerminated) -> String {
    let word = ending_word(ended);
    let what = match never_ran(ended) {
        true => format!("it could not be started ({word})"),
        false => format!("it ended with exit code {} ({word})", ended.exit_code),
    };
    match ended.message.as_deref().unwrap_or_default().trim() {
        "" => what,
        message => format!("{what}: {message}"),
    }
}

#[cfg(test)]
mod tests;
