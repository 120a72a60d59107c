//! The fields that say when pods are evicted. What the thresholds mean is said by the
//! crate `eviction`, which also refuses those that cannot be.

use std::collections::BTreeMap;
use std::time::Duration;

use node_config::EvictionSettings;

use super::duration::{GoDuration, set_duration};
use super::problem::{Applied, refused};

/// The fields as they are given.
pub(super) struct Given<'a> {
    pub(super) hard: Option<&'a BTreeMap<String, String>>,
    pub(super) soft: &'a BTreeMap<String, String>,
    pub(super) soft_grace: &'a BTreeMap<String, GoDuration>,
    pub(super) minimum_reclaim: &'a BTreeMap<String, String>,
    pub(super) pressure_transition_period: Option<GoDuration>,
    pub(super) max_pod_grace_seconds: i32,
    pub(super) merges_defaults: bool,
    pub(super) local_storage_limits: Option<bool>,
    pub(super) storage_look_period: &'a str,
}

impl Given<'_> {
    /// Hard thresholds replace all defaults, unless `mergeDefaultEvictionSettings` fills
    /// in those that are not given.
    pub(super) fn apply(&self, eviction: &mut EvictionSettings) -> Applied {
        if let Some(hard) = self.hard {
            let mut all = match self.merges_defaults {
                true => EvictionSettings::default_hard(),
                false => BTreeMap::new(),
            };
            all.extend(hard.clone());
            eviction.hard = all;
        }
        eviction.soft.clone_from(self.soft);
        let graces = self.soft_grace.iter();
        eviction.soft_grace = graces
            .map(|(signal, GoDuration(grace))| (signal.clone(), *grace))
            .collect();
        eviction.minimum_reclaim.clone_from(self.minimum_reclaim);
        set_duration(
            &mut eviction.pressure_transition_period,
            self.pressure_transition_period,
        );
        // Zero and less have it go at once, as in the kubelet.
        let seconds = u64::try_from(self.max_pod_grace_seconds).unwrap_or(0);
        eviction.max_pod_grace = (seconds > 0).then(|| Duration::from_secs(seconds));
        if let Some(limits) = self.local_storage_limits {
            eviction.local_storage_limits = limits;
        }
        self.apply_storage_look_period(eviction)?;
        match ::eviction::thresholds(eviction) {
            Ok(_) => Ok(()),
            Err(error) => refused(&error.field, error.reason),
        }
    }

    /// A negative period switches measuring off.
    fn apply_storage_look_period(&self, eviction: &mut EvictionSettings) -> Applied {
        let field = "volumeStatsAggPeriod";
        let text = self.storage_look_period;
        let (is_off, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if text.is_empty() && !is_off {
            return Ok(());
        }
        match clock::parse_go_duration(text) {
            Err(reason) => return refused(field, reason),
            Ok(period) if period.is_zero() => {}
            Ok(_) if is_off => eviction.storage_look_period = None,
            Ok(period) => eviction.storage_look_period = Some(period),
        }
        Ok(())
    }
}
