//! `ProbeTargets`: what the prober asks for. It names a container and a probe; the
//! command comes from the pod as admitted.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_probe_targets_response::Message;
use cri::{EXEC_SYNC, RuntimeChanges, RuntimeError, RuntimeErrorKind, RuntimeReads};
use cri_requests::probe_command;
use futures_util::StreamExt;
use ipc::StateEvent;
use ipc::limits::EXEC_PROBE_MARGIN;
use pod::PodExt;
use pod::core::{Container as ContainerSpec, Probe};
use pod::identity::{check_container_name, check_uid};
use runtime_gate::LOOK_BEFORE_COMMAND;
use tokio::sync::{Semaphore, broadcast};
use tokio::time::{Instant, sleep};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::left_commands::LeftCommands;
use super::probe_calls::{ProbeCall, ProbeCalls};
use super::shared::Shared;
use super::status;

/// Exec probes that run at once: as many as the prober tries at once, which gives
/// no pod more than four of them.
const MAX_EXEC_PROBES: usize = 64;
/// How long a try waits for one of these places: a former prober's may be taken.
const PLACE_WAIT: Duration = Duration::from_secs(3);
/// How long the runtime may take beyond the probe's own timeout, which it measures
/// from when the command runs. A kubelet gives it two minutes; here a command that
/// never starts holds a place that others wait for.
const START_SLACK: Duration = Duration::from_secs(30);
/// How long the runtime may take to answer once a command that it has started has had its
/// time: to kill it, and to read what it printed.
const ANSWER_SLACK: Duration = Duration::from_secs(3);
// Else a command that was not sent counts as one that was too slow.
const _: () = assert!(LOOK_BEFORE_COMMAND.as_secs() < START_SLACK.as_secs());
// Else the prober gives up before it is told that the command was too slow.
const _: () = assert!(PLACE_WAIT.as_secs() + START_SLACK.as_secs() < EXEC_PROBE_MARGIN.as_secs());
/// Most of its output that the prober gets.
const MAX_OUTPUT_BYTES: usize = 10 << 10;
/// Longest message of a failed hook that is kept, in bytes.
const MAX_HOOK_ERROR_BYTES: usize = 1 << 10;
/// Longest timeout of a probe, against a spec that would hold a place for ever.
const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

pub(super) struct Service {
    shared: Shared,
    places: Arc<Semaphore>,
    calls: ProbeCalls,
    left: LeftCommands,
}

/// What is to be run.
struct Asked {
    command: Vec<String>,
    timeout: Duration,
}

impl Service {
    pub(super) fn new(shared: Shared) -> Service {
        Service {
            shared,
            places: Arc::new(Semaphore::new(MAX_EXEC_PROBES)),
            calls: ProbeCalls::default(),
            left: LeftCommands::default(),
        }
    }
}

#[tonic::async_trait]
impl v1::probe_targets_server::ProbeTargets for Service {
    type WatchProbeTargetsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchProbeTargetsResponse, Status>> + Send>>;

    async fn watch_probe_targets(
        &self,
        _request: Request<v1::WatchProbeTargetsRequest>,
    ) -> Result<Response<Self::WatchProbeTargetsStream>, Status> {
        let publisher = self.shared.pool.publisher();
        let watch = publisher.targets().subscribe();
        let complete = publisher.clone().complete();
        let complete = futures_util::stream::once(complete);
        let complete = complete.map(|()| Message::Complete(v1::ProbeTargetsComplete {}));
        let targets = watch.into_stream().map(|event| match event {
            StateEvent::SnapshotBegin => Message::SnapshotBegin(v1::SnapshotBegin {}),
            StateEvent::Item(_, target) => Message::Target(target),
            StateEvent::SnapshotEnd => Message::SnapshotEnd(v1::SnapshotEnd {}),
            StateEvent::Removed(id) => Message::RemovedContainerId(id),
        });
        let messages = futures_util::stream::select(targets, complete).map(|message| {
            Ok(v1::WatchProbeTargetsResponse {
                message: Some(message),
            })
        });
        Ok(Response::new(Box::pin(messages)))
    }

