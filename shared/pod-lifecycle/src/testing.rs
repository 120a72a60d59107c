//! Pods for the tests of this crate.

use serde_json::Value;

use crate::desired::DesiredPod;

pub(crate) use test_pods::{api_manifest, manifest, pod};

pub(crate) fn desired(value: Value) -> DesiredPod {
    DesiredPod::new(test_pods::document(value)).unwrap()
}
