//! The way to config-sourcer: where this process takes each pod from. sync-loop only
//! names a pod and its version, so it can have nothing run that no source has.
//!
//! What does not live here: which updates need a pod from there, and in which order
//! updates of one pod count (`servers/pod_workers`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::pods_client::PodsClient;
use ipc::limits::MAX_POD_MESSAGE_BYTES;
use ipc::{CallError, Channel};
use pod::runtime_class::RuntimeClasses;
use pod::wire::WireError;
use pod::{PodDocument, PodExt as _, PodIdentity};
use pod_lifecycle::DesiredPod;
use pod_validation::FieldError;
use tokio::sync::Semaphore;
use tonic::Code;

/// Deadline of GetPod, as the interface says; so far within the 5 s that sync-loop
/// gives an update that its answer comes in time.
const DEADLINE: Duration = Duration::from_secs(2);

/// Pods that are fetched at once: with up to 1 MiB each what a broken sync-loop can have
/// this process hold. sync-loop has as many updates under way.
const MAX_AT_ONCE: usize = 32;

/// Why a pod cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodSourceError {
    /// No source has it.
    #[error("no source has pod {0}")]
    Gone(PodIdentity),
    /// Its source has another version of it by now.
    #[error("pod {0} has another version by now")]
    Outdated(PodIdentity),
    /// config-sourcer does not answer, or its source has not delivered yet.
    #[error("config-sourcer does not give pod {pod} yet")]
    Away {
        /// Which.
        pod: PodIdentity,
        /// Why not.
        source: CallError,
    },
    /// More pods are being taken than may be at once, and none of them came.
    #[error("too many pods wait for config-sourcer")]
    Busy,
    /// It only mirrors a static pod in the API server.
    #[error("pod {0} is a mirror pod, which is never run")]
    Mirror(PodIdentity),
    /// What config-sourcer answered is not a pod.
    #[error("config-sourcer answered something that is no pod")]
    NotAPod(#[from] WireError),
    /// What config-sourcer answered is another pod, or another version.
    #[error("config-sourcer answered pod {answered} where {asked} was asked for")]
    Another {
        /// The pod that was asked for.
        asked: Box<PodIdentity>,
        /// The pod that came.
        answered: Box<PodIdentity>,
    },
    /// The pod has a field that is not valid, or that Bulkhead does not do.
    #[error("{0}")]
    Invalid(FieldError),
}

/// Takes pods from config-sourcer. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct PodsOfSources {
    client: PodsClient<Channel>,
    places: Arc<Semaphore>,
    /// Whether the last that was heard of config-sourcer is that it does not answer.
    is_away: Arc<AtomicBool>,
    /// Those that pods may name.
    runtime_classes: Arc<RuntimeClasses>,
}

impl PodsOfSources {
    /// The way over `channel`, which connects when first used.
    #[must_use]
    pub(crate) fn new(channel: Channel, runtime_classes: RuntimeClasses) -> PodsOfSources {
        PodsOfSources {
            client: PodsClient::new(channel).max_decoding_message_size(MAX_POD_MESSAGE_BYTES),
            places: Arc::new(Semaphore::new(MAX_AT_ONCE)),
            is_away: Arc::default(),
            runtime_classes: Arc::new(runtime_classes),
        }
    }

    /// The version `hash` of a pod, with the source that config-sourcer names. It is
    /// checked here whether it is that pod and version, and whether it is valid. Takes at
    /// most [`DEADLINE`].
    ///
    /// # Errors
    /// When no source has it, or config-sourcer cannot give it now.
    pub(crate) async fn get(
        &self,
        pod: &PodIdentity,
        hash: &str,
    ) -> Result<DesiredPod, PodSourceError> {
        let answer = tokio::time::timeout(DEADLINE, async {
            // The semaphore is never closed.
            let _place = self.places.acquire().await;
            self.ask(pod, hash).await
        });
        let message = answer.await.unwrap_or(Err(PodSourceError::Busy))?;
        let pod = checked(message, pod, hash)?;
        judge(&pod, &self.runtime_classes)?;
        Ok(pod)
    }

