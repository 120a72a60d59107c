//! The fields of the Node object.

use std::time::Duration;

use node_config::{NodeObjectSettings, NodeTaint};
use serde_json::Value;

use super::duration::GoDuration;
use super::problem::{Applied, refused};

/// What the file says.
pub(super) struct Given<'a> {
    pub(super) register: Option<bool>,
    pub(super) taints: &'a [Value],
    pub(super) provider_id: &'a str,
    pub(super) status_update_frequency: Option<GoDuration>,
    pub(super) status_report_frequency: Option<GoDuration>,
    pub(super) lease_seconds: i32,
    pub(super) max_images: Option<i32>,
}

impl Given<'_> {
    pub(super) fn apply(self, settings: &mut NodeObjectSettings) -> Applied {
        settings.register = self.register.unwrap_or(settings.register);
        self.provider_id.clone_into(&mut settings.provider_id);
        for (index, taint) in self.taints.iter().enumerate() {
            match serde_json::from_value::<NodeTaint>(taint.clone()) {
                Ok(taint) if !taint.key.is_empty() => settings.taints.push(taint),
                _ => {
                    let field = format!("registerWithTaints[{index}]");
                    let reason = "give key, value, and as effect NoSchedule, PreferNoSchedule or \
                                  NoExecute";
                    return refused(&field, reason);
                }
            }
        }
        let given = |frequency: Option<GoDuration>| {
            let duration = frequency.map(|GoDuration(duration)| duration);
            duration.filter(|duration| !duration.is_zero())
        };
        let update = given(self.status_update_frequency);
        let report = given(self.status_report_frequency).or(update);
        if let Some(update) = update {
            settings.status_update_frequency = update.max(Duration::from_secs(1));
        }
        settings.status_report_frequency = report.unwrap_or(settings.status_report_frequency);
        match u32::try_from(self.lease_seconds) {
            Ok(0) => {}
            Ok(seconds) => settings.lease_seconds = seconds,
            Err(_) => return refused("nodeLeaseDurationSeconds", "it is negative"),
        }
        match self.max_images {
            None => {}
            Some(-1) => settings.max_images = None,
            Some(count) => match u32::try_from(count) {
                Ok(count) => settings.max_images = Some(count),
                Err(_) => return refused("nodeStatusMaxImages", "give -1 for no limit"),
            },
        }
        Ok(())
    }
}
