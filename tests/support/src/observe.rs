//! What a running instance says about itself, asked over its own sockets as
//! the command line asks, without starting a program for each look.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bulkhead_api::v1;
use bulkhead_api::v1::api_connection_client::ApiConnectionClient;
use bulkhead_api::v1::container_logs_client::ContainerLogsClient;
use bulkhead_api::v1::node_policy_client::NodePolicyClient;
use bulkhead_api::v1::observations_client::ObservationsClient;
use bulkhead_api::v1::statuses_client::StatusesClient;
use bulkhead_api::v1::supervisor_client::SupervisorClient;
use bulkhead_api::v1::sync_loop_client::SyncLoopClient;
use ipc::{Channel, Network};
use pod::PodDocument;
use serde_json::Value;
use tonic::{Code, Response, Status, Streaming};
use topology::Process;

use crate::wait::{Timeout, wait_for};

/// The longest that an answer may take, restarts included.
const DEADLINE: Duration = Duration::from_secs(5);

/// Asks an instance, also from other threads and while it is killed and
/// started again.
#[derive(Debug, Clone)]
pub struct Observer {
    run: PathBuf,
    node_name: String,
    deadline: Duration,
}

impl Observer {
    /// What asks the instance that has this run directory.
    pub(crate) fn new(run: PathBuf, node_name: String) -> Observer {
        Observer {
            run,
            node_name,
            deadline: DEADLINE,
        }
    }

