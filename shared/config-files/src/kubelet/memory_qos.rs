//! Memory QoS: the feature gate of that name and its factor.

use std::collections::BTreeMap;

use node_config::{MemoryQos, NodeConfig};

use super::problem::{Applied, Warning, refused};

/// The kubelet's `memoryThrottlingFactor` where none is given.
const DEFAULT_FACTOR: f64 = 0.9;

/// The feature gate that switches it on.
const GATE: &str = "MemoryQoS";

/// What a configuration gives of it.
pub(super) struct Given<'a> {
    pub(super) factor: Option<f64>,
    pub(super) gates: &'a BTreeMap<String, bool>,
}

impl Given<'_> {
    pub(super) fn apply(&self, config: &mut NodeConfig, warnings: &mut Vec<Warning>) -> Applied {
        let mut others = self.gates.iter().filter(|(name, _)| *name != GATE);
        if others.any(|(_, is_on)| *is_on) {
            warnings.push(Warning {
                field: "featureGates".to_owned(),
                text: "not supported: there is no feature gate but MemoryQoS",
            });
        }
        let factor = self.factor.unwrap_or(DEFAULT_FACTOR);
        if !(factor > 0.0 && factor <= 1.0) {
            let reason = format!("{factor}: give more than 0 and at most 1");
            return refused("memoryThrottlingFactor", reason);
        }
        let is_on = self.gates.get(GATE) == Some(&true);
        config.memory_qos = is_on.then(|| MemoryQos::new(factor));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use node_config::DirectoryLayout;

    use super::*;
    use crate::kubelet::KubeletConfig;

    /// Memory QoS, and the fields that are warned of.
    fn applied(body: &str) -> Result<(Option<MemoryQos>, Vec<String>), String> {
        let text = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{body}"
        );
        let directories = DirectoryLayout {
            run_dir: "/r".into(),
            state_dir: "/s".into(),
            root_dir: "/k".into(),
            log_dir: "/l".into(),
            bin_dir: "/b".into(),
        };
        let mut config = NodeConfig::with_defaults("n", directories);
        let read =
            KubeletConfig::parse(Path::new("/c.yaml"), &text).map_err(|it| it.to_string())?;
        let warnings = read
            .apply(&mut config, 2)
            .map_err(|error| error.to_string())?;
        let warned = warnings.into_iter().map(|warning| warning.field);
        Ok((config.memory_qos, warned.collect()))
    }

    #[test]
    fn the_gate_switches_it_on_and_the_factor_tunes_it() {
        let on = |factor| Some(MemoryQos::new(factor));
        for (body, expected) in [
            ("", None),
            ("memoryThrottlingFactor: 0.9", None),
            ("featureGates: {MemoryQoS: false}", None),
            ("featureGates: {MemoryQoS: true}", on(0.9)),
            (
                "featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.5",
                on(0.5),
            ),
            (
                "featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 1",
                on(1.0),
            ),
        ] {
            assert_eq!(applied(body), Ok((expected, Vec::new())), "{body}");
        }
        for factor in ["0", "-1", "1.1"] {
            let body = format!("memoryThrottlingFactor: {factor}");
            assert!(applied(&body).is_err(), "{factor}");
        }
    }

    #[test]
    fn other_gates_are_warned_of_when_they_are_on() {
        let (_, warned) = applied("featureGates: {Other: false}").unwrap();
        assert_eq!(warned, Vec::<String>::new());
        let (qos, warned) = applied("featureGates: {Other: true, MemoryQoS: true}").unwrap();
        assert_eq!(warned, ["featureGates"]);
        assert!(qos.is_some());
    }
}
