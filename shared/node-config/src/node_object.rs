//! How the Node is registered at the API server, and how often it is reported.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of the Node object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeObjectSettings {
    /// `registerNode`, true by default: without it somebody else creates the Node.
    pub register: bool,
    /// `registerWithTaints`: the taints that it is created with.
    pub taints: Vec<NodeTaint>,
    /// `providerID`; empty without one.
    pub provider_id: String,
    /// `nodeStatusUpdateFrequency`, 10 s by default: how often the node is looked at.
    pub status_update_frequency: Duration,
    /// `nodeStatusReportFrequency`, 5 min by default: how often a status is sent that says
    /// nothing new.
    pub status_report_frequency: Duration,
    /// `nodeLeaseDurationSeconds`, 40 by default. It is renewed four times as often.
    pub lease_seconds: u32,
    /// `nodeStatusMaxImages`, 50 by default; absent for all of them.
    pub max_images: Option<u32>,
}

impl Default for NodeObjectSettings {
    fn default() -> Self {
        Self {
            register: true,
            taints: Vec::new(),
            provider_id: String::new(),
            status_update_frequency: Duration::from_secs(10),
            status_report_frequency: Duration::from_secs(300),
            lease_seconds: 40,
            max_images: Some(50),
        }
    }
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTaint {
    /// A label's key.
    pub key: String,
    /// Empty without one.
    #[serde(default)]
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaintEffect {
    /// None is scheduled here.
    NoSchedule,
    /// Others are scheduled here first.
    PreferNoSchedule,
    /// None may run here.
    NoExecute,
}

/// As the API has it.
impl fmt::Display for TaintEffect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::PreferNoSchedule => "PreferNoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        })
    }
}

/// Not a taint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no taint like key=value:NoSchedule, key:NoExecute")]
pub struct TaintError(pub String);

/// From `key=value:effect` or `key:effect`, as the kubelet's flag has them.
impl FromStr for NodeTaint {
    type Err = TaintError;

    fn from_str(text: &str) -> Result<NodeTaint, TaintError> {
        let refused = || TaintError(text.to_owned());
        let (label, effect) = text.rsplit_once(':').ok_or_else(refused)?;
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        let all = [
            TaintEffect::NoSchedule,
            TaintEffect::PreferNoSchedule,
            TaintEffect::NoExecute,
        ];
        let effect = all.into_iter().find(|known| known.to_string() == effect);
        let effect = effect.filter(|_| !key.is_empty()).ok_or_else(refused)?;
        Ok(NodeTaint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taint_is_a_key_a_value_and_a_known_effect() {
        for (text, expected) in [
            ("a=b:NoSchedule", Some(("a", "b", TaintEffect::NoSchedule))),
            ("a:NoExecute", Some(("a", "", TaintEffect::NoExecute))),
            ("a=b", None),
            ("=b:NoSchedule", None),
            ("a=b:Never", None),
        ] {
            let found = text.parse::<NodeTaint>().ok();
            let expected = expected.map(|(key, value, effect)| NodeTaint {
                key: key.to_owned(),
                value: value.to_owned(),
                effect,
            });
            assert_eq!(found, expected, "{text}");
        }
    }
}