    /// The same with another deadline for each answer.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Observer {
        Observer {
            deadline,
            ..self.clone()
        }
    }

    /// Every pod with its status, as core/v1 Pod. The call goes on while the
    /// server is being restarted.
    ///
    /// # Errors
    /// When status-syncer does not answer in time.
    pub fn pods(&self) -> Result<Vec<Value>> {
        self.ask(async |network| {
            let channel = network.channel(Process::StatusSyncer);
            let pods = ipc::call(self.deadline, || {
                let client =
                    StatusesClient::new(channel.clone()).max_decoding_message_size(4 << 20);
                list(client)
            });
            let pods = pods.await.context("status-syncer does not answer")?;
            pods.iter()
                .map(|json| serde_json::from_slice(json).context("a pod's JSON"))
                .collect()
        })
    }

    /// The same pod with its spec, as pod-worker-pool has it.
    ///
    /// # Errors
    /// When that does not answer, or does not have the pod.
    pub fn with_spec(&self, mut pod: Value) -> Result<Value> {
        let uid = pod["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let desired = self.ask(async |network| {
            let channel = network.channel(Process::PodWorkerPool);
            let answer = ipc::call(self.deadline, || {
                let mut client =
                    ObservationsClient::new(channel.clone()).max_decoding_message_size(4 << 20);
                let request = v1::GetPodRequest {
                    pod_uid: uid.clone(),
                    hash: String::new(),
                };
                async move { client.get_observed_pod(request).await }
            });
            let answer = answer
                .await
                .context("pod-worker-pool does not give the pod")?;
            Ok(answer.pod.unwrap_or_default())
        })?;
        let mut desired: Value = serde_json::from_slice(&desired.json).context("a pod's JSON")?;
        desired["status"] = pod["status"].take();
        Ok(desired)
    }

    /// The supervisor's process table.
    ///
    /// # Errors
    /// When the supervisor does not answer in time.
    pub fn processes(&self) -> Result<Vec<v1::ProcessStatus>> {
        let status = self.ask(async |network| {
            let channel = network.channel(Process::Supervisor);
            let answer = ipc::call(self.deadline, || {
                let mut client = SupervisorClient::new(channel.clone());
                async move { client.get_status(v1::GetSupervisorStatusRequest {}).await }
            });
            answer.await.context("the supervisor does not answer")
        })?;
        if status.processes.is_empty() {
            bail!("the supervisor knows no processes yet");
        }
        Ok(status.processes)
    }

    /// Makes every read call that people may make, all at once, as the command
    /// line makes them: again and again while the server is being restarted. All but
    /// `Usage`, which the runtime answers in its own time: longer than a process lives in
    /// some tests.
    /// The log is that of a container that is known to run. Answers by
    /// `SERVICE/METHOD`.
    ///
    /// # Errors
    /// When there is no runtime for it; the calls have each their own outcome.
    pub fn read_everything(&self, log: &v1::ReadLogsRequest) -> Result<Vec<Answered>> {
        self.ask(async |network| {
            let (supervisor, sync_loop, statuses, pool, policy) = (
                SupervisorClient::new(network.channel(Process::Supervisor)),
                SyncLoopClient::new(network.channel(Process::SyncLoop)),
                StatusesClient::new(network.channel(Process::StatusSyncer)),
                ContainerLogsClient::new(network.channel(Process::PodWorkerPool)),
                NodePolicyClient::new(network.channel(Process::PodWorkerPool)),
            );
            let observed = ObservationsClient::new(network.channel(Process::PodWorkerPool));
            let (status, crashes, loop_status, desired, events, log, policy, pod) = tokio::join!(
                self.read(async || {
                    let request = v1::GetSupervisorStatusRequest {};
                    supervisor.clone().get_status(request).await.map(drop)
                }),
                self.read(async || {
                    let request = v1::ListCrashesRequest::default();
                    supervisor.clone().list_crashes(request).await.map(drop)
                }),
                self.read(async || {
                    let request = v1::GetLoopStatusRequest {};
                    sync_loop.clone().get_loop_status(request).await.map(drop)
                }),
                self.read(async || {
                    let request = v1::ListDesiredPodsRequest::default();
                    to_its_end(sync_loop.clone().list_desired_pods(request).await?).await
                }),
                self.read(async || {
                    let request = v1::ListEventsRequest::default();
                    to_its_end(statuses.clone().list_events(request).await?).await
                }),
                self.read(async || {
                    let opened = pool.clone().read_logs(log.clone()).await;
                    to_its_end(opened?).await
                }),
                self.read(async || {
                    let request = v1::GetPolicyRequest {};
                    policy.clone().get_policy(request).await.map(drop)
                }),
                self.read(async || {
                    let request = v1::GetPodRequest {
                        pod_uid: "unknown".to_owned(),
                        hash: String::new(),
                    };
                    match observed.clone().get_observed_pod(request).await {
                        Err(status) if status.code() != Code::NotFound => Err(status),
                        _ => Ok(()),
                    }
                }),
            );
            let mut answers = vec![
                ("bulkhead.v1.Supervisor/GetStatus", status),
                ("bulkhead.v1.Supervisor/ListCrashes", crashes),
                ("bulkhead.v1.SyncLoop/GetLoopStatus", loop_status),
                ("bulkhead.v1.SyncLoop/ListDesiredPods", desired),
                ("bulkhead.v1.Statuses/ListEvents", events),
                ("bulkhead.v1.ContainerLogs/ReadLogs", log),
                ("bulkhead.v1.NodePolicy/GetPolicy", policy),
                ("bulkhead.v1.Observations/GetObservedPod", pod),
            ];
            answers.extend(self.ask_gateway(&network).await);
            Ok(answers)
        })
    }

    /// The answer of api-gateway, where it runs.
    async fn ask_gateway(&self, network: &Network) -> Option<Answered> {
        let socket = Process::ApiGateway.socket_file_name();
        if !self.run.join(socket).exists() {
            return None;
        }
        let gateway = ApiConnectionClient::new(network.channel(Process::ApiGateway));
        let read = self.read(async || {
            let request = v1::GetApiConnectionRequest {};
            gateway.clone().get_api_connection(request).await.map(drop)
        });
        Some(("bulkhead.v1.ApiConnection/GetApiConnection", read.await))
    }

    async fn read(
        &self,
        attempt: impl AsyncFn() -> std::result::Result<(), Status>,
    ) -> Result<Duration> {
        let begin = Instant::now();
        ipc::call(self.deadline, || async {
            attempt().await.map(Response::new)
        })
        .await?;
        Ok(begin.elapsed())
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(Network) -> Result<T>) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(question(Network::unix(self.run.clone())))
    }
}

