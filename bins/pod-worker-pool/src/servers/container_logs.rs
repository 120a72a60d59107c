//! `ContainerLogs`: the log of one container, by the names of pod and container.

use std::cmp::Reverse;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::PodIdentity;
use pod::identity::{check_container_name, check_uid};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status};

use super::settling::Settling;
use super::shared::Shared;
use super::status;
use crate::logs::reader::read_log;
use crate::logs::{LogChunk, LogOptions, LogTarget};
use crate::publisher::Publisher;
use crate::relist::{ListedContainer, RuntimePod};

/// Logs that are read at once: people at terminals, and few of them.
const MAX_READERS: usize = 32;

/// Longest wait for a runtime that does not tell what it runs.
const UNLISTED: Duration = Duration::from_secs(60);

/// How often a log is looked for until then.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How often a runtime that is away is asked for a log.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Most lines that may be asked for from the end: more are asked for by time.
const MAX_TAIL_LINES: u64 = 1_000_000;

pub(super) struct Service {
    shared: Shared,
    places: Arc<Semaphore>,
    settling: Settling,
}

impl Service {
    pub(super) fn new(shared: Shared) -> Service {
        Service {
            settling: Settling::new(&shared),
            shared,
            places: Arc::new(Semaphore::new(MAX_READERS)),
        }
    }

