//! A config-sourcer that has the pods that a test gives it, and can go away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bulkhead_api::v1;
use bulkhead_api::v1::pods_server::{Pods, PodsServer};
use memory_network::MemoryHub;
use pod::{PodDocument, PodSource};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use topology::{Identities, Process};

use crate::testing;

/// A pod as config-sourcer gives it: with the defaults of an API server.
pub(super) fn message(value: &Value) -> v1::Pod {
    let mut pod = testing::pod(value.clone());
    pod_validation::apply_defaults(&mut pod);
    let document = PodDocument::encode(&pod, PodSource::File);
    document.unwrap().to_message()
}

/// What it answers by UID, and how often it was asked.
#[derive(Clone, Default)]
struct Served {
    pods: Arc<Mutex<BTreeMap<String, v1::Pod>>>,
    asked: Arc<Mutex<usize>>,
}

pub(super) struct FakeSource {
    served: Served,
    hub: MemoryHub,
    identities: Arc<Identities>,
    process: Option<AbortOnDropHandle<()>>,
}

impl FakeSource {
    pub(super) fn start(hub: &MemoryHub, identities: &Arc<Identities>) -> FakeSource {
        let mut source = FakeSource {
            served: Served::default(),
            hub: hub.clone(),
            identities: Arc::clone(identities),
            process: None,
        };
        source.come_back();
        source
    }

    /// It answers from now on.
    pub(super) fn come_back(&mut self) {
        let pods = PodsServer::new(self.served.clone());
        let serving = ipc::serve(
            Process::ConfigSourcer,
            Arc::clone(&self.identities),
            self.hub.listener(Process::ConfigSourcer),
            Routes::new(pods),
            CancellationToken::new(),
        );
        self.process = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            serving.await.unwrap();
        })));
    }

    /// It is killed and stays away: calls wait in its socket.
    pub(super) fn go_away(&mut self) {
        self.process = None;
        self.hub.kill(Process::ConfigSourcer);
    }

    /// Its newest version of a pod is this one.
    pub(super) fn put(&self, value: &Value) {
        self.answer(message(value));
    }

    /// What it answers to whoever asks for the pod in the header, whatever it is.
    pub(super) fn answer(&self, pod: v1::Pod) {
        let uid = pod.reference.as_ref().unwrap().uid.clone();
        self.answer_for(&uid, pod);
    }

    /// As `answer`, to whoever asks for `uid`.
    pub(super) fn answer_for(&self, uid: &str, pod: v1::Pod) {
        self.served.pods.lock().unwrap().insert(uid.to_owned(), pod);
    }

    /// How often it was asked for a pod.
    pub(super) fn asked(&self) -> usize {
        *self.served.asked.lock().unwrap()
    }
}

#[tonic::async_trait]
impl Pods for Served {
    async fn get_pod(
        &self,
        request: Request<v1::GetPodRequest>,
    ) -> Result<Response<v1::GetPodResponse>, Status> {
        *self.asked.lock().unwrap() += 1;
        let request = request.into_inner();
        let pod = self.pods.lock().unwrap().get(&request.pod_uid).cloned();
        match pod {
            None => Err(Status::not_found("no source has it")),
            Some(pod) if pod.hash != request.hash => Err(Status::aborted("another version")),
            Some(pod) => Ok(Response::new(v1::GetPodResponse { pod: Some(pod) })),
        }
    }
}
