//! Manifests of pods, in YAML and JSON, and of ConfigMaps and Secrets.

use fuzz::{changed, files};
use pod_manifest::{DecodedPod, MAX_PODS, decode, local_objects};
use proptest::prelude::*;

/// Longest that is said about one thing that is wrong.
const MAX_DETAIL_BYTES: usize = 16 << 10;

fn manifests() -> Vec<Vec<u8>> {
    files(&[
        "examples",
        "tests/e2e/manifests/control-plane",
        "tests/fuzz/corpus/manifests",
    ])
}

/// Everything that is judged of a pod.
fn judge(decoded: &DecodedPod) -> Result<(), TestCaseError> {
    let errors = [
        decoded.validate(),
        decoded.unsupported_fields(),
        decoded.static_pod_restrictions(),
    ];
    for error in errors.iter().flatten() {
        prop_assert!(error.to_string().len() <= MAX_DETAIL_BYTES, "{error}");
    }
    Ok(())
}

#[test]
fn the_seeds_are_good() {
    for manifest in manifests() {
        let decoded = decode(&manifest);
        let text = String::from_utf8_lossy(&manifest);
        assert!(decoded.is_ok_and(|pods| !pods.is_empty()), "{text}");
    }
    for objects in files(&["tests/fuzz/corpus/objects"]) {
        let decoded = local_objects(&objects);
        assert!(
            decoded.as_ref().is_ok_and(|all| !all.is_empty()),
            "{decoded:?}"
        );
    }
}

proptest! {
    #[test]
    fn a_manifest_is_read_or_refused_and_a_pod_reads_as_it_was_written(
        bytes in changed(manifests()),
    ) {
        let decoded = match decode(&bytes) {
            Ok(decoded) => decoded,
            Err(errors) => {
                prop_assert!(!errors.is_empty());
                for error in errors {
                    prop_assert!(error.to_string().len() <= MAX_DETAIL_BYTES, "{error}");
                }
                return Ok(());
            }
        };
        prop_assert!(decoded.len() <= MAX_PODS);
        for pod in &decoded {
            judge(pod)?;
            let again = decode(pod.canonical_json.as_bytes());
            let again = again.map_err(|errors| TestCaseError::fail(format!("{errors:?}")))?;
            prop_assert_eq!(again.len(), 1);
            prop_assert_eq!(&again[0].canonical_json, &pod.canonical_json);
            prop_assert_eq!(&again[0].pod, &pod.pod);
        }
    }

    #[test]
    fn objects_are_read_or_refused_and_the_same_bytes_are_the_same_objects(
        bytes in changed(files(&["tests/fuzz/corpus/objects"])),
    ) {
        match (local_objects(&bytes), local_objects(&bytes)) {
            (Ok(one), Ok(other)) => {
                let version = |it: &pod_manifest::DecodedObject| it.object.version.clone();
                prop_assert!(one.iter().map(version).eq(other.iter().map(version)));
            }
            (Err(one), Err(other)) => {
                prop_assert!(one.len() <= MAX_DETAIL_BYTES, "{one}");
                prop_assert_eq!(one, other);
            }
            (one, other) => prop_assert!(false, "{one:?}, then {other:?}"),
        }
    }
}
