//! `pods`: the pods of the node.

use std::process::ExitCode;

use clock::{UnixNanos, WallClock};
use pod::PodExt as _;
use serde_json::{Value, json};

use crate::arguments::{PodsFormat, PodsOptions};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::pod_list::{self, ListedPod, pick};
use crate::pod_row;
use crate::table;

/// Prints the pods.
pub(crate) async fn pods(
    connection: &Connection,
    options: &PodsOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let all = pod_list::all(connection).await?;
    let pods = chosen(all, options)?;
    match options.output {
        PodsFormat::Table | PodsFormat::Wide if pods.is_empty() => note("there are no pods"),
        PodsFormat::Table | PodsFormat::Wide => {
            let wide = options.output == PodsFormat::Wide;
            let now = WallClock::system().now();
            output.text(&as_table(&pods, wide, now, output.colours))?;
        }
        PodsFormat::Json => output.json(&as_value(&pods, options))?,
        PodsFormat::Yaml => output.yaml(&as_value(&pods, options))?,
        PodsFormat::Name => {
            let lines = pods.iter().map(|listed| listed.full_name() + "\n");
            output.text(&lines.collect::<String>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The pods that were asked for.
fn chosen(all: Vec<ListedPod>, options: &PodsOptions) -> Result<Vec<ListedPod>, Failure> {
    let wanted = |listed: &ListedPod| match &options.namespace {
        Some(namespace) => listed.pod.namespace() == namespace,
        None => true,
    };
    let all: Vec<ListedPod> = all.into_iter().filter(wanted).collect();
    if options.pods.is_empty() {
        return Ok(all);
    }
    options.pods.iter().map(|name| pick(&all, name)).collect()
}

/// One named pod by itself, anything else as a list, as kubectl does it.
fn as_value(pods: &[ListedPod], options: &PodsOptions) -> Value {
    match (pods, options.pods.as_slice()) {
        ([only], [_]) => only.json.clone(),
        _ => {
            let items: Vec<&Value> = pods.iter().map(|listed| &listed.json).collect();
            json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
        }
    }
}

fn as_table(pods: &[ListedPod], wide: bool, now: UnixNanos, colours: bool) -> String {
    let mut headings = pod_row::HEADINGS.to_vec();
    if wide {
        headings.extend(pod_row::WIDE_HEADINGS);
    }
    let rows: Vec<_> = pods
        .iter()
        .map(|listed| {
            let mut cells = pod_row::cells(&listed.pod, now);
            if wide {
                cells.extend(pod_row::wide_cells(&listed.pod));
            }
            cells
        })
        .collect();
    table::render(&headings, &rows, colours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(namespace: &str, name: &str) -> ListedPod {
        ListedPod::new(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": name},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c"}]},
            "status": {
                "phase": "Running", "startTime": "1970-01-01T00:00:10Z", "podIP": "10.0.0.5",
                "containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 2,
                    "state": {"running": {}},
                    "lastState": {"terminated": {"exitCode": 1, "finishedAt": "1970-01-01T00:01:00Z"}},
                }],
            },
        }))
        .unwrap()
    }

    fn options(pods: &[&str], namespace: Option<&str>) -> PodsOptions {
        PodsOptions {
            pods: pods.iter().map(|&name| name.to_owned()).collect(),
            output: PodsFormat::Table,
            namespace: namespace.map(str::to_owned),
        }
    }

    #[test]
    fn the_table_looks_like_kubectls() {
        let now = UnixNanos(70_000_000_000);
        let pods = [listed("default", "web"), listed("kube-system", "dns")];
        assert_eq!(
            as_table(&pods, false, now, false),
            "\
NAMESPACE     NAME   READY   STATUS    RESTARTS      AGE
default       web    1/1     Running   2 (10s ago)   60s
kube-system   dns    1/1     Running   2 (10s ago)   60s
"
        );
        assert_eq!(
            as_table(&pods[..1], true, now, false),
            "\
NAMESPACE   NAME   READY   STATUS    RESTARTS      AGE   IP         NODE
default     web    1/1     Running   2 (10s ago)   60s   10.0.0.5   node-1
"
        );
    }

    #[test]
    fn pods_are_chosen_by_namespace_and_name() {
        let all = vec![listed("a", "p"), listed("b", "q"), listed("b", "r")];
        let names = |options: &PodsOptions| -> Vec<String> {
            let chosen = chosen(all.clone(), options).unwrap();
            chosen.iter().map(ListedPod::full_name).collect()
        };
        assert_eq!(names(&options(&[], None)), ["a/p", "b/q", "b/r"]);
        assert_eq!(names(&options(&[], Some("b"))), ["b/q", "b/r"]);
        assert_eq!(names(&options(&["r", "p"], None)), ["b/r", "a/p"]);
        assert!(chosen(all.clone(), &options(&["p"], Some("b"))).is_err());
    }

    #[test]
    fn one_named_pod_is_no_list() {
        let pods = [listed("a", "p")];
        assert_eq!(
            as_value(&pods, &options(&["p"], None))["metadata"]["name"],
            "p"
        );
        assert_eq!(
            as_value(&pods, &options(&[], None))["items"][0]["metadata"]["name"],
            "p"
        );
        assert_eq!(as_value(&[], &options(&[], None))["items"], json!([]));
    }
}