    type WatchHttpHooksStream = Pin<Box<dyn Stream<Item = Result<v1::HttpHook, Status>> + Send>>;

    async fn watch_http_hooks(
        &self,
        _request: Request<v1::WatchHttpHooksRequest>,
    ) -> Result<Response<Self::WatchHttpHooksStream>, Status> {
        let told = self.shared.http_hooks.listen();
        let boot_id = self.shared.boot_id.clone();
        let hooks = futures_util::stream::unfold((told, boot_id), |(told, boot_id)| async {
            let hook = told.next().await?;
            let hook = v1::HttpHook {
                boot_id: boot_id.clone(),
                ..hook
            };
            Some((Ok(hook), (told, boot_id)))
        });
        Ok(Response::new(Box::pin(hooks)))
    }

    async fn report_http_hook(
        &self,
        request: Request<v1::ReportHttpHookRequest>,
    ) -> Result<Response<v1::ReportHttpHookResponse>, Status> {
        let mut request = request.into_inner();
        if request.boot_id == self.shared.boot_id {
            let error = &mut request.error;
            error.truncate(error.floor_char_boundary(MAX_HOOK_ERROR_BYTES));
            let result = match error.is_empty() {
                true => Ok(()),
                false => Err(std::mem::take(error)),
            };
            self.shared.http_hooks.report(request.id, result);
        }
        Ok(Response::new(v1::ReportHttpHookResponse {}))
    }