/// A call by `SERVICE/METHOD`, and the time until it was answered.
pub type Answered = (&'static str, Result<Duration>);

async fn to_its_end<T>(response: Response<Streaming<T>>) -> std::result::Result<(), Status> {
    let mut stream = response.into_inner();
    while stream.message().await?.is_some() {}
    Ok(())
}

/// The JSON of all pods, from one list that came whole.
async fn list(
    mut client: StatusesClient<Channel>,
) -> std::result::Result<Response<Vec<Vec<u8>>>, Status> {
    let request = v1::ListPodStatusesRequest::default();
    let mut stream = client.list_pod_statuses(request).await?.into_inner();
    let mut pods = Vec::new();
    while let Some(answer) = stream.message().await? {
        use v1::list_pod_statuses_response::Message;
        match answer.message {
            Some(Message::Entry(entry)) => {
                let pod = entry.pod.unwrap_or_default();
                let json = PodDocument::from_message(pod).and_then(|pod| pod.to_json());
                pods.push(json.map_err(|error| Status::data_loss(error.to_string()))?);
            }
            Some(Message::SnapshotComplete(true)) => return Ok(Response::new(pods)),
            _ => {}
        }
    }
    Err(Status::data_loss("the list of pods ended early"))
}

impl Observer {
    /// State of every process by name, in lower case without prefix: `ready`,
    /// `backoff`.
    ///
    /// # Errors
    /// When the supervisor does not answer.
    pub fn process_states(&self) -> Result<BTreeMap<String, String>> {
        let states = self.processes()?.into_iter().map(|process| {
            let name = process
                .state()
                .as_str_name()
                .trim_start_matches("PROCESS_STATE_");
            let state = name.to_lowercase().replace('_', "-");
            (process.name, state)
        });
        Ok(states.collect())
    }

    /// The pod of the manifest that calls it `name`, if there is one.
    ///
    /// # Errors
    /// When status-syncer does not answer.
    pub fn pod(&self, name: &str) -> Result<Option<Value>> {
        let full_name = format!("{name}-{}", self.node_name);
        Ok(self
            .pods()?
            .into_iter()
            .find(|pod| pod["metadata"]["name"] == full_name.as_str()))
    }

    /// Events so far, oldest first.
    ///
    /// # Errors
    /// When status-syncer does not answer.
    pub fn events(&self) -> Result<Vec<v1::Event>> {
        self.ask(async |network| {
            let channel = network.channel(Process::StatusSyncer);
            let mut stream = ipc::call(self.deadline, || {
                let mut client = StatusesClient::new(channel.clone());
                let request = v1::ListEventsRequest {
                    watch: false,
                    pod_uid: String::new(),
                };
                async move { client.list_events(request).await }
            })
            .await
            .context("status-syncer does not answer")?;
            let mut events = Vec::new();
            while let Some(answer) = stream.message().await? {
                use v1::list_events_response::Message;
                match answer.message {
                    Some(Message::Event(event)) => events.push(event),
                    Some(Message::SnapshotComplete(true)) => break,
                    _ => {}
                }
            }
            Ok(events)
        })
    }

    /// Waits for a pod to be as `check` wants it: `Ok` with what it found, or
    /// what it saw instead.
    ///
    /// # Errors
    /// `Timeout` with the pod's last status.
    pub fn wait_for_pod<T>(
        &self,
        name: &str,
        what: &str,
        timeout: Duration,
        mut check: impl FnMut(&Value) -> std::result::Result<T, String>,
    ) -> Result<T, Timeout> {
        wait_for(&format!("pod {name} {what}"), timeout, || {
            let pod = self.pod(name).map_err(|error| format!("{error:#}"))?;
            let pod = pod.ok_or("there is no such pod")?;
            check(&pod).map_err(|seen| format!("{seen}; status {}", pod["status"]))
        })
    }

    /// Waits until a pod is Running and Ready and returns it.
    ///
    /// # Errors
    /// `Timeout` with the pod's last status.
    pub fn wait_until_pod_ready(&self, name: &str, timeout: Duration) -> Result<Value, Timeout> {
        self.wait_for_pod(name, "to be ready", timeout, |pod| {
            if condition(pod, "Ready") == Some(true) {
                Ok(pod.clone())
            } else {
                Err(format!("Ready is {:?}", condition(pod, "Ready")))
            }
        })
    }

    /// Waits until no status of a pod is left.
    ///
    /// # Errors
    /// `Timeout` when there still is one.
    pub fn wait_until_pod_gone(&self, name: &str, timeout: Duration) -> Result<(), Timeout> {
        wait_for(&format!("pod {name} to be gone"), timeout, || {
            match self.pod(name).map_err(|error| format!("{error:#}"))? {
                None => Ok(()),
                Some(pod) => Err(format!("status {}", pod["status"])),
            }
        })
    }
}

/// Whether a pod's condition of this type is True; nothing without it.
#[must_use]
pub fn condition(pod: &Value, kind: &str) -> Option<bool> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let found = conditions
        .iter()
        .find(|condition| condition["type"] == kind)?;
    Some(found["status"] == "True")
}

/// The status of one of a pod's containers, init containers included.
#[must_use]
pub fn container_status<'pod>(pod: &'pod Value, name: &str) -> Option<&'pod Value> {
    ["containerStatuses", "initContainerStatuses"]
        .iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten()
        .find(|status| status["name"] == name)
}

/// The id of one of a pod's containers as the runtime knows it, once it has
/// one.
#[must_use]
pub fn container_id<'pod>(pod: &'pod Value, name: &str) -> Option<&'pod str> {
    let id = container_status(pod, name)?["containerID"].as_str()?;
    id.split_once("://").map(|(_runtime, id)| id)
}
