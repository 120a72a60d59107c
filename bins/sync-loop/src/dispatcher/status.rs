//! What the loop shows of itself.

use bulkhead_api::v1;

use super::admission::AdmissionState;
use super::sources::problem_text;
use super::{RuntimeHealth, SyncLoop};

/// One source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceSummary {
    /// Its name.
    pub name: &'static str,
    /// Whether it has delivered in this life.
    pub ready: bool,
    /// Pods that it has delivered.
    pub pods: usize,
    /// What is wrong with it, a line each.
    pub problems: Vec<String>,
}

/// The loop as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoopSummary {
    /// The configured sources.
    pub sources: Vec<SourceSummary>,
    /// What pleg last said of itself.
    pub pleg: v1::PlegHealth,
    /// Empty when the runtime answers.
    pub runtime_error: String,
    /// Pods that wait for their resync.
    pub work_queue_length: usize,
}

impl SyncLoop {
    /// The loop as a whole.
    #[must_use]
    pub(crate) fn summary(&self) -> LoopSummary {
        let sources = self
            .sources
            .iter()
            .map(|(source, ready, problems)| SourceSummary {
                name: source.as_str(),
                ready,
                pods: self.pods.uids_of(source).len(),
                problems: problems
                    .iter()
                    .map(|problem| format!("{}: {}", problem.subject, problem_text(problem)))
                    .collect(),
            });
        LoopSummary {
            sources: sources.collect(),
            pleg: self.pleg.clone(),
            runtime_error: match &self.runtime {
                RuntimeHealth::Up => String::new(),
                RuntimeHealth::Down { error, .. } => error.clone(),
            },
            work_queue_length: self.work_queue.len(),
        }
    }

    /// Uids of the desired pods, or the one that is named if it is desired.
    #[must_use]
    pub(crate) fn desired_pods(&self, uid: Option<&str>) -> Vec<super::Uid> {
        let pods = self.pods.iter().map(|(uid, _)| uid.clone());
        pods.filter(|pod| uid.is_none_or(|uid| uid == &**pod))
            .collect()
    }

    /// A desired pod with its admission and the last decision about it.
    #[must_use]
    pub(crate) fn describe(&self, uid: &str) -> Option<v1::DesiredPod> {
        let pod = self.pods.get(uid)?;
        let (admission, rejection) = match &pod.admission {
            AdmissionState::Pending(_) => (v1::Admission::Pending, None),
            AdmissionState::Admitted | AdmissionState::Remembered { .. } => {
                (v1::Admission::Admitted, None)
            }
            AdmissionState::Adopted => (v1::Admission::Adopted, None),
            AdmissionState::Rejected(rejection) => (v1::Admission::Rejected, Some(rejection)),
        };
        let decision = pod.decision.as_ref();
        let phase = self
            .workers
            .worker(uid)
            .map(|worker| worker.phase.as_str_name());
        Some(v1::DesiredPod {
            pod: Some(pod.document.to_message()),
            admission: admission.into(),
            rejection_reason: rejection
                .map(|rejection| rejection.reason.clone())
                .unwrap_or_default(),
            rejection_message: rejection
                .map(|rejection| rejection.message.clone())
                .unwrap_or_default(),
            last_decision: decision
                .map(|decision| decision.outcome.to_string())
                .unwrap_or_default(),
            last_decision_unix_nanos: decision.map_or(0, |decision| decision.at.0),
            worker_phase: phase
                .unwrap_or_default()
                .trim_start_matches("WORKER_PHASE_")
                .to_lowercase(),
        })
    }
}
