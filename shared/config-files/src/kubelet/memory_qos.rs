//! Memory QoS: its factor and its policy, and the feature gate of that name, which is on
//! unless it is said to be off (Kubernetes 1.37).

use std::collections::BTreeMap;

use node_config::{MemoryQos, NodeConfig};

use super::image_verification;
use super::problem::{Applied, Warning, refused};

/// The feature gate that switches it off.
const GATE: &str = "MemoryQoS";

/// What a configuration gives of it.
pub(super) struct Given<'a> {
    pub(super) factor: Option<f64>,
    pub(super) policy: &'a str,
    pub(super) gates: &'a BTreeMap<String, bool>,
}

impl Given<'_> {
    pub(super) fn apply(&self, config: &mut NodeConfig, warnings: &mut Vec<Warning>) -> Applied {
        let known = [GATE, image_verification::GATE];
        let gates = self.gates.iter();
        let mut others = gates.filter(|(name, _)| !known.contains(&name.as_str()));
        if others.any(|(_, is_on)| *is_on) {
            warnings.push(Warning {
                field: "featureGates".to_owned(),
                text: "not supported: there is no feature gate but MemoryQoS and \
                       KubeletEnsureSecretPulledImages",
            });
        }
        if let Some(factor) = self.factor
            && !(factor > 0.0 && factor <= 1.0)
        {
            let reason = format!("{factor}: give more than 0 and at most 1");
            return refused("memoryThrottlingFactor", reason);
        }
        let is_on = self.gates.get(GATE) != Some(&false);
        let field = "memoryReservationPolicy";
        let reserves = match self.policy {
            "" | "None" => false,
            "TieredReservation" if is_on => true,
            "TieredReservation" => {
                let reason = "TieredReservation: needs the feature gate MemoryQoS";
                return refused(field, reason.to_owned());
            }
            other => {
                return refused(field, format!("{other}: give None or TieredReservation"));
            }
        };
        let says_something = is_on && (self.factor.is_some() || reserves);
        config.memory_qos = says_something.then(|| MemoryQos::new(self.factor, reserves));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tests::apply;

    /// Memory QoS, and the fields that are warned of.
    fn applied(body: &str) -> Result<(Option<MemoryQos>, Vec<String>), String> {
        let (config, warnings) = apply(body)?;
        let warned = warnings.into_iter().map(|warning| warning.field);
        Ok((config.memory_qos, warned.collect()))
    }

    #[test]
    fn factor_and_policy_switch_it_on_unless_the_gate_is_off() {
        let on = |factor, reserves| Some(MemoryQos::new(factor, reserves));
        for (body, expected) in [
            ("", None),
            ("featureGates: {MemoryQoS: true}", None),
            ("memoryThrottlingFactor: 0.9", on(Some(0.9), false)),
            ("memoryThrottlingFactor: 1", on(Some(1.0), false)),
            ("memoryReservationPolicy: None", None),
            ("memoryReservationPolicy: ''", None),
            ("memoryReservationPolicy: TieredReservation", on(None, true)),
            (
                "featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.5\n\
                 memoryReservationPolicy: TieredReservation",
                on(Some(0.5), true),
            ),
            (
                "featureGates: {MemoryQoS: false}\nmemoryThrottlingFactor: 0.5",
                None,
            ),
        ] {
            assert_eq!(applied(body), Ok((expected, Vec::new())), "{body}");
        }
        for factor in ["0", "-1", "1.1"] {
            let body = format!("memoryThrottlingFactor: {factor}");
            assert!(applied(&body).is_err(), "{factor}");
        }
        for body in [
            "memoryReservationPolicy: HardReservation",
            "featureGates: {MemoryQoS: false}\nmemoryReservationPolicy: TieredReservation",
        ] {
            let error = applied(body).unwrap_err();
            assert!(error.contains("memoryReservationPolicy"), "{error}");
        }
    }

    #[test]
    fn other_gates_are_warned_of_when_they_are_on() {
        let (_, warned) = applied("featureGates: {Other: false}").unwrap();
        assert_eq!(warned, Vec::<String>::new());
        let (_, warned) = applied("featureGates: {Other: true, MemoryQoS: true}").unwrap();
        assert_eq!(warned, ["featureGates"]);
    }
}
