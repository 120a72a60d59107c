//! `GetPod`: one pod in one version, for pod-worker-pool, which takes no pod from
//! anybody else.

use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::pods_server::Pods;
use pod::{PodDocument, PodSource};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::publication::{Publication, State};

/// How long a missing version is waited for while a source has not delivered: after
/// a restart of this process files take milliseconds, a URL a little longer. Who
/// asks has a deadline of 2 s and asks again.
const WAIT: Duration = Duration::from_secs(1);

/// What is known of a version that was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Lookup {
    /// It is this one.
    Found(PodDocument),
    /// The pod has another version.
    Other,
    /// No source has the pod.
    Gone,
    /// It is not there, and this source has not delivered yet.
    NotYet(PodSource),
}

/// Looks a version up. A source that has not delivered may have an older version, or
/// none, of a pod that it is about to deliver, so it proves nothing.
fn look_up(state: &State, uid: &str, hash: &str) -> Lookup {
    let known = || state.values().filter_map(|source| source.pods.get(uid));
    if let Some(pod) = known().find(|pod| pod.hash() == hash) {
        return Lookup::Found(pod.clone());
    }
    let mut delivered = state.values().filter(|source| source.ready);
    if delivered.any(|source| source.pods.contains_key(uid)) {
        return Lookup::Other;
    }
    match state.iter().find(|(_, source)| !source.ready) {
        Some((source, _)) => Lookup::NotYet(*source),
        None => Lookup::Gone,
    }
}

#[tonic::async_trait]
impl Pods for Publication {
    async fn get_pod(
        &self,
        request: Request<v1::GetPodRequest>,
    ) -> Result<Response<v1::GetPodResponse>, Status> {
        let v1::GetPodRequest { pod_uid, hash } = request.into_inner();
        pod::identity::check_uid(&pod_uid)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let until = Instant::now() + WAIT;
        let mut state = self.watch();
        loop {
            let looked = look_up(&state.borrow_and_update(), &pod_uid, &hash);
            let source = match looked {
                Lookup::Found(document) => {
                    return Ok(Response::new(v1::GetPodResponse {
                        pod: Some(document.to_message()),
                    }));
                }
                Lookup::Other => {
                    let text = format!("pod {pod_uid} has another version by now");
                    return Err(Status::aborted(text));
                }
                Lookup::Gone => {
                    return Err(Status::not_found(format!("no source has pod {pod_uid}")));
                }
                Lookup::NotYet(source) => source,
            };
            // Either the time is over, or this process stops.
            if !matches!(
                tokio::time::timeout_at(until, state.changed()).await,
                Ok(Ok(()))
            ) {
                let text = format!("source {source} has not delivered yet");
                return Err(Status::unavailable(text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::publication::SourceState;
    use crate::snapshot::PodSet;

    fn pod(uid: &str, image: &str) -> PodDocument {
        let value = json!({"metadata": {"uid": uid, "name": uid, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": image}]}});
        PodDocument::from_json(value.to_string().into_bytes(), PodSource::File)
            .unwrap()
            .0
    }

    fn source(ready: bool, pods: &[&PodDocument]) -> SourceState {
        let pods: PodSet = pods
            .iter()
            .map(|pod| (pod.identity().uid().to_owned(), (*pod).clone()))
            .collect();
        SourceState {
            ready,
            pods: Arc::new(pods),
            ..SourceState::default()
        }
    }

    #[test]
    fn only_a_source_that_has_delivered_proves_that_a_version_is_gone() {
        let (asked, other) = (pod("1", "i:1"), pod("1", "i:2"));
        let found = || Lookup::Found(asked.clone());
        for (file, http, expected) in [
            (source(true, &[&asked]), source(true, &[]), found()),
            (source(false, &[&asked]), source(false, &[]), found()),
            (source(true, &[]), source(false, &[&asked]), found()),
            (source(true, &[&other]), source(true, &[&asked]), found()),
            (source(true, &[&other]), source(true, &[]), Lookup::Other),
            (source(true, &[&other]), source(false, &[]), Lookup::Other),
            (
                source(false, &[&other]),
                source(true, &[]),
                Lookup::NotYet(PodSource::File),
            ),
            (
                source(true, &[]),
                source(false, &[]),
                Lookup::NotYet(PodSource::Http),
            ),
            (source(true, &[]), source(true, &[]), Lookup::Gone),
        ] {
            let state: State = [(PodSource::File, file), (PodSource::Http, http)].into();
            let looked = look_up(&state, "1", asked.hash());
            assert_eq!(looked, expected, "{state:?}");
        }
        assert_eq!(look_up(&State::new(), "1", "h"), Lookup::Gone);
    }
}
