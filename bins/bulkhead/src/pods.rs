//! `pods`: the pods of the node.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bulkhead_api::v1;
use clock::{UnixNanos, WallClock};
use serde::Serialize;

use crate::arguments::{PodsFormat, PodsOptions};
use crate::connection::{Connection, EXTRA_DEADLINE};
use crate::escape::plain;
use crate::events;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::pod_list::{self, PodEntry, pick};
use crate::pod_row;
use crate::pulls;
use crate::table;
use crate::words::{age, timestamp};

/// Pulls that are told below the table.
const MAX_PULLS: usize = 20;

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
            let events = events_of_pulls(connection, &pods).await;
            let now = WallClock::system().now();
            let table = as_table(&pods, wide, now, output.colours)?;
            output.text(&(table + &pulls_as_text(&pods, &events, now)?))?;
        }
        PodsFormat::Json => output.json(&answer(&pods, options))?,
        PodsFormat::Yaml => output.yaml(&answer(&pods, options))?,
        PodsFormat::Name => {
            let lines = pods.iter().map(|pod| pod.full_name() + "\n");
            output.text(&lines.collect::<String>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Events, where a container may wait for its image: only they tell of pulls.
async fn events_of_pulls(connection: &Connection, pods: &[PodEntry]) -> Vec<v1::Event> {
    let may_pull = |pod: &PodEntry| {
        let Ok(listed) = pod.read() else { return false };
        let Some(status) = &listed.pod.status else {
            return false;
        };
        let init = status.init_container_statuses.iter().flatten();
        let mut all = init.chain(status.container_statuses.iter().flatten());
        all.any(|own| pulls::may_be_under_way(&listed.pod, status, Some(own)))
    };
    if !pods.iter().any(may_pull) {
        return Vec::new();
    }
    let events = events::recent(connection, EXTRA_DEADLINE).await;
    events.unwrap_or_else(|failure| {
        let why = telemetry::chain(&failure);
        note(&format!("pulls of images are not shown: {why}"));
        Vec::new()
    })
}

/// A line for each pull that goes on; the first of them, where there are very many.
fn pulls_as_text(
    pods: &[PodEntry],
    events: &[v1::Event],
    now: UnixNanos,
) -> Result<String, Failure> {
    let mut by_pod: BTreeMap<&str, Vec<v1::Event>> = BTreeMap::new();
    for event in events {
        if let Some(pod) = &event.pod {
            by_pod.entry(&pod.uid).or_default().push(event.clone());
        }
    }
    let (mut lines, mut more) = (Vec::new(), 0);
    for pod in pods {
        let Some(events) = by_pod.get(pod.identity().uid()) else {
            continue;
        };
        let listed = pod.read()?;
        let status = listed.pod.status.clone().unwrap_or_default();
        for pull in pulls::under_way(&listed.pod, &status, events) {
            if lines.len() >= MAX_PULLS {
                more += 1;
                continue;
            }
            let line = format!(
                "{}: pulling {} for {}, since {} ({} ago)",
                listed.full_name(),
                pull.image,
                pull.container,
                timestamp(pull.since),
                age(now.since(pull.since))
            );
            lines.push(plain(&line) + "\n");
        }
    }
    if more > 0 {
        lines.push(format!("and {more} more images are pulled\n"));
    }
    Ok(lines.concat())
}

/// The pods that were asked for.
fn chosen(all: Vec<PodEntry>, options: &PodsOptions) -> Result<Vec<PodEntry>, Failure> {
    let wanted = |pod: &PodEntry| match &options.namespace {
        Some(namespace) => pod.identity().namespace() == namespace,
        None => true,
    };
    let all: Vec<PodEntry> = all.into_iter().filter(wanted).collect();
    if options.pods.is_empty() {
        return Ok(all);
    }
    let picked = options.pods.iter().map(|name| pick(&all, name).cloned());
    picked.collect()
}

/// One named pod by itself, anything else as a list, as kubectl does it.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    One(&'a PodEntry),
    #[serde(rename_all = "camelCase")]
    List {
        api_version: &'static str,
        items: &'a [PodEntry],
        kind: &'static str,
        metadata: BTreeMap<String, String>,
    },
}

fn answer<'a>(pods: &'a [PodEntry], options: &PodsOptions) -> Answer<'a> {
    match (pods, options.pods.as_slice()) {
        ([only], [_]) => Answer::One(only),
        _ => Answer::List {
            api_version: "v1",
            items: pods,
            kind: "List",
            metadata: BTreeMap::new(),
        },
    }
}

