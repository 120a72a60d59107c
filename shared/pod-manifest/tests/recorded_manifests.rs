//! The manifests that a real kubelet ran: each is taken as a static pod with the
//! identity that the kubelet gave it, or refused only for what Bulkhead does not
//! do yet.

use std::collections::BTreeSet;

use pod_manifest::{Origin, static_pods};
use pod_validation::Reason;
use serde::Deserialize;
use serde_json::Value;

const RECORDS: &str = include_str!("../../../tests/data/kubelet-cri-requests.jsonl");

/// What the refused ones ask for. A feature that comes takes its line away.
const REFUSED: &[(&str, &str)] = &[("runtimeclass-missing", "spec.runtimeClassName")];

#[derive(Deserialize)]
struct Record {
    manifest: Value,
    metadata: Value,
}

#[test]
fn a_kubelets_manifests_are_static_pods() {
    let mut refused = BTreeSet::new();
    let mut taken = 0;
    for line in RECORDS.lines() {
        let record: Record = serde_json::from_str(line).unwrap();
        let name = record.manifest["metadata"]["name"].as_str().unwrap();
        let manifest = record.manifest.to_string();
        match static_pods(
            manifest.as_bytes(),
            Origin::File("/m/pod.json"),
            &"lab-node".into(),
        ) {
            Ok(pods) => {
                taken += 1;
                let metadata = serde_json::to_value(&pods[0].metadata).unwrap();
                assert_eq!(metadata["name"], record.metadata["name"]);
                let uid = metadata["uid"].as_str().unwrap();
                assert_eq!(uid.len(), record.metadata["uid"].as_str().unwrap().len());
                assert_eq!(metadata["annotations"]["kubernetes.io/config.hash"], uid);
                assert_eq!(
                    metadata["annotations"]["kubernetes.io/config.source"],
                    record.metadata["annotations"]["kubernetes.io/config.source"]
                );
            }
            Err(errors) => {
                for error in errors {
                    // A class that this node has not, or what Bulkhead does not do.
                    let expected = match error.error.field.as_str() {
                        "spec.runtimeClassName" => Reason::NotFound {
                            value: "nope".to_owned(),
                        },
                        _ => Reason::Unsupported,
                    };
                    assert_eq!(error.error.reason, expected, "{name}: {error}");
                    refused.insert((name.to_owned(), error.error.field));
                }
            }
        }
    }
    for (name, field) in REFUSED {
        assert!(
            refused.contains(&((*name).to_owned(), (*field).to_owned())),
            "{name} is not refused for {field}: {refused:?}"
        );
    }
    let names: BTreeSet<_> = refused.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, REFUSED.iter().map(|(name, _)| *name).collect());
    assert_eq!(taken + names.len(), 53);
}
