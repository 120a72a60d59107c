//! What goes wrong with calls, by chance or until told otherwise.

use std::time::Duration;

use clock::UnixNanos;

/// What goes wrong. Probabilities are per call, between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The call fails before it has an effect.
    pub error: f64,
    /// The call has its effect, and the answer is lost.
    pub lost_reply: f64,
    /// The call takes this many times as long as usual at most.
    pub slowness: f64,
    /// No call is answered: the runtime is down.
    pub unavailable: bool,
    /// The runtime says that it has no network for sandboxes.
    pub network_down: bool,
    /// Events are dropped.
    pub lost_event: f64,
    /// How long the end of a container is known by its event alone at most, and half
    /// of that at least: containerd tells of it, cleans up, and then shows it.
    pub clean_up: Duration,
    /// Within this time from its arrival a StopContainer whose caller goes away has
    /// its SIGTERM lost for good: later ones take it for sent, as in containerd.
    pub signal_delay: Duration,
    /// How much longer a RunPodSandbox takes that is made now: its network plugins are
    /// slow. Meanwhile its name is taken, as in containerd, and no list shows it.
    pub sandbox_delay: Duration,
    /// RunPodSandbox fails: a network plugin is broken, though the runtime says that it
    /// has a network.
    pub sandboxes_fail: bool,
    /// The same as `sandbox_delay` of a CreateContainer.
    pub container_delay: Duration,
    /// The same of a StartContainer, before its process runs.
    pub start_delay: Duration,
    /// A start that is given up leaves a task, which no list shows and which keeps its
    /// container from being removed, as in containerd at the wrong moment.
    pub loses_tasks: bool,
    /// How much longer a StopPodSandbox takes.
    pub sandbox_stop_delay: Duration,
    /// The same of a RemoveContainer.
    pub container_removal_delay: Duration,
    /// The same of a RemoveImage.
    pub image_removal_delay: Duration,
    /// The same of an ExecSync, before its command runs.
    pub exec_delay: Duration,
    /// How much longer it takes after its command has ended: a child of the command goes
    /// on, and may still print.
    pub exec_output_delay: Duration,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Faults = Faults {
        error: 0.0,
        lost_reply: 0.0,
        slowness: 1.0,
        unavailable: false,
        network_down: false,
        lost_event: 0.0,
        clean_up: Duration::from_millis(30),
        signal_delay: Duration::ZERO,
        sandbox_delay: Duration::ZERO,
        sandboxes_fail: false,
        container_delay: Duration::ZERO,
        start_delay: Duration::ZERO,
        loses_tasks: false,
        sandbox_stop_delay: Duration::ZERO,
        container_removal_delay: Duration::ZERO,
        image_removal_delay: Duration::ZERO,
        exec_delay: Duration::ZERO,
        exec_output_delay: Duration::ZERO,
    };

    /// Things go wrong often enough to be met in a short run.
    pub const SOME: Faults = Faults {
        error: 0.03,
        lost_reply: 0.03,
        slowness: 4.0,
        unavailable: false,
        network_down: false,
        lost_event: 0.2,
        clean_up: Duration::from_millis(150),
        signal_delay: Duration::ZERO,
        sandbox_delay: Duration::ZERO,
        sandboxes_fail: false,
        container_delay: Duration::ZERO,
        start_delay: Duration::ZERO,
        loses_tasks: false,
        sandbox_stop_delay: Duration::ZERO,
        container_removal_delay: Duration::ZERO,
        image_removal_delay: Duration::ZERO,
        exec_delay: Duration::ZERO,
        exec_output_delay: Duration::ZERO,
    };
}

impl Default for Faults {
    fn default() -> Faults {
        Faults::NONE
    }
}

/// When something went wrong, and when nothing did, by a clock that never jumps.
#[derive(Debug, Default)]
pub(crate) struct Working(Vec<(UnixNanos, bool)>);

impl Working {
    /// From now on it works, or something goes wrong.
    pub(crate) fn note(&mut self, now: UnixNanos, works: bool) {
        self.0.push((now, works));
    }

    /// Since when it worked, of a moment at which it did.
    pub(crate) fn since(&self, moment: UnixNanos) -> Option<UnixNanos> {
        let until_then = self.0.iter().rev().find(|(at, _)| *at <= moment);
        match until_then {
            None => Some(UnixNanos(0)),
            Some((at, works)) => works.then_some(*at),
        }
    }
}
