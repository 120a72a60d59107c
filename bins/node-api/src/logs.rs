//! The log of a container.

use std::sync::Arc;

use bulkhead_api::v1;
use clock::WallClock;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use tonic::{Code, Status};

use crate::answer::{self, Body, Broken};
use crate::log_query::LogQuery;
use crate::node::Node;
use crate::query::Query;
use crate::route::Target;

/// Answers `/containerLogs`.
pub(crate) async fn logs(
    node: &Arc<Node>,
    clock: &WallClock,
    target: Target,
    query: &Query,
) -> Response<Body> {
    let asked = match LogQuery::parse(query, clock.now().0) {
        Ok(asked) => asked,
        Err(error) => return answer::text(error.status(), error.to_string()),
    };
    let pod = v1::PodReference {
        uid: String::new(),
        namespace: target.namespace,
        name: target.pod,
    };
    let found = match node.statuses(Some(&pod)).await {
        Ok(found) => found.into_iter().next(),
        Err(error) => return answer::refusal(&error),
    };
    let Some(found) = found else {
        let text = format!("pod {:?} does not exist", pod.name);
        return answer::text(StatusCode::NOT_FOUND, text);
    };
    let status: PodStatus = serde_json::from_slice(&found.status).unwrap_or_default();
    let Some(container) = container(&status, &target.container) else {
        let text = format!(
            "container {:?} not found in pod {:?}",
            target.container, pod.name
        );
        return answer::text(StatusCode::NOT_FOUND, text);
    };
    if let Err(reason) = check_available(container, &pod.name, asked.request.previous) {
        return answer::text(StatusCode::BAD_REQUEST, reason);
    }
    let request = v1::ReadLogsRequest {
        pod_uid: found.reference.unwrap_or_default().uid,
        container_name: target.container,
        ..asked.request
    };
    let chunks = match node.read_logs(&request).await {
        Ok(chunks) => chunks,
        Err(error) if error.code() == Some(Code::ResourceExhausted) => {
            return answer::refusal(&error);
        }
        Err(error) => return answer::text(StatusCode::BAD_REQUEST, error.to_string()),
    };
    // What comes first of one that is followed may come late.
    if request.follow {
        return Response::new(body(chunks, asked.limit_bytes));
    }
    match begun(chunks).await {
        Ok(chunks) => Response::new(body(chunks, asked.limit_bytes)),
        Err(status) => answer::text(StatusCode::BAD_REQUEST, status.message()),
    }
}

/// Waits for the first chunk: an error instead of it, as of a log that is not there, is an
/// answer, and no log that breaks off.
async fn begun<T>(
    mut chunks: impl Stream<Item = Result<T, Status>> + Unpin,
) -> Result<impl Stream<Item = Result<T, Status>>, Status> {
    match chunks.next().await.transpose() {
        Ok(first) => Ok(stream::iter(first.map(Ok)).chain(chunks)),
        Err(status) => Err(status),
    }
}

fn body(
    chunks: impl Stream<Item = Result<v1::ReadLogsResponse, Status>> + Send + 'static,
    limit: Option<u64>,
) -> Body {
    let contents = chunks.map(|chunk| match chunk {
        Ok(chunk) => Ok(Bytes::from(chunk.content)),
        Err(status) => Err(Broken(status.message().to_owned())),
    });
    let frames = limited(contents, limit).map(|content| content.map(Frame::data));
    StreamBody::new(frames.chain(own_end())).boxed_unsync()
}

/// Has what was read be sent before the end is. An API server that passes a log on over a
/// WebSocket loses what it reads together with the end (`messageCopy` of `wsstream`).
fn own_end<T: Send>() -> impl Stream<Item = T> + Send {
    stream::once(tokio::task::yield_now()).filter_map(|()| std::future::ready(None))
}

/// As much as may be read, even if it ends within a line.
fn limited(
    contents: impl Stream<Item = Result<Bytes, Broken>> + Send + 'static,
    limit: Option<u64>,
) -> impl Stream<Item = Result<Bytes, Broken>> + Send + 'static {
    let left = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    stream::unfold(
        (Box::pin(contents), left),
        |(mut contents, left)| async move {
            if left == 0 {
                return None;
            }
            let content = contents.next().await?;
            let content = content.map(|mut bytes| {
                bytes.truncate(left);
                bytes
            });
            let read = content.as_ref().map_or(0, Bytes::len);
            Some((content, (contents, left - read)))
        },
    )
}

fn container<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    let all = lists.into_iter().flatten().flatten();
    let mut named = all.filter(|container| container.name == name);
    named.next()
}

