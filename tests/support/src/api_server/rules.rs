//! What the API server makes of an object that is created or deleted. Pure.

use jiff::{SignedDuration, Timestamp};
use pod::Pod;
use serde_json::{Value, json};

use super::store::{Refusal, seconds};

/// Of a pod that names none.
const USUAL_GRACE: i64 = 30;

/// Fills in what the API server fills in, as far as anybody here looks at it. `number` is
/// different for each object.
pub(super) fn admit(resource: &str, object: &mut Value, number: u64) -> Result<(), Refusal> {
    match resource {
        "pods" => *object = pod(object.take()).map_err(|error| Refusal::bad_request(&error))?,
        "services" => {
            let address = format!("10.0.0.{}", number % 250 + 1);
            set_default(&mut object["spec"], "clusterIP", json!(address));
            let ports = object["spec"]["ports"].as_array_mut();
            for port in ports.into_iter().flatten() {
                set_default(port, "protocol", json!("TCP"));
            }
        }
        _ => {}
    }
    Ok(())
}

fn pod(object: Value) -> Result<Value, serde_json::Error> {
    let mut pod: Pod = serde_json::from_value(object)?;
    pod_validation::apply_defaults(&mut pod);
    let mut object = serde_json::to_value(pod)?;
    object["status"] = json!({"phase": "Pending"});
    Ok(object)
}

fn set_default(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

/// The object once its deletion was asked for with this metav1.DeleteOptions; with a grace of
/// 0 it goes (`pkg/registry/core/pod/strategy.go` of Kubernetes).
pub(super) fn deletion(
    resource: &str,
    object: &Value,
    options: &Value,
    now: Timestamp,
) -> Result<Value, Refusal> {
    let uid = &options["preconditions"]["uid"];
    if !uid.is_null() && *uid != object["metadata"]["uid"] {
        return Err(Refusal::conflict("the UID in the precondition is another"));
    }
    let asked = options["gracePeriodSeconds"].as_i64();
    let grace = match resource {
        "pods" => grace_of_pod(object, asked),
        _ => 0,
    };
    let mut new = object.clone();
    let metadata = &mut new["metadata"];
    if metadata["deletionTimestamp"].is_null() {
        let generation = metadata["generation"].as_u64().unwrap_or_default();
        metadata["generation"] = json!(generation + 1);
    } else if metadata["deletionGracePeriodSeconds"].as_i64() <= Some(grace) {
        return Ok(new);
    }
    let end = now + SignedDuration::from_secs(grace);
    metadata["deletionTimestamp"] = json!(seconds(end));
    metadata["deletionGracePeriodSeconds"] = json!(grace);
    Ok(new)
}

fn grace_of_pod(pod: &Value, asked: Option<i64>) -> i64 {
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    let is_bound = pod["spec"]["nodeName"].is_string();
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    match asked.or(own).unwrap_or(USUAL_GRACE) {
        _ if !is_bound || matches!(phase, "Succeeded" | "Failed") => 0,
        ..0 => 1,
        grace => grace,
    }
}

/// A bearer token that is known, and the group of whose user may do everything with nodes.
const TOKEN: &str = "token-of-ann";
const ADMINISTRATORS: &str = "system:masters";

/// What a review comes to; none of other resources.
pub(super) fn review(resource: &str, body: &Value) -> Option<Value> {
    match resource {
        "tokenreviews" => Some(match body["spec"]["token"] == TOKEN {
            true => json!({"authenticated": true, "user": {"username": "ann"}}),
            false => json!({"authenticated": false}),
        }),
        "subjectaccessreviews" => {
            let groups = body["spec"]["groups"].as_array();
            let allowed = groups.is_some_and(|it| it.contains(&json!(ADMINISTRATORS)));
            Some(json!({"allowed": allowed}))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_has_the_grace_that_is_asked_for_and_only_shrinks() {
        let pod = |phase: &str, known: Option<i64>| {
            let mut pod = json!({"metadata": {"uid": "u", "generation": 1},
                "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 5},
                "status": {"phase": phase}});
            if let Some(known) = known {
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(known);
                pod["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:09Z");
            }
            pod
        };
        for (pod, asked, expected) in [
            (pod("Running", None), None, 5),
            (pod("Running", None), Some(2), 2),
            (pod("Running", None), Some(-1), 1),
            (pod("Running", None), Some(0), 0),
            (pod("Failed", None), None, 0),
            (pod("Running", Some(3)), None, 3),
            (pod("Running", Some(3)), Some(1), 1),
            (pod("Failed", Some(3)), Some(0), 0),
        ] {
            let options = json!({"gracePeriodSeconds": asked, "preconditions": {"uid": "u"}});
            let deleted = deletion("pods", &pod, &options, Timestamp::UNIX_EPOCH).unwrap();
            let grace = &deleted["metadata"]["deletionGracePeriodSeconds"];
            assert_eq!(*grace, expected, "{pod} {asked:?}");
        }
        let options = json!({"preconditions": {"uid": "other"}});
        let refused = deletion(
            "pods",
            &pod("Running", None),
            &options,
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(refused.err().map(|it| it.code), Some(409));
    }
}
