//! The gRPC server: translates between the messages and the main loop.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use config_files::bulkhead::Protection;
use confine::Confinement;
use futures_util::{Stream, StreamExt};
use nix::unistd::Pid;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use topology::{Identities, Process, row};

use crate::command::{Command, RestartError};
use crate::degradation::{Degradation, lacking};
use crate::launcher::user_name;
use crate::memory::Memory;
use crate::policy::{Ending, Moment};
use crate::record::EndingRecord;
use crate::snapshot::{Condition, ProcessSnapshot, Snapshot};
use node_config::NodeConfig;

/// What never changes while the supervisor runs.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) boot_id: String,
    pub(crate) config: NodeConfig,
    pub(crate) identities: Identities,
    pub(crate) degradations: Vec<Degradation>,
}

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) facts: Arc<Facts>,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    pub(crate) commands: mpsc::Sender<Command>,
}

type StatusStream = Pin<Box<dyn Stream<Item = Result<v1::SupervisorStatus, Status>> + Send>>;

#[tonic::async_trait]
impl v1::supervisor_server::Supervisor for Service {
    async fn get_status(
        &self,
        _request: Request<v1::GetSupervisorStatusRequest>,
    ) -> Result<Response<v1::SupervisorStatus>, Status> {
        Ok(Response::new(self.status()))
    }

    type WatchStatusStream = StatusStream;

    async fn watch_status(
        &self,
        _request: Request<v1::GetSupervisorStatusRequest>,
    ) -> Result<Response<StatusStream>, Status> {
        let facts = Arc::clone(&self.facts);
        let stream = WatchStream::new(self.snapshots.clone())
            .map(move |snapshot| Ok(status(&facts, &snapshot)));
        Ok(Response::new(Box::pin(stream)))
    }

    async fn restart_process(
        &self,
        request: Request<v1::RestartProcessRequest>,
    ) -> Result<Response<v1::RestartProcessResponse>, Status> {
        let process = parse_process(&request.into_inner().name)?;
        let (reply, answer) = oneshot::channel();
        let command = Command::Restart { process, reply };
        let old_pid = self.ask(command, answer).await?.map_err(|error| {
            let text = error.to_string();
            match error {
                RestartError::NotSupervised(_) => Status::invalid_argument(text),
                RestartError::Stopping => Status::failed_precondition(text),
            }
        })?;
        Ok(Response::new(v1::RestartProcessResponse { old_pid }))
    }

    async fn reload(
        &self,
        _request: Request<v1::ReloadRequest>,
    ) -> Result<Response<v1::ReloadResponse>, Status> {
        let (reply, answer) = oneshot::channel();
        let restarted = self.ask(Command::Reload { reply }, answer).await?;
        let restarted =
            restarted.map_err(|error| Status::failed_precondition(telemetry::chain(&error)))?;
        let restarted = restarted.iter().map(|process| process.name().to_owned());
        Ok(Response::new(v1::ReloadResponse {
            restarted: restarted.collect(),
        }))
    }

    async fn list_crashes(
        &self,
        request: Request<v1::ListCrashesRequest>,
    ) -> Result<Response<v1::ListCrashesResponse>, Status> {
        let name = request.into_inner().name;
        let only = match name.as_str() {
            "" => None,
            name => Some(parse_process(name)?),
        };
        let snapshot = self.snapshots.borrow();
        let crashes = snapshot
            .crashes
            .newest_first()
            .filter(|(process, _)| only.is_none_or(|only| only == *process))
            .map(|(process, record)| v1::Crash {
                name: process.name().to_owned(),
                ending: Some(ending(record)),
            })
            .collect();
        Ok(Response::new(v1::ListCrashesResponse { crashes }))
    }
}

impl Service {
    /// The process table now.
    pub(crate) fn status(&self) -> v1::SupervisorStatus {
        let snapshot = self.snapshots.borrow().clone();
        status(&self.facts, &snapshot)
    }

    async fn ask<T>(&self, command: Command, answer: oneshot::Receiver<T>) -> Result<T, Status> {
        let stopped = || Status::unavailable("the supervisor is ending");
        self.commands
            .send(command)
            .await
            .map_err(|_error| stopped())?;
        answer.await.map_err(|_error| stopped())
    }
}

fn parse_process(name: &str) -> Result<Process, Status> {
    name.parse()
        .map_err(|error: topology::UnknownProcess| Status::not_found(error.to_string()))
}

