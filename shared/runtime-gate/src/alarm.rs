//! Alarms: a request that the gate stopped, or let through because the policy only
//! audits. Each is said once, so that a caller who tries again fills no log.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use pod::PodIdentity;

/// Alarms that are remembered as said. Beyond it all are forgotten and may be said
/// again.
const MAX_REMEMBERED: usize = 1024;

/// Says alarms once.
#[derive(Debug, Default)]
pub(crate) struct Alarms(Mutex<BTreeSet<(String, String)>>);

impl Alarms {
    /// A request was refused.
    pub(crate) fn refused(&self, method: &'static str, pod_uid: &str, reason: &str) {
        if self.is_news(pod_uid, reason) {
            tracing::error!(
                pod_uid,
                method,
                reason,
                "a request to the runtime was refused: it asks for more than its pod may have"
            );
        }
    }

    /// A request was let through that an enforced policy would refuse.
    pub(crate) fn let_through(&self, pod: &PodIdentity, reason: &str) {
        if self.is_news(pod.uid(), reason) {
            tracing::warn!(%pod, reason, "let through because the policy only audits");
        }
    }

    fn is_news(&self, pod_uid: &str, reason: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MAX_REMEMBERED {
            said.clear();
        }
        said.insert((pod_uid.to_owned(), reason.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alarm_is_news_once() {
        let alarms = Alarms::default();
        assert!(alarms.is_news("u", "a"));
        assert!(!alarms.is_news("u", "a"));
        assert!(alarms.is_news("u", "b"));
        assert!(alarms.is_news("v", "a"));
    }
}