    async fn ask(&self, pod: &PodIdentity, hash: &str) -> Result<v1::Pod, PodSourceError> {
        let request = v1::GetPodRequest {
            pod_uid: pod.uid().to_owned(),
            hash: hash.to_owned(),
        };
        let answer = ipc::call(DEADLINE, || {
            let mut client = self.client.clone();
            let request = request.clone();
            async move { client.get_pod(request).await }
        });
        let result = answer.await;
        self.note(&result);
        match result {
            Ok(response) => response.pod.ok_or(WireError::NoReference.into()),
            Err(error) => Err(match error.code() {
                Some(Code::NotFound) => PodSourceError::Gone(pod.clone()),
                Some(Code::Aborted) => PodSourceError::Outdated(pod.clone()),
                _ => PodSourceError::Away {
                    pod: pod.clone(),
                    source: error,
                },
            }),
        }
    }

    /// Logs when config-sourcer goes away and comes back, once for all pods.
    fn note(&self, result: &Result<v1::GetPodResponse, CallError>) {
        match result {
            Err(error) if !matches!(error.code(), Some(Code::NotFound | Code::Aborted)) => {
                if !self.is_away.swap(true, Ordering::Relaxed) {
                    let error = telemetry::chain(error);
                    tracing::warn!(error, "config-sourcer gives no pods; new pods wait");
                }
            }
            _ => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    tracing::info!("config-sourcer gives pods again");
                }
            }
        }
    }
}

/// Checks that the answer is the pod and the version that was asked for: an answer to another
/// call must not be run in its place.
fn checked(
    message: v1::Pod,
    asked: &PodIdentity,
    hash: &str,
) -> Result<DesiredPod, PodSourceError> {
    // This checks that the hash is that of the bytes.
    let document = PodDocument::from_message(message)?;
    if document.identity() != asked || document.hash() != hash {
        return Err(PodSourceError::Another {
            asked: Box::new(asked.clone()),
            answered: Box::new(document.identity().clone()),
        });
    }
    Ok(DesiredPod::new(document)?)
}

/// Refuses what an API server would refuse and what Bulkhead does not do:
/// config-sourcer refuses it first, and this process does not depend on that.
fn judge(pod: &DesiredPod, classes: &RuntimeClasses) -> Result<(), PodSourceError> {
    let source = pod.document().source();
    let decoded = pod.decode()?;
    if decoded.is_mirror() {
        return Err(PodSourceError::Mirror(pod.identity().clone()));
    }
    match pod_validation::judge(&decoded, source, classes)
        .into_iter()
        .next()
    {
        Some(error) => Err(PodSourceError::Invalid(error)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{desired, manifest};

    #[test]
    fn a_mirror_pod_is_refused() {
        let mut mirror = manifest("a", "u1");
        mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "h".into();
        let json = mirror.to_string().into_bytes();
        let (document, _) = PodDocument::from_json(json, pod::PodSource::Api).unwrap();
        let pod = DesiredPod::new(document).unwrap();
        let refused = judge(&pod, &RuntimeClasses::default()).unwrap_err();
        assert!(matches!(refused, PodSourceError::Mirror(_)), "{refused}");
    }

    #[test]
    fn only_the_pod_and_the_version_that_was_asked_for_is_taken() {
        let pod = desired(manifest("a", "u1"));
        let (identity, hash) = (pod.identity(), pod.document().hash());
        let good = pod.document().to_message();
        assert_eq!(checked(good.clone(), identity, hash).unwrap(), pod);
        let altered = desired(serde_json::json!({"metadata":
            {"name": "a", "namespace": "default", "uid": "u1"}}));
        let other = desired(manifest("b", "u2"));
        let mut wrong_bytes = good.clone();
        wrong_bytes.json = altered.document().json().to_vec();
        let mut wrong_name = good.clone();
        wrong_name.reference.as_mut().unwrap().name = "b".to_owned();
        for message in [
            altered.document().to_message(),
            other.document().to_message(),
            wrong_bytes,
            wrong_name,
            v1::Pod::default(),
        ] {
            let refused = checked(message.clone(), identity, hash);
            assert!(refused.is_err(), "{message:?}");
        }
    }
}
