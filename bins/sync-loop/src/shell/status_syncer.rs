//! The way to status-syncer: one report after the other.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::status_reports_client::StatusReportsClient;
use ipc::{CallError, Channel};
use pod::PodSource;
use process::Context;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use topology::Process;

use super::mailbox::Mailbox;
use super::reports::{Report, Reports};
use crate::dispatcher::Event;
use crate::peers::PeerBoard;

/// Deadline of each call, as the interface says.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Wait after a refusal that may pass before trying again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The way to status-syncer. Cloning shares it; with the last clone its task ends.
#[derive(Clone)]
pub(super) struct StatusSyncer {
    reports: Mailbox<Reports>,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl StatusSyncer {
    /// Starts the task; a new run of status-syncer is told to `answers`.
    pub(super) fn start(
        context: &Context,
        answers: mpsc::Sender<Event>,
        peers: PeerBoard,
    ) -> StatusSyncer {
        let reports = Mailbox::default();
        let link = Link {
            client: StatusReportsClient::new(context.network.channel(Process::StatusSyncer)),
            answers,
            peers,
            peer_boot_id: None,
            told_again: None,
        };
        let task = tokio::spawn(link.send(reports.clone()));
        StatusSyncer {
            reports,
            _task: Arc::new(AbortOnDropHandle::new(task)),
        }
    }

    pub(super) fn reject(&self, rejection: v1::RejectPodRequest) {
        self.reports.fill(|reports| reports.reject(rejection));
    }

    pub(super) fn set_verdicts(&self, verdicts: Vec<v1::ProbeVerdict>) {
        self.reports.fill(|reports| reports.set_verdicts(verdicts));
    }

    pub(super) fn set_health(&self, health: v1::SetNodeHealthRequest) {
        self.reports.fill(|reports| reports.set_health(health));
    }

    pub(super) fn report(&self, event: v1::Event) {
        self.reports.fill(|reports| reports.report(event));
    }

    pub(super) fn retain(&self, known: Vec<String>, delivered: &[PodSource], listed_at: Duration) {
        self.reports
            .fill(|reports| reports.retain(known, delivered, listed_at));
    }
}

struct Link {
    client: StatusReportsClient<Channel>,
    answers: mpsc::Sender<Event>,
    peers: PeerBoard,
    /// Boot id of status-syncer, once it has answered.
    peer_boot_id: Option<String>,
    /// When everything was last told again to a new run.
    told_again: Option<Instant>,
}

impl Link {
    async fn send(mut self, reports: Mailbox<Reports>) {
        loop {
            let Some(report) = reports.with(|reports| reports.next()) else {
                reports.filled().await;
                continue;
            };
            match self.call(&report).await {
                Ok(boot_id) => {
                    reports.with(|reports| reports.done(&report));
                    self.note_boot_id(boot_id).await;
                }
                Err(error) => {
                    let text = telemetry::chain(&error);
                    let dropped = error.is_final();
                    // The next one comes anyway.
                    if matches!(report, Report::Health(_)) {
                        tracing::debug!(error = text, "status-syncer did not answer");
                    } else {
                        tracing::warn!(
                            error = text,
                            dropped,
                            "status-syncer did not take a report"
                        );
                    }
                    self.peers.failed(Process::StatusSyncer, &text);
                    if dropped {
                        reports.with(|reports| reports.done(&report));
                    } else if error.code().is_some() {
                        reports.with(|reports| reports.put_back(&report));
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Makes one call and returns the boot id in its answer.
    async fn call(&self, report: &Report) -> Result<String, CallError> {
        ipc::call(CALL_DEADLINE, || {
            let mut client = self.client.clone();
            let report = report.clone();
            async move {
                Ok(match report {
                    Report::Rejection(request) => client
                        .reject_pod(request)
                        .await?
                        .map(|answer| answer.boot_id),
                    Report::Verdicts(request) => client
                        .set_probe_verdicts(request)
                        .await?
                        .map(|answer| answer.boot_id),
                    Report::Events(request) => client
                        .report_events(request)
                        .await?
                        .map(|answer| answer.boot_id),
                    Report::Health(request) => client
                        .set_node_health(request)
                        .await?
                        .map(|answer| answer.boot_id),
                    Report::Known(request) => {
                        let answer = client.remove_orphaned_statuses(request).await?;
                        answer.map(|answer| answer.boot_id)
                    }
                })
            }
        })
        .await
    }

    async fn note_boot_id(&mut self, boot_id: String) {
        self.peers.reached(Process::StatusSyncer, &boot_id);
        if self.peer_boot_id.as_ref() == Some(&boot_id) {
            return;
        }
        if self.peer_boot_id.replace(boot_id).is_some() {
            // One that says in each answer that it is another run must not have everything
            // told to it, and the pool asked, without a pause.
            let last = self.told_again.replace(Instant::now());
            if last.is_some_and(|last| last.elapsed() < RETRY_PAUSE) {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            // Without a loop there is nobody to tell, and this task ends with it.
            drop(self.answers.send(Event::StatusSyncerRestarted).await);
        }
    }
}

#[cfg(test)]
mod tests {

    use memory_network::MemoryHub;
    use topology::Identities;

    use super::*;
    use crate::shell::tests::warnings::Warnings;

    async fn until(what: &str, so: impl Fn() -> bool) {
        let waiting = async {
            while !so() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok(), "{what}");
    }

    #[tokio::test(start_paused = true)]
    async fn while_status_syncer_is_away_only_a_report_that_says_something_is_warned_of() {
        let warnings = Warnings::of("::shell::status_syncer");
        let _logging = tracing::subscriber::set_default(warnings.clone());
        let identities = Identities::from_base(200_000).unwrap();
        let network = MemoryHub::new().network(Process::SyncLoop, &identities);
        let (answers, _events) = mpsc::channel(1);
        let peers = PeerBoard::default();
        let link = Link {
            client: StatusReportsClient::new(network.channel(Process::StatusSyncer)),
            answers,
            peers: peers.clone(),
            peer_boot_id: None,
            told_again: None,
        };
        let reports = Mailbox::<Reports>::default();
        let _task = AbortOnDropHandle::new(tokio::spawn(link.send(reports.clone())));
        reports.fill(|reports| reports.set_health(v1::SetNodeHealthRequest::default()));
        until("it is seen to be away", || !peers.all().is_empty()).await;
        assert_eq!(warnings.count(), 0);
        reports.fill(|reports| reports.report(v1::Event::default()));
        until("a warning", || warnings.count() > 0).await;
    }
}
