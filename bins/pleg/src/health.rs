//! Whether relisting works. Being unhealthy is shown and stops nothing: workers
//! read the runtime themselves, and this process only rings doorbells.

use std::time::Duration;

/// Without a successful relist for so long, the PLEG is unhealthy (the kubelet's
/// `genericPlegRelistThreshold`).
pub(crate) const UNHEALTHY_AFTER: Duration = Duration::from_secs(3 * 60);

/// The verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// A relist succeeded not long ago.
    Healthy,
    /// None ever did.
    NeverRelisted,
    /// None did for [`UNHEALTHY_AFTER`].
    Stale,
}

impl Health {
    /// The verdict, given how long ago the last successful relist was asked for.
    #[must_use]
    pub(crate) fn assess(since_last_relist: Option<Duration>) -> Health {
        match since_last_relist {
            None => Health::NeverRelisted,
            Some(since) if since > UNHEALTHY_AFTER => Health::Stale,
            Some(_) => Health::Healthy,
        }
    }

    /// What is wrong, for people; empty when nothing is.
    #[must_use]
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Health::Healthy => "",
            Health::NeverRelisted => "no relist has succeeded yet",
            Health::Stale => "no relist has succeeded for more than 3 minutes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_unhealthy_before_the_first_relist_and_after_the_threshold() {
        let just = UNHEALTHY_AFTER + Duration::from_nanos(1);
        for (since, health) in [
            (None, Health::NeverRelisted),
            (Some(Duration::ZERO), Health::Healthy),
            (Some(UNHEALTHY_AFTER), Health::Healthy),
            (Some(just), Health::Stale),
        ] {
            assert_eq!(Health::assess(since), health);
        }
    }

    #[test]
    fn whatever_is_wrong_has_a_reason() {
        assert_eq!(Health::Healthy.reason(), "");
        assert!(!Health::NeverRelisted.reason().is_empty());
        assert!(!Health::Stale.reason().is_empty());
    }
}
