//! The same pods on a node of Bulkhead and on one of a kubelet.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cluster::comparison::{self, Flat};
use cluster::kubelet::KubeletCluster;
use cluster::{Cluster, ControlPlane};
use serde_json::{Value, json};
use test_support::wait::wait_for_every;

/// Longest time until three restarts of a crash loop are over, or the statuses of Bulkhead
/// have been those of the kubelet.
const SETTLED: Duration = Duration::from_secs(180);

/// Between two looks, each of which asks for everything.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Words of Bulkhead's events, and what a kubelet says in their place.
const WORDS: [(&str, &str); 3] = [
    // It has the feature gate KubeletEnsureSecretPulledImages on.
    (" and can be accessed by the pod", ""),
    // Of a probe's command that printed nothing.
    ("the command ended with code 1", ""),
    // Why a hook failed is said too.
    (": the command exited with 1", ""),
];

/// Events of a kubelet's Node that are not Bulkhead's: it supports cgroups of both versions,
/// measures no capacity that can be 0, and reports the missing DNS in the pod's event alone.
/// A Node that is ready from the start has not become so.
const NOT_OURS: [&str; 4] = [
    "Normal NodeReady",
    "Warning CgroupV1",
    "Warning InvalidDiskCapacity",
    "Warning MissingClusterDNS",
];

/// What a node says of a pod.
#[derive(Debug)]
struct Said {
    status: Flat,
    events: Vec<String>,
}

fn create_all(plane: &ControlPlane, node: &str) -> Result<Vec<String>> {
    let pods: Vec<Value> = serde_json::from_str(include_str!("../data/pods.json"))?;
    let mut names = Vec::new();
    for mut pod in pods {
        pod["metadata"]["namespace"] = json!("default");
        pod["spec"]["nodeName"] = json!(node);
        pod["spec"]["automountServiceAccountToken"] = json!(false);
        plane.apply(&pod)?;
        names.push(
            pod["metadata"]["name"]
                .as_str()
                .context("no name")?
                .to_owned(),
        );
    }
    Ok(names)
}

fn said(plane: &ControlPlane) -> Result<BTreeMap<String, Said>> {
    let pods = plane.list("pod")?;
    let events = plane.list("event")?;
    let pods = pods.iter().map(|pod| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let said = Said {
            status: comparison::status(pod),
            events: comparison::events(&events, text("uid")),
        };
        (text("name").to_owned(), said)
    });
    Ok(pods.collect())
}

/// Labels, annotations, spec and status of a Node.
fn node(plane: &ControlPlane, name: &str) -> Result<Flat> {
    let node = plane.get("node", name)?;
    Ok(comparison::object(&node))
}

/// The events of the Node, which has its name as UID in them.
fn node_events(plane: &ControlPlane, name: &str) -> Result<Vec<String>> {
    let mut events = comparison::events(&plane.list("event")?, name);
    // Several are of the same time.
    events.sort();
    events.retain(|event| !NOT_OURS.iter().any(|it| event.starts_with(it)));
    Ok(events)
}

fn different(kubelet: &Said, own: Option<&Said>) -> Vec<String> {
    let Some(own) = own else {
        return vec!["there is no such pod".to_owned()];
    };
    let mut found = comparison::differences(&kubelet.status, &own.status);
    let events = own.events.iter().map(|event| {
        let words = WORDS.iter();
        words.fold(event.clone(), |event, (own, other)| {
            event.replace(own, other)
        })
    });
    let events: Vec<String> = events.collect();
    if events != kubelet.events {
        found.push(format!("events: {:#?} | {events:#?}", kubelet.events));
    }
    found
}

/// Both crash loops have restarted three times, and wait for the fourth.
fn is_settled(said: &BTreeMap<String, Said>) -> bool {
    ["crash", "badcmd"].into_iter().all(|name| {
        let is = |field: &str, expected: &str| {
            let path = format!("status.containerStatuses[c].{field}");
            let found = said.get(name).and_then(|it| it.status.get(&path));
            found.is_some_and(|found| found == expected)
        };
        is("restartCount", "3") && is("state.waiting.reason", "CrashLoopBackOff")
    })
}

#[test]
fn statuses_and_events_of_pods_are_those_of_a_kubelet() -> Result<()> {
    let Some(kubelet) = KubeletCluster::start()? else {
        return Ok(());
    };
    create_all(&kubelet.plane, &kubelet.node_name())?;
    let expected = wait_for_every(
        LOOK_INTERVAL,
        "a crash loop's third restart",
        SETTLED,
        || {
            let said = said(&kubelet.plane).map_err(|error| format!("{error:#}"))?;
            match is_settled(&said) {
                true => Ok(said),
                false => Err("not yet".to_owned()),
            }
        },
    )?;
    let expected_node = node(&kubelet.plane, &kubelet.node_name())?;
    let expected_events = node_events(&kubelet.plane, &kubelet.node_name())?;
    drop(kubelet);
    let cluster = Cluster::start()?;
    create_all(&cluster.plane, cluster.node_name())?;
    // Each pod at some time: one that restarts is not for long what it was.
    let mut different_pods = BTreeMap::from_iter(expected.keys().map(|name| (name, Vec::new())));
    let same = wait_for_every(LOOK_INTERVAL, "the words of a kubelet", SETTLED, || {
        let own = said(&cluster.plane).map_err(|error| format!("{error:#}"))?;
        different_pods.retain(|name, found| {
            *found = different(&expected[*name], own.get(*name));
            !found.is_empty()
        });
        match different_pods.is_empty() {
            true => Ok(()),
            false => Err(format!("{different_pods:#?}")),
        }
    });
    same?;
    let node = node(&cluster.plane, cluster.node_name())?;
    let of_node = comparison::differences(&expected_node, &node);
    ensure!(of_node.is_empty(), "the Node differs: {of_node:#?}");
    let events = node_events(&cluster.plane, cluster.node_name())?;
    assert_eq!(events, expected_events);
    Ok(())
}
