//! What the runtime says of its own readiness (`RuntimeStatus` of the CRI).

use cri::v1;

/// Whether it runs containers.
///
/// # Errors
/// Why not, for people.
pub(crate) fn runtime(status: &v1::StatusResponse) -> Result<(), String> {
    require(status, "RuntimeReady", "container runtime not ready")
}

/// Whether it gives sandboxes a network of their own.
///
/// # Errors
/// Why not, for people.
pub(crate) fn network(status: &v1::StatusResponse) -> Result<(), String> {
    let what = "container runtime network not ready";
    require(status, "NetworkReady", what)
}

/// The kubelet's words (`runtime.go`, `runtimeState`).
fn require(status: &v1::StatusResponse, condition: &str, what: &str) -> Result<(), String> {
    let conditions = status.status.iter().flat_map(|status| &status.conditions);
    let told = conditions
        .filter(|told| told.r#type == condition)
        .max_by_key(|told| told.status);
    match told {
        Some(told) if told.status => Ok(()),
        Some(told) => Err(format!(
            "{what}: {condition}=false reason:{} message:{}",
            told.reason, told.message
        )),
        None => Err(format!("{what}: the runtime does not tell {condition}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(conditions: &[(&str, bool)]) -> v1::StatusResponse {
        let condition = |(name, status): &(&str, bool)| v1::RuntimeCondition {
            r#type: (*name).to_owned(),
            status: *status,
            reason: "Because".into(),
            message: "it is so".into(),
        };
        let conditions = conditions.iter().map(condition).collect();
        v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            ..v1::StatusResponse::default()
        }
    }

    #[test]
    fn each_condition_counts_for_itself_and_a_missing_one_is_not_met() {
        let both = [("RuntimeReady", true), ("NetworkReady", true)];
        let network_down = [("RuntimeReady", true), ("NetworkReady", false)];
        let runtime_down = [("RuntimeReady", false), ("NetworkReady", true)];
        let unmet = |what: &str| Err(format!("{what} reason:Because message:it is so"));
        let untold = "the runtime does not tell";
        for (told, runtime_is, network_is) in [
            (&both[..], Ok(()), Ok(())),
            (
                &network_down,
                Ok(()),
                unmet("container runtime network not ready: NetworkReady=false"),
            ),
            (
                &runtime_down,
                unmet("container runtime not ready: RuntimeReady=false"),
                Ok(()),
            ),
            (
                &[],
                Err(format!(
                    "container runtime not ready: {untold} RuntimeReady"
                )),
                Err(format!(
                    "container runtime network not ready: {untold} NetworkReady"
                )),
            ),
        ] {
            assert_eq!(runtime(&status(told)), runtime_is, "{told:?}");
            assert_eq!(network(&status(told)), network_is, "{told:?}");
        }
    }
}
