//! `Sessions`: commands in containers and connections to pods that people ask for. Who may
//! have them is the gate's decision (`runtime-gate`); the bytes never come through here.

mod address;
mod asked;
mod audit;
mod target;

use std::time::Duration;

use bulkhead_api::v1;
use cri::v1 as runtime;
use ipc::Peer;
use ipc::limits::MAX_COMMAND_OUTPUT_BYTES;
use pod::PodExt as _;
use tokio::sync::Semaphore;
use tonic::{Code, Request, Response, Status};

use self::address::Kind;
use self::asked::Asked;
use self::audit::Line;
use super::settling::Settling;
use super::shared::Shared;
use super::status;

/// How long the opening of a session may take.
const OPEN_DEADLINE: Duration = Duration::from_secs(10);

/// How often a pod is looked for that is not known yet.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a command without a session may run.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Commands without a session that run at once: all that each prints is held in memory.
const MAX_COMMANDS: usize = 2;

/// What a message has beside the output.
const MESSAGE_OVERHEAD: usize = 64;

pub(super) struct Service {
    shared: Shared,
    settling: Settling,
    commands: Semaphore,
}

impl Service {
    pub(super) fn new(shared: Shared) -> Service {
        Service {
            settling: Settling::new(&shared),
            shared,
            commands: Semaphore::new(MAX_COMMANDS),
        }
    }

    /// The pod that is meant. What is not known yet just after a start is waited for.
    async fn pod(&self, asked: &v1::PodReference) -> Result<v1::PodObservation, Status> {
        loop {
            let is_settled = self.settling.is_over();
            match self.known_pod(asked) {
                Err(error) if error.code() == Code::NotFound && !is_settled => {}
                found => return found,
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn known_pod(&self, asked: &v1::PodReference) -> Result<v1::PodObservation, Status> {
        let observations = self.shared.pool.publisher().observations();
        let observations = match asked.uid.is_empty() {
            true => observations.snapshot().into_values().collect(),
            false => Vec::from_iter(observations.get(&asked.uid)),
        };
        let found = target::pod(&observations, asked)?;
        let uid = found.pod.as_ref().map_or("", |pod| &pod.uid);
        match self.shared.policy.held().get(uid) {
            Some(_) => Ok(found.clone()),
            None => Err(Status::not_found(format!("no source has pod {uid}"))),
        }
    }

    /// Whether a container has a terminal.
    fn has_terminal(&self, pod: &v1::PodObservation, container: &str) -> bool {
        let uid = pod.pod.as_ref().map_or("", |pod| &pod.uid);
        let document = self.shared.pool.publisher().pod(uid);
        let Some(pod) = document.and_then(|document| document.decode().ok()) else {
            return false;
        };
        let spec = pod.spec_or_default();
        let mut ephemeral = spec.ephemeral_containers.iter().flatten();
        let tty = match pod.container(container) {
            Some((_, spec)) => spec.tty,
            None => ephemeral
                .find(|it| it.name == container)
                .and_then(|it| it.tty),
        };
        tty.unwrap_or_default()
    }

    /// The pod that is meant, whose full name is known from then on.
    async fn find(&self, asked: &mut Asked) -> Result<v1::PodObservation, Status> {
        let pod = tokio::time::timeout(OPEN_DEADLINE, self.pod(&asked.pod)).await;
        let pod = pod.map_err(|_| not_known_in_time())??;
        asked.pod = pod.pod.clone().unwrap_or_default();
        Ok(pod)
    }

    async fn open(&self, asked: &mut Asked) -> Result<v1::OpenSessionResponse, Status> {
        let pod = self.find(asked).await?;
        let sessions = &self.shared.runtime.sessions;
        let (kind, url) = match asked.session.clone() {
            asked::Session::Exec(exec) => {
                let request = runtime::ExecRequest {
                    container_id: target::container(&pod, &exec.container_name)?.to_owned(),
                    cmd: exec.command,
                    tty: exec.tty,
                    stdin: exec.stdin,
                    stdout: exec.stdout,
                    stderr: exec.stderr,
                };
                (Kind::Exec, sessions.exec(request).await)
            }
            asked::Session::Attach(attach) => {
                let tty = self.has_terminal(&pod, &attach.container_name);
                let request = runtime::AttachRequest {
                    container_id: target::container(&pod, &attach.container_name)?.to_owned(),
                    tty,
                    stdin: attach.stdin,
                    stdout: attach.stdout,
                    stderr: attach.stderr && !tty,
                };
                (Kind::Attach, sessions.attach(request).await)
            }
            asked::Session::PortForward(ports) => {
                let request = runtime::PortForwardRequest {
                    pod_sandbox_id: target::sandbox(&pod)?.to_owned(),
                    port: ports.into_iter().map(i32::from).collect(),
                };
                (Kind::PortForward, sessions.port_forward(request).await)
            }
        };
        let url = url.map_err(|error| status::of_session(&error))?;
        let address = address::parse(kind, &url);
        address.map_err(|error| Status::unavailable(error.to_string()))
    }

    async fn run(&self, asked: &mut Asked) -> Result<v1::RunCommandResponse, Status> {
        let _place = self
            .commands
            .try_acquire()
            .map_err(|_| Status::resource_exhausted("too many commands run at once"))?;
        let pod = self.find(asked).await?;
        let asked::Session::Exec(exec) = &asked.session else {
            return Err(Status::invalid_argument("no command"));
        };
        let id = target::container(&pod, &exec.container_name)?;
        let sessions = &self.shared.runtime.sessions;
        let command = exec.command.clone();
        let answer = sessions.run_command(id, command, COMMAND_TIMEOUT).await;
        let answer = answer.map_err(|error| status::of_runtime(&error))?;
        let mut output = answer.stdout;
        output.extend_from_slice(&answer.stderr);
        output.truncate(MAX_COMMAND_OUTPUT_BYTES - MESSAGE_OVERHEAD);
        Ok(v1::RunCommandResponse {
            output,
            exit_code: answer.exit_code,
        })
    }
}

fn not_known_in_time() -> Status {
    Status::unavailable("the runtime gave no answer in time")
}

#[tonic::async_trait]
impl v1::sessions_server::Sessions for Service {
    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let caller = request.extensions().get::<Peer>().copied();
        let mut asked = asked::session(request.into_inner())?;
        let opened = tokio::time::timeout(OPEN_DEADLINE, self.open(&mut asked)).await;
        let opened = opened.unwrap_or_else(|_| Err(not_known_in_time()));
        Line::of(&asked, caller).write(opened.as_ref().err());
        opened.map(Response::new)
    }

    async fn run_command(
        &self,
        request: Request<v1::RunCommandRequest>,
    ) -> Result<Response<v1::RunCommandResponse>, Status> {
        let caller = request.extensions().get::<Peer>().copied();
        let mut asked = asked::command(request.into_inner())?;
        let ran = self.run(&mut asked).await;
        Line::of(&asked, caller).write(ran.as_ref().err());
        ran.map(Response::new)
    }
}

#[cfg(test)]
mod tests;
