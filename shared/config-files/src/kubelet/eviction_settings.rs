//! The fields that say when pods are evicted. What the thresholds mean is said by the
//! crate `eviction`, which also refuses those that cannot be.

use std::collections::BTreeMap;
use std::time::Duration;

use node_config::EvictionSettings;

use super::duration::{self, GoDuration};
use super::problem::KubeletConfigError;
use super::settings::{Applied, Settings, refused, set_duration};

impl Settings {
    /// Hard thresholds replace all defaults, unless `mergeDefaultEvictionSettings` fills
    /// in those that are not given.
    pub(super) fn apply_eviction(&self, eviction: &mut EvictionSettings) -> Applied {
        if let Some(hard) = &self.eviction_hard {
            let merges = self.merge_default_eviction_settings == Some(true);
            let mut all = match merges {
                true => EvictionSettings::default_hard(),
                false => BTreeMap::new(),
            };
            all.extend(hard.clone());
            eviction.hard = all;
        }
        eviction.soft.clone_from(&self.eviction_soft);
        let graces = self.eviction_soft_grace_period.iter();
        eviction.soft_grace = graces
            .map(|(signal, GoDuration(grace))| (signal.clone(), *grace))
            .collect();
        eviction
            .minimum_reclaim
            .clone_from(&self.eviction_minimum_reclaim);
        set_duration(
            &mut eviction.pressure_transition_period,
            self.eviction_pressure_transition_period,
        );
        // Zero and less leave each pod its own grace, as in the kubelet.
        let seconds = u64::try_from(self.eviction_max_pod_grace_period).unwrap_or(0);
        eviction.max_pod_grace = (seconds > 0).then(|| Duration::from_secs(seconds));
        if let Some(limits) = self.local_storage_capacity_isolation {
            eviction.local_storage_limits = limits;
        }
        self.apply_storage_look_period(eviction)?;
        match ::eviction::thresholds(eviction) {
            Ok(_) => Ok(()),
            Err(error) => Err(KubeletConfigError::Value {
                field: error.field,
                reason: error.reason,
            }),
        }
    }

    /// A negative period switches measuring off.
    fn apply_storage_look_period(&self, eviction: &mut EvictionSettings) -> Applied {
        let field = "volumeStatsAggPeriod";
        let text = &self.volume_stats_agg_period;
        let (is_off, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        if text.is_empty() && !is_off {
            return Ok(());
        }
        match duration::parse(text) {
            Err(reason) => return refused(field, reason),
            Ok(period) if period.is_zero() => {}
            Ok(_) if is_off => eviction.storage_look_period = None,
            Ok(period) => eviction.storage_look_period = Some(period),
        }
        Ok(())
    }
}