    /// Whose log is meant. What is not known yet just after a start is waited for:
    /// a restart of this process is no reason to tell anybody that a pod is gone.
    async fn find(&self, request: &v1::ReadLogsRequest) -> Result<Found, Status> {
        let asked = Instant::now();
        loop {
            let is_settled = self.settling.is_over();
            let observations = self.shared.pool.publisher().observations();
            let found = match observations.get(&request.pod_uid) {
                Some(observation) => found(&observation, request),
                None if is_settled => self.find_at_runtime(request).await,
                None => Err(Status::not_found(format!("no pod {}", request.pod_uid))),
            };
            let Err(error) = &found else {
                return found;
            };
            let pause = match error.code() {
                Code::NotFound if !is_settled => LOOK_AGAIN,
                // The runtime ended after it had listed what it runs.
                Code::Unavailable => ASK_AGAIN,
                _ => return found,
            };
            if asked.elapsed() > UNLISTED {
                let reason = "the container runtime does not tell what it runs";
                return Err(Status::unavailable(reason));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Of a pod that only the runtime knows: while config-sourcer is away, a process that was
    /// restarted gets no pods, and what runs is read all the same.
    async fn find_at_runtime(&self, request: &v1::ReadLogsRequest) -> Result<Found, Status> {
        let uid = &request.pod_uid;
        let listed = self.shared.relister.one(uid).await;
        let listed = listed.map_err(|error| status::of_runtime(&error))?;
        match listed.pods.get(uid) {
            Some(pod) => found(&as_observed(pod), request),
            None => Err(Status::not_found(format!("no pod {uid}"))),
        }
    }
}

/// A container's instance.
struct Found {
    pod: PodIdentity,
    id: String,
    restart_count: u32,
}

fn found(observation: &v1::PodObservation, request: &v1::ReadLogsRequest) -> Result<Found, Status> {
    let instance = instance(observation, request)?;
    Ok(Found {
        pod: identity(observation)?,
        id: instance.id.clone(),
        restart_count: instance.restart_count,
    })
}

#[tonic::async_trait]
impl v1::container_logs_server::ContainerLogs for Service {
    type ReadLogsStream = Pin<Box<dyn Stream<Item = Result<v1::ReadLogsResponse, Status>> + Send>>;

    async fn read_logs(
        &self,
        request: Request<v1::ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Status> {
        let request = request.into_inner();
        check_uid(&request.pod_uid).map_err(|error| status::of_identity(&error))?;
        check_container_name(&request.container_name)
            .map_err(|error| status::of_identity(&error))?;
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| Status::resource_exhausted("too many logs are read at once"))?;
        let found = self.find(&request).await?;
        let target = LogTarget {
            pod: found.pod,
            container: request.container_name.clone(),
            attempt: found.restart_count,
        };
        let options = LogOptions {
            follow: request.follow,
            tail_lines: request.tail_lines.map(|lines| lines.min(MAX_TAIL_LINES)),
            since: (request.since_unix_nanos > 0).then_some(UnixNanos(request.since_unix_nanos)),
            timestamps: request.timestamps,
        };
        let publisher = self.shared.pool.publisher().clone();
        let (uid, id) = (request.pod_uid, found.id);
        let is_running = Arc::new(move || runs(&publisher, &uid, &id));
        let logs: Arc<dyn node_host::Logs> = self.shared.host.clone();
        let chunks = read_log(logs, target, options, is_running);
        let responses = chunks.map(move |chunk| {
            // The place is given back with the stream.
            let _place = &place;
            chunk
                .map(|chunk| response(chunk, found.restart_count))
                .map_err(|error| status::of_log(&error))
        });
        Ok(Response::new(Box::pin(responses)))
    }
}

/// The instance that is meant: that with the number, the newest, or the one before it.
fn instance<'a>(
    observation: &'a v1::PodObservation,
    request: &v1::ReadLogsRequest,
) -> Result<&'a v1::ContainerObservation, Status> {
    let name = &request.container_name;
    let containers = observation.containers.iter();
    let mut instances = containers.filter(|container| container.name == *name);
    let found = match (request.restart_count, request.previous) {
        (Some(wanted), _) => instances.find(|instance| instance.restart_count == wanted),
        (None, true) => instances.nth(1),
        (None, false) => instances.next(),
    };
    if let Some(instance) = found {
        return Ok(instance);
    }
    if let Some(wanted) = request.restart_count {
        return Err(Status::not_found(format!(
            "the instance of container {name:?} with restart count {wanted} is gone"
        )));
    }
    if request.previous {
        return Err(Status::not_found(format!(
            "container {name:?} has no previous instance"
        )));
    }
    let waiting = observation.waiting.iter().find(|it| it.name == *name);
    Err(match waiting {
        Some(waiting) => Status::failed_precondition(format!(
            "container {name:?} is waiting to start: {}",
            waiting.reason
        )),
        None => Status::not_found(format!("the pod has no container {name:?}")),
    })
}

/// The instances of a pod as the runtime lists them, the newest first.
fn as_observed(pod: &RuntimePod) -> v1::PodObservation {
    let mut listed: Vec<&ListedContainer> = pod.containers.iter().collect();
    listed.sort_by_key(|container| Reverse((container.attempt, container.created_at)));
    let containers = listed
        .into_iter()
        .map(|container| v1::ContainerObservation {
            id: container.id.clone(),
            name: container.name.clone(),
            restart_count: container.attempt,
            ..v1::ContainerObservation::default()
        });
    v1::PodObservation {
        pod: Some((&pod.identity).into()),
        containers: containers.collect(),
        ..v1::PodObservation::default()
    }
}

fn identity(observation: &v1::PodObservation) -> Result<PodIdentity, Status> {
    let reference = observation.pod.clone();
    let reference = reference.ok_or_else(|| Status::internal("the pod has no name"))?;
    PodIdentity::try_from(reference).map_err(|error| status::of_identity(&error))
}

fn runs(publisher: &Publisher, uid: &str, id: &str) -> bool {
    let observation = publisher.observations().get(&uid.to_owned());
    observation.is_some_and(|observation| {
        let mut containers = observation.containers.iter();
        containers
            .any(|container| container.id == id && container.state() == v1::RuntimeState::Running)
    })
}

fn response(chunk: LogChunk, restart_count: u32) -> v1::ReadLogsResponse {
    v1::ReadLogsResponse {
        content: chunk.content,
        unix_nanos: chunk.at.0,
        restart_count: Some(restart_count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_instance_is_read_whatever_is_newest_by_then() {
        let of = |name: &str, restart_count| v1::ContainerObservation {
            id: format!("{name}-{restart_count}"),
            name: name.to_owned(),
            restart_count,
            ..v1::ContainerObservation::default()
        };
        let observation = v1::PodObservation {
            containers: vec![of("other", 3), of("c", 5), of("c", 4)],
            ..v1::PodObservation::default()
        };
        for (restart_count, previous, expected) in [
            (None, false, Ok("c-5")),
            (None, true, Ok("c-4")),
            (Some(5), true, Ok("c-5")),
            (Some(4), false, Ok("c-4")),
            (Some(3), false, Err(Code::NotFound)),
        ] {
            let request = v1::ReadLogsRequest {
                container_name: "c".to_owned(),
                previous,
                restart_count,
                ..v1::ReadLogsRequest::default()
            };
            let found = instance(&observation, &request);
            let found = found.map(|found| found.id.as_str());
            let found = found.map_err(|status| status.code());
            assert_eq!(found, expected, "{restart_count:?} {previous}");
        }
    }
}