    async fn exec_probe(
        &self,
        request: Request<v1::ExecProbeRequest>,
    ) -> Result<Response<v1::ExecProbeResponse>, Status> {
        let request = request.into_inner();
        check_uid(&request.pod_uid).map_err(|error| status::of_identity(&error))?;
        check_container_name(&request.container_name)
            .map_err(|error| status::of_identity(&error))?;
        let asked = self.command(&request).await?;
        let timeout = asked.timeout;
        let (id, kind) = (request.container_id, request.kind);
        // A command that was not run says nothing of the container.
        let not_run = |error: &str| {
            Ok(Response::new(v1::ExecProbeResponse {
                error: error.to_owned(),
                ..v1::ExecProbeResponse::default()
            }))
        };
        if self.left.is_full(&id, kind) {
            return not_run("the runtime has not ended earlier commands of this probe");
        }
        let place = tokio::time::timeout(PLACE_WAIT, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else {
            return not_run("too many exec probes run at once");
        };
        let runtime = &self.shared.runtime;
        let starts = self.shared.hints.command_starts();
        let probe = self.calls.begin(&id);
        let mut call = Box::pin(run(Arc::clone(&runtime.changes), id.clone(), asked));
        let answer = async {
            tokio::select! {
                biased;
                // Cancel-safe: the call itself is kept.
                answer = &mut call => Some(answer),
                // Cancel-safe: it changes nothing.
                () = is_late(&*runtime.reads, starts, (&probe, &id), timeout) => None,
            }
        };
        let response = match tokio::time::timeout(timeout + START_SLACK, answer).await {
            Ok(Some(Ok(result))) => v1::ExecProbeResponse {
                exit_code: result.exit_code,
                output: output(result.stdout, result.stderr),
                ..v1::ExecProbeResponse::default()
            },
            Ok(Some(Err(error))) => failed(&error),
            Ok(None) => {
                self.left.leave(id, kind, call);
                timed_out()
            }
            Err(_) => timed_out(),
        };
        Ok(Response::new(response))
    }
}

/// Runs the command of a probe.
async fn run(
    runtime: Arc<dyn RuntimeChanges>,
    id: String,
    asked: Asked,
) -> Result<cri::v1::ExecSyncResponse, RuntimeError> {
    runtime.exec_sync(&id, asked.command, asked.timeout).await
}

/// Returns once the command has had its time and the runtime should have said so. containerd
/// does not where a child of the command goes on: it kills the command alone, and waits for
/// what the child may still print. When the command began is known by the runtime's event; a
/// runtime without such events has [`START_SLACK`].
async fn is_late(
    runtime: &dyn RuntimeReads,
    mut starts: broadcast::Receiver<String>,
    (probe, id): (&ProbeCall<'_>, &str),
    timeout: Duration,
) {
    let mut seen = 0;
    while seen < probe.starts_needed() {
        match starts.recv().await {
            Ok(started) if started == id => seen += 1,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
    sleep(timeout).await;
    loop {
        sleep(ANSWER_SLACK).await;
        // One that stood still itself meanwhile has that time again, and so have we.
        let asked_at = Instant::now();
        if runtime.version().await.is_ok() && asked_at.elapsed() < ANSWER_SLACK {
            return;
        }
    }
}

impl Service {
    /// The command and timeout of the probe that is named, if that container
    /// instance is one of this pod's and runs.
    async fn command(&self, request: &v1::ExecProbeRequest) -> Result<Asked, Status> {
        let publisher = self.shared.pool.publisher();
        let target = publisher.targets().get(&request.container_id);
        let is_known = target.is_some_and(|target| {
            target.running
                && target.container_name == request.container_name
                && target.pod.is_some_and(|pod| pod.uid == request.pod_uid)
        });
        if !is_known {
            return Err(Status::not_found("no such container runs in this pod"));
        }
        let desired = self.shared.pool.desired(&request.pod_uid).await;
        let desired = desired.map_err(status::of_pool)?;
        let pod = desired
            .ok_or_else(|| Status::not_found("no such pod"))?
            .decode()
            .map_err(|error| status::of_wire(&error))?;
        let (spec, probe) = pod
            .container(&request.container_name)
            .and_then(|(_, spec)| Some((spec, probe_of(spec, request.kind())?)))
            .ok_or_else(|| Status::not_found("the container has no such probe"))?;
        let written = probe
            .exec
            .as_ref()
            .and_then(|exec| exec.command.clone())
            .filter(|command| !command.is_empty())
            .ok_or_else(|| Status::failed_precondition("the probe has no command"))?;
        let command = probe_command(spec, &written)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        let seconds = u64::try_from(probe.timeout_seconds.unwrap_or(1)).unwrap_or(1);
        let timeout = Duration::from_secs(seconds.max(1)).min(MAX_TIMEOUT);
        Ok(Asked { command, timeout })
    }
}

fn probe_of(spec: &ContainerSpec, kind: v1::ProbeKind) -> Option<&Probe> {
    match kind {
        v1::ProbeKind::Liveness => spec.liveness_probe.as_ref(),
        v1::ProbeKind::Readiness => spec.readiness_probe.as_ref(),
        v1::ProbeKind::Startup => spec.startup_probe.as_ref(),
        v1::ProbeKind::Unspecified => None,
    }
}

fn output(mut stdout: Vec<u8>, stderr: Vec<u8>) -> Vec<u8> {
    stdout.truncate(MAX_OUTPUT_BYTES);
    let room = MAX_OUTPUT_BYTES - stdout.len();
    stdout.extend(stderr.into_iter().take(room));
    stdout
}

fn timed_out() -> v1::ExecProbeResponse {
    v1::ExecProbeResponse {
        timed_out: true,
        ..v1::ExecProbeResponse::default()
    }
}

/// A try that the runtime did not carry out: only the time that the command itself took too
/// long says something of the container.
fn failed(error: &RuntimeError) -> v1::ExecProbeResponse {
    match error.kind {
        RuntimeErrorKind::DeadlineExceeded if error.is_of(EXEC_SYNC) => timed_out(),
        _ => v1::ExecProbeResponse {
            error: telemetry::chain(error),
            ..v1::ExecProbeResponse::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_not_sent_has_not_taken_too_long() {
        for (method, kind, counts) in [
            (EXEC_SYNC, RuntimeErrorKind::DeadlineExceeded, true),
            (EXEC_SYNC, RuntimeErrorKind::Unavailable, false),
            // The gate's look at the container, before the command.
            ("ContainerStatus", RuntimeErrorKind::DeadlineExceeded, false),
        ] {
            let response = failed(&RuntimeError::new(method, kind, ""));
            assert_eq!(response.timed_out, counts, "{method} {kind:?}");
            assert_eq!(response.error.is_empty(), counts, "{method} {kind:?}");
        }
    }
}
