//! `pods`: the pods of the node, and finding the one that a person means.

use std::process::ExitCode;

use bulkhead_api::v1;
use bulkhead_api::v1::list_pod_statuses_response::Message;
use bulkhead_api::v1::statuses_client::StatusesClient;
use clock::WallClock;
use pod::core::Pod;
use serde_json::{Value, json};
use topology::Process;

use crate::arguments::{PodFormat, PodsOptions};
use crate::connection::{Connection, print};
use crate::failure::Failure;
use crate::pod_row::{HEADINGS, WIDE_HEADINGS, cells, wide_cells};
use crate::table;

/// A pod with its status, decoded and as it came.
#[derive(Clone, Debug)]
pub(crate) struct ListedPod {
    pub(crate) pod: Pod,
    pub(crate) json: Value,
}

impl ListedPod {
    pub(crate) fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// Prints the pods.
pub(crate) async fn pods(
    connection: &Connection,
    options: &PodsOptions,
) -> Result<ExitCode, Failure> {
    let mut pods = list(connection).await?;
    if let Some(namespace) = &options.namespace {
        pods.retain(|listed| listed.namespace() == namespace);
    }
    print(&rendered(&pods, options.output, WallClock::system().now()))?;
    Ok(ExitCode::SUCCESS)
}

fn rendered(pods: &[ListedPod], format: PodFormat, now: clock::UnixNanos) -> String {
    let list = || {
        let items: Vec<&Value> = pods.iter().map(|listed| &listed.json).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    };
    match format {
        PodFormat::Json => format!("{:#}\n", list()),
        PodFormat::Yaml => yaml(&list()),
        PodFormat::Table if pods.is_empty() => "No pods.\n".to_owned(),
        PodFormat::Wide if pods.is_empty() => "No pods.\n".to_owned(),
        PodFormat::Table => {
            let rows: Vec<_> = pods.iter().map(|listed| cells(&listed.pod, now)).collect();
            table::render(&HEADINGS, &rows)
        }
        PodFormat::Wide => {
            let rows: Vec<_> = pods
                .iter()
                .map(|listed| [cells(&listed.pod, now), wide_cells(&listed.pod)].concat())
                .collect();
            table::render(&[&HEADINGS[..], &WIDE_HEADINGS[..]].concat(), &rows)
        }
    }
}

/// YAML, or JSON (which is YAML too) for a value that has none.
pub(crate) fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}\n"))
}

/// All pods with their statuses, by namespace and name.
pub(crate) async fn list(connection: &Connection) -> Result<Vec<ListedPod>, Failure> {
    let client = StatusesClient::new(connection.channel(Process::StatusSyncer)?)
        .max_decoding_message_size(ipc::limits::MAX_OBSERVATION_BYTES);
    connection
        .collect(Process::StatusSyncer, async || {
            let mut client = client.clone();
            let request = v1::ListPodStatusesRequest { watch: false };
            let mut stream = client.list_pod_statuses(request).await?.into_inner();
            let mut pods = Vec::new();
            while let Some(response) = stream.message().await? {
                match response.message {
                    Some(Message::Entry(entry)) => pods.extend(entry.pod.and_then(decode)),
                    Some(Message::SnapshotComplete(_)) => break,
                    Some(Message::RemovedPodUid(_)) | None => {}
                }
            }
            pods.sort_by_key(|listed: &ListedPod| {
                (listed.namespace().to_owned(), listed.name().to_owned())
            });
            Ok(pods)
        })
        .await
}

fn decode(message: v1::Pod) -> Option<ListedPod> {
    let json: Value = serde_json::from_slice(&message.json).ok()?;
    let pod = serde_json::from_value(json.clone()).ok()?;
    Some(ListedPod { pod, json })
}

/// The pod that `wanted` names: a name, namespace/name, or UID.
pub(crate) async fn find(connection: &Connection, wanted: &str) -> Result<ListedPod, Failure> {
    pick(list(connection).await?, wanted)
}

fn pick(pods: Vec<ListedPod>, wanted: &str) -> Result<ListedPod, Failure> {
    let is_meant = |listed: &ListedPod| match wanted.split_once('/') {
        Some((namespace, name)) => listed.namespace() == namespace && listed.name() == name,
        None => listed.name() == wanted || listed.uid() == wanted,
    };
    let known: Vec<String> = pods
        .iter()
        .map(|listed| format!("{}/{}", listed.namespace(), listed.name()))
        .collect();
    let mut meant: Vec<ListedPod> = pods.into_iter().filter(is_meant).collect();
    match (meant.pop(), meant.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(one), false) => Err(Failure::NotFound(format!(
            "{} pods are called {wanted}: give namespace/name or the UID, e.g. {}",
            meant.len() + 1,
            one.uid()
        ))),
        (None, _) => Err(Failure::NotFound(format!(
            "no pod is called {wanted}; there are: {}",
            known.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(namespace: &str, name: &str, uid: &str) -> ListedPod {
        let json = json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "status": {"phase": "Pending"},
        });
        ListedPod {
            pod: serde_json::from_value(json.clone()).unwrap(),
            json,
        }
    }

    #[test]
    fn a_pod_is_found_by_name_full_name_and_uid() {
        let pods = vec![
            listed("a", "p", "1"),
            listed("b", "p", "2"),
            listed("b", "q", "3"),
        ];
        assert_eq!(pick(pods.clone(), "q").unwrap().uid(), "3");
        assert_eq!(pick(pods.clone(), "b/p").unwrap().uid(), "2");
        assert_eq!(pick(pods.clone(), "1").unwrap().uid(), "1");
        assert!(
            pick(pods.clone(), "p")
                .unwrap_err()
                .text()
                .contains("2 pods")
        );
        assert!(pick(pods, "r").unwrap_err().text().contains("b/q"));
    }

    #[test]
    fn every_format_shows_every_pod() {
        let pods = [listed("a", "p", "1")];
        let formats = [
            PodFormat::Table,
            PodFormat::Wide,
            PodFormat::Json,
            PodFormat::Yaml,
        ];
        for format in formats {
            let text = rendered(&pods, format, clock::UnixNanos(0));
            assert!(
                text.contains('p') && text.contains("Pending"),
                "{format:?}: {text}"
            );
        }
        assert!(yaml(&json!({"a": ["b: c"]})).contains("b: c"));
    }
}