fn as_table(
    pods: &[PodEntry],
    wide: bool,
    now: UnixNanos,
    colours: bool,
) -> Result<String, Failure> {
    let mut headings = pod_row::HEADINGS.to_vec();
    if wide {
        headings.extend(pod_row::WIDE_HEADINGS);
    }
    let row = |pod: &PodEntry| {
        let pod = pod.read()?.pod;
        let mut cells = pod_row::cells(&pod, now);
        if wide {
            cells.extend(pod_row::wide_cells(&pod));
        }
        Ok(cells)
    };
    let rows: Vec<_> = pods.iter().map(row).collect::<Result<_, Failure>>()?;
    Ok(table::render(&headings, &rows, colours))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(pod: &Value) -> PodEntry {
        PodEntry::new(pod.to_string().into_bytes()).unwrap()
    }

    fn listed(namespace: &str, name: &str) -> PodEntry {
        entry(&pod(namespace, name))
    }

    fn pod(namespace: &str, name: &str) -> Value {
        json!({
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
        })
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
            as_table(&pods, false, now, false).unwrap(),
            "\
NAMESPACE     NAME   READY   STATUS    RESTARTS      AGE
default       web    1/1     Running   2 (10s ago)   60s
kube-system   dns    1/1     Running   2 (10s ago)   60s
"
        );
        assert_eq!(
            as_table(&pods[..1], true, now, false).unwrap(),
            "\
NAMESPACE   NAME   READY   STATUS    RESTARTS      AGE   IP         NODE
default     web    1/1     Running   2 (10s ago)   60s   10.0.0.5   node-1
"
        );
    }

    #[test]
    fn pulls_that_go_on_are_told_below_the_table() {
        let event = |uid: &str| v1::Event {
            pod: Some(v1::PodReference {
                uid: uid.to_owned(),
                ..v1::PodReference::default()
            }),
            container: "c".to_owned(),
            reason: "Pulling".to_owned(),
            unix_nanos: 30_000_000_000,
            ..v1::Event::default()
        };
        let waits = |name: &str| {
            let mut json = pod("default", name);
            json["spec"]["containers"][0]["image"] = json!("web:1\u{1b}");
            json["status"]["containerStatuses"][0]["state"] = json!({"waiting": {}});
            entry(&json)
        };
        let now = UnixNanos(70_000_000_000);
        let pods = [waits("web"), listed("default", "runs"), waits("other")];
        assert_eq!(
            pulls_as_text(&pods, &[event("web"), event("runs"), event("gone")], now).unwrap(),
            "default/web: pulling web:1^[ for c, since 1970-01-01T00:00:30Z (40s ago)\n"
        );
        let many: Vec<_> = (0..25).map(|number| waits(&format!("p{number}"))).collect();
        let events: Vec<_> = (0..25).map(|number| event(&format!("p{number}"))).collect();
        let text = pulls_as_text(&many, &events, now).unwrap();
        assert_eq!(text.lines().count(), 21);
        assert!(text.ends_with("and 5 more images are pulled\n"), "{text}");
    }

    #[test]
    fn pods_are_chosen_by_namespace_and_name() {
        let all = vec![listed("a", "p"), listed("b", "q"), listed("b", "r")];
        let names = |options: &PodsOptions| -> Vec<String> {
            let chosen = chosen(all.clone(), options).unwrap();
            chosen.iter().map(PodEntry::full_name).collect()
        };
        assert_eq!(names(&options(&[], None)), ["a/p", "b/q", "b/r"]);
        assert_eq!(names(&options(&[], Some("b"))), ["b/q", "b/r"]);
        assert_eq!(names(&options(&["r", "p"], None)), ["b/r", "a/p"]);
        assert!(chosen(all.clone(), &options(&["p"], Some("b"))).is_err());
    }

    #[test]
    fn one_named_pod_is_no_list() {
        let pods = [listed("a", "p")];
        let printed =
            |pods: &[PodEntry], options| serde_json::to_value(answer(pods, &options)).unwrap();
        assert_eq!(
            printed(&pods, options(&["p"], None))["metadata"]["name"],
            "p"
        );
        assert_eq!(
            printed(&pods, options(&[], None)),
            json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [pod("a", "p")]})
        );
        assert_eq!(printed(&[], options(&[], None))["items"], json!([]));
    }
}