/// Whether there is an instance whose log can be read, in the kubelet's words
/// (`validateContainerLogStatus`). Pure.
fn check_available(container: &ContainerStatus, pod: &str, previous: bool) -> Result<(), String> {
    let name = &container.name;
    let state = container.state.clone().unwrap_or_default();
    let last = container.last_state.clone().unwrap_or_default().terminated;
    let has_run = |id: Option<&String>| id.is_some_and(|id| !id.is_empty());
    let last_has_run = last
        .as_ref()
        .map(|last| has_run(last.container_id.as_ref()));
    let is_terminated = || format!("container {name:?} in pod {pod:?} is terminated");
    if previous {
        return match last_has_run {
            Some(true) => Ok(()),
            _ => Err(format!(
                "previous terminated container {name:?} in pod {pod:?} not found"
            )),
        };
    }
    if state.running.is_some() {
        return Ok(());
    }
    if let Some(terminated) = &state.terminated {
        return match has_run(terminated.container_id.as_ref()) || last_has_run == Some(true) {
            true => Ok(()),
            false => Err(is_terminated()),
        };
    }
    match last_has_run {
        Some(true) => return Ok(()),
        Some(false) => return Err(is_terminated()),
        None => {}
    }
    let reason = state.waiting.and_then(|waiting| waiting.reason);
    let why = match reason.as_deref().unwrap_or_default() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    };
    Err(format!(
        "container {name:?} in pod {pod:?} is waiting to start: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_log_can_be_read_of_what_has_run() {
        let ran = json!({"terminated": {"containerID": "c://1", "exitCode": 0}});
        let never_ran = json!({"terminated": {"exitCode": 128}});
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let none = json!({});
        let waiting = "container \"c\" in pod \"p\" is waiting to start: ";
        let terminated = "container \"c\" in pod \"p\" is terminated";
        for (state, last, previous, expected) in [
            (json!({"running": {}}), &none, false, Ok(())),
            (ran.clone(), &none, false, Ok(())),
            (never_ran.clone(), &none, false, Err(terminated.to_owned())),
            (never_ran.clone(), &ran, false, Ok(())),
            (waits("CrashLoopBackOff"), &ran, false, Ok(())),
            (
                waits("CrashLoopBackOff"),
                &never_ran,
                false,
                Err(terminated.to_owned()),
            ),
            (
                waits("ContainerCreating"),
                &none,
                false,
                Err(format!("{waiting}ContainerCreating")),
            ),
            (
                waits("ErrImagePull"),
                &none,
                false,
                Err(format!("{waiting}image can't be pulled")),
            ),
            (
                waits("ImagePullBackOff"),
                &none,
                false,
                Err(format!("{waiting}trying and failing to pull image")),
            ),
            (json!({"running": {}}), &ran, true, Ok(())),
            (
                json!({"running": {}}),
                &none,
                true,
                Err("previous terminated container \"c\" in pod \"p\" not found".to_owned()),
            ),
        ] {
            let status = status(&state, last);
            let container = container(&status, "c").unwrap();
            let found = check_available(container, "p", previous);
            assert_eq!(found, expected, "{state} {last} {previous}");
        }
        assert!(container(&status(&none, &none), "d").is_none());
    }

    fn status(state: &Value, last: &Value) -> PodStatus {
        let container = json!({"name": "c", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": state, "lastState": last});
        serde_json::from_value(json!({"containerStatuses": [container]})).unwrap()
    }

    #[tokio::test]
    async fn what_was_read_is_sent_before_the_end_is() {
        let read = stream::iter([1, 2]).chain(own_end());
        tokio::pin!(read);
        assert_eq!(read.next().now_or_never(), Some(Some(1)));
        assert_eq!(read.next().now_or_never(), Some(Some(2)));
        assert_eq!(read.next().now_or_never(), None, "the end comes by itself");
        assert_eq!(read.next().await, None);
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_read_is_no_log_that_breaks_off() {
        let fails = || Err(Status::not_found("no log"));
        let of = |chunks: Vec<Result<u8, Status>>| begun(stream::iter(chunks));
        assert!(of(vec![fails(), Ok(1)]).await.is_err());
        let empty = of(Vec::new()).await.unwrap();
        assert_eq!(empty.count().await, 0);
        let breaks_off = of(vec![Ok(1), fails()]).await.unwrap();
        let read: Vec<bool> = breaks_off.map(|chunk| chunk.is_ok()).collect().await;
        assert_eq!(read, [true, false]);
    }

    #[tokio::test]
    async fn a_log_ends_at_its_limit() {
        let contents = || stream::iter(["abc", "def"].map(|text| Ok(Bytes::from(text))));
        for (limit, expected) in [(None, "abcdef"), (Some(4), "abcd"), (Some(3), "abc")] {
            let read: Vec<Bytes> = limited(contents(), limit)
                .map(Result::unwrap)
                .collect()
                .await;
            assert_eq!(read.concat(), expected.as_bytes(), "{limit:?}");
        }
    }
}
