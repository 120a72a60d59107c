//! `Objects`: ConfigMaps and Secrets by reference, for pod-worker-pool.

use std::pin::Pin;
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::objects_server::Objects;
use futures_util::stream;
use local_objects::{LocalObject, ObjectKind, ObjectRef};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::object_set::ObjectState;
use crate::object_source::ObjectPublication;

/// Longest text of why the list is incomplete, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 10;

#[tonic::async_trait]
impl Objects for ObjectPublication {
    type WatchObjectsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchObjectsResponse, Status>> + Send>>;

    async fn watch_objects(
        &self,
        _request: Request<v1::WatchObjectsRequest>,
    ) -> Result<Response<Self::WatchObjectsStream>, Status> {
        let mut state = self.watch();
        state.mark_changed();
        let lists = stream::unfold(state, |mut state| async move {
            state.changed().await.ok()?;
            let list = list(&state.borrow_and_update());
            Some((Ok(list), state))
        });
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_object(
        &self,
        request: Request<v1::GetObjectRequest>,
    ) -> Result<Response<v1::GetObjectResponse>, Status> {
        let v1::GetObjectRequest {
            kind,
            namespace,
            name,
            version,
        } = request.into_inner();
        let kind = ObjectKind::parse(&kind)
            .ok_or_else(|| Status::invalid_argument("no such kind of object"))?;
        let reference = ObjectRef {
            kind,
            namespace,
            name,
        };
        let state = Arc::clone(&self.watch().borrow());
        match state.objects.get(&reference) {
            None => Err(Status::not_found(format!("there is no {reference}"))),
            Some(object) if object.version != version => {
                let text = format!("{reference} has another version by now");
                Err(Status::aborted(text))
            }
            Some(object) => Ok(Response::new(v1::GetObjectResponse {
                object: Some(message(object)),
            })),
        }
    }
}

fn list(state: &ObjectState) -> v1::WatchObjectsResponse {
    let objects = state.objects.values().map(|object| v1::ObjectVersion {
        kind: object.reference.kind.name().to_owned(),
        namespace: object.reference.namespace.clone(),
        name: object.reference.name.clone(),
        version: object.version.clone(),
    });
    let mut incomplete = state.incomplete.clone().unwrap_or_default();
    ipc::limits::truncate(&mut incomplete, MAX_TEXT_BYTES);
    v1::WatchObjectsResponse {
        is_read: state.is_read,
        incomplete,
        objects: objects.collect(),
    }
}

fn message(object: &LocalObject) -> v1::LocalObject {
    let data = object.data.iter();
    v1::LocalObject {
        kind: object.reference.kind.name().to_owned(),
        namespace: object.reference.namespace.clone(),
        name: object.reference.name.clone(),
        version: object.version.clone(),
        data: data
            .map(|(key, value)| v1::ObjectValue {
                key: key.clone(),
                value: value.as_slice().to_vec(),
                binary: object.binary_keys.contains(key),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_util::StreamExt as _;

    use super::*;

    fn state(value: &str) -> ObjectState {
        let reference = ObjectRef {
            kind: ObjectKind::Secret,
            namespace: "d".to_owned(),
            name: "s".to_owned(),
        };
        let object = LocalObject {
            reference: reference.clone(),
            version: value.to_owned(),
            data: [("k".to_owned(), value.as_bytes().to_vec().into())].into(),
            binary_keys: BTreeSet::new(),
        };
        ObjectState {
            is_read: true,
            incomplete: None,
            objects: [(reference, Arc::new(object))].into(),
        }
    }

    async fn get(
        publication: &ObjectPublication,
        name: &str,
        version: &str,
    ) -> Result<v1::LocalObject, tonic::Code> {
        let request = v1::GetObjectRequest {
            kind: "Secret".to_owned(),
            namespace: "d".to_owned(),
            name: name.to_owned(),
            version: version.to_owned(),
        };
        let answer = publication.get_object(Request::new(request)).await;
        let answer = answer.map_err(|status| status.code())?;
        Ok(answer.into_inner().object.unwrap())
    }

    #[tokio::test]
    async fn the_whole_list_is_told_at_once_and_after_each_change() {
        let publication = ObjectPublication::new(true);
        let request = Request::new(v1::WatchObjectsRequest {});
        let lists = publication.watch_objects(request).await.unwrap();
        let mut lists = lists.into_inner();
        let first = lists.next().await.unwrap().unwrap();
        assert!(!first.is_read && first.objects.is_empty());
        for value in ["1", "2"] {
            publication.set(state(value));
            let list = lists.next().await.unwrap().unwrap();
            assert!(list.is_read);
            assert_eq!(list.objects[0].version, value);
        }
    }

    #[tokio::test]
    async fn an_object_is_given_in_the_version_that_was_asked_for() {
        let publication = ObjectPublication::new(true);
        publication.set(state("1"));
        let object = get(&publication, "s", "1").await.unwrap();
        assert_eq!(object.data[0].value, b"1");
        assert_eq!(get(&publication, "s", "2").await, Err(tonic::Code::Aborted));
        assert_eq!(
            get(&publication, "t", "1").await,
            Err(tonic::Code::NotFound)
        );
    }
}