fn status(facts: &Facts, snapshot: &Snapshot) -> v1::SupervisorStatus {
    let now = snapshot.start.elapsed();
    let all = Process::ALL.into_iter();
    let all = all.filter(|process| facts.config.runs(*process));
    let mut shares = facts.degradations.iter().map(|told| &told.lacks);
    let shares = shares.any(|lacks| lacks.contains(&Protection::Namespaces));
    let (mut processes, mut lacks) = (Vec::new(), Vec::new());
    for process in all {
        let supervised_one = snapshot.processes.get(&process);
        let pid = supervised_one.map_or(std::process::id(), pid);
        // One that ends meanwhile lacks nothing.
        let confinement = (pid != 0).then(|| Confinement::of(Pid::from_raw(pid.cast_signed())));
        let confinement = confinement.and_then(Result::ok);
        let found = confinement.as_ref();
        lacks.extend(found.map_or(Vec::new(), |found| lacking(row(process), found, shares)));
        let running = running(facts, process, pid, found);
        processes.push(match supervised_one {
            Some(one) => supervised(one, running, now),
            None => own(running, now),
        });
    }
    let left_over = snapshot.left_over.iter().map(|(process, left)| {
        format!("{process} runs beside what is left of earlier runs and does not end (processes: {left})")
    });
    v1::SupervisorStatus {
        boot_id: facts.boot_id.clone(),
        processes,
        node_name: facts.config.node_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        degradations: facts
            .degradations
            .iter()
            .map(|degradation| degradation.text.clone())
            .chain(left_over)
            .chain(snapshot.outdated_mounts.iter().cloned())
            .chain(lacks)
            .collect(),
        left_out: Vec::new(),
    }
}

/// 0 when it does not run.
fn pid(snapshot: &ProcessSnapshot) -> u32 {
    let pid = snapshot.running.map(|(pid, _started)| pid);
    pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0)
}

fn own(running: v1::ProcessStatus, now: Moment) -> v1::ProcessStatus {
    v1::ProcessStatus {
        state: v1::ProcessState::Ready.into(),
        uptime_millis: millis(now),
        ..running
    }
}

fn supervised(
    snapshot: &ProcessSnapshot,
    running: v1::ProcessStatus,
    now: Moment,
) -> v1::ProcessStatus {
    let uptime = snapshot
        .running
        .map_or(Duration::ZERO, |(_, started)| now.saturating_sub(started));
    let (state, due) = match snapshot.condition {
        Condition::Starting => (v1::ProcessState::Starting, None),
        Condition::Ready => (v1::ProcessState::Ready, None),
        Condition::Backoff(due) => (v1::ProcessState::Backoff, Some(due)),
        Condition::CrashLooping(due) => (v1::ProcessState::CrashLooping, due),
        Condition::BadConfiguration => (v1::ProcessState::BadConfiguration, None),
        Condition::Stopping => (v1::ProcessState::Stopping, None),
        Condition::Stopped => (v1::ProcessState::Stopped, None),
    };
    let wait = due.map_or(Duration::ZERO, |due| due.saturating_sub(now));
    v1::ProcessStatus {
        state: state.into(),
        uptime_millis: millis(uptime),
        restarts_last_hour: snapshot.record.restarts_last_hour(now),
        restarts_total: snapshot.record.restarts_total(),
        last_ending: snapshot.record.last_ending.as_deref().map(ending),
        status_text: snapshot.record.status_text.clone(),
        next_start_in_millis: millis(wait),
        ..running
    }
}

/// What can be read from outside; zeroes and empty text where nothing runs.
fn running(
    facts: &Facts,
    process: Process,
    pid: u32,
    confinement: Option<&Confinement>,
) -> v1::ProcessStatus {
    let memory = Memory::of(pid).unwrap_or_default();
    v1::ProcessStatus {
        name: process.name().to_owned(),
        pid,
        uid: facts.identities.uid(process),
        user: user_name(&facts.config, &facts.identities, process),
        rss_bytes: memory.resident_bytes,
        pss_bytes: memory.proportional_bytes,
        confinement: confinement.map(ToString::to_string).unwrap_or_default(),
        ..v1::ProcessStatus::default()
    }
}

fn ending(record: &EndingRecord) -> v1::Ending {
    let (kind, code) = match record.ending {
        None => (v1::EndingKind::Unspecified, 0),
        Some(Ending::Signal(number)) => (v1::EndingKind::Signal, number),
        Some(Ending::Exit(0)) => (v1::EndingKind::ExitZero, 0),
        Some(Ending::Exit(code)) => (v1::EndingKind::ExitNonZero, code),
    };
    v1::Ending {
        kind: kind.into(),
        code,
        unix_nanos: record.at.0,
        reason: record.reason.clone(),
        pid: u32::try_from(record.pid).unwrap_or(0),
        last_log_lines: record.last_log_lines.clone(),
        uptime_millis: millis(record.uptime),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
