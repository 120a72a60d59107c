//! What the pool tells, with the pods that its observations name.
//!
//! An observation whose pod is not known waits until the pool has answered for that pod, and
//! what follows waits behind it, so that all is taken in the order in which it came.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::observations_client::ObservationsClient;
use ipc::limits::{MAX_OBSERVATION_BYTES, MAX_POD_MESSAGE_BYTES};
use ipc::{CallError, Channel, Subscription, SubscriptionEvent};
use pod::PodDocument;
use process::Context;
use topology::Process;

/// Deadline of a question for a pod, as the interface says.
const DEADLINE: Duration = Duration::from_secs(5);

/// What there is to be taken in.
pub(crate) enum News {
    /// A message of the stream.
    Message(Box<v1::WatchObservationsResponse>),
    /// An observation with the pod that it names, if the pool still had that version.
    Pod(Box<v1::PodObservation>, Option<PodDocument>),
}

type Asking = Pin<Box<dyn Future<Output = News> + Send>>;

/// The pool's observations.
pub(crate) struct Observations {
    stream: Subscription<v1::WatchObservationsResponse>,
    client: ObservationsClient<Channel>,
    /// The pod that is being asked for.
    asking: Option<Asking>,
}

impl Observations {
    pub(crate) fn subscribe(context: &Context) -> Observations {
        let channel = context.network.channel(Process::PodWorkerPool);
        let watching = ObservationsClient::new(channel.clone())
            .max_decoding_message_size(MAX_OBSERVATION_BYTES);
        let stream = ipc::subscribe("observations", move || {
            let mut client = watching.clone();
            async move {
                client
                    .watch_observations(v1::WatchObservationsRequest {})
                    .await
            }
        });
        Observations {
            stream,
            client: ObservationsClient::new(channel)
                .max_decoding_message_size(MAX_POD_MESSAGE_BYTES),
            asking: None,
        }
    }

    /// The pod of this observation is not known: it comes next, with the observation.
    pub(crate) fn ask_for_pod(&mut self, observation: v1::PodObservation) {
        let client = self.client.clone();
        self.asking = Some(Box::pin(async move {
            let pod = pod_of(&client, &observation).await;
            News::Pod(Box::new(observation), pod)
        }));
    }

    /// What comes next. Cancel-safe: a question lives outside, and the stream only receives
    /// from a channel.
    pub(crate) async fn next(&mut self) -> News {
        if let Some(asking) = &mut self.asking {
            let news = asking.await;
            self.asking = None;
            return news;
        }
        loop {
            // What was known stays valid while the pool is away.
            if let SubscriptionEvent::Message(message) = self.stream.next().await {
                return News::Message(Box::new(message));
            }
        }
    }
}

/// The pod that an observation names, as soon as the pool answers. Nothing where the pool
/// has another version by now, or was restarted and does not know the pod yet: then another
/// observation comes.
async fn pod_of(
    client: &ObservationsClient<Channel>,
    observation: &v1::PodObservation,
) -> Option<PodDocument> {
    let request = v1::GetPodRequest {
        pod_uid: observation.pod.clone().unwrap_or_default().uid,
        hash: observation.hash.clone(),
    };
    loop {
        let answer = ipc::call(DEADLINE, || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.get_observed_pod(request).await }
        });
        match answer.await {
            Ok(answer) => return PodDocument::from_message(answer.pod?).ok(),
            Err(CallError::Refused(_)) => return None,
            Err(CallError::Deadline { .. }) => {}
        }
    }
}
