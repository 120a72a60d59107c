//! What this machine does not give, and what the node does not run without.

use std::collections::BTreeSet;

use config_files::bulkhead::Protection;

use crate::failure::Failure;

/// Something that this machine does not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Degradation {
    /// What it concerns.
    pub(crate) lacks: BTreeSet<Protection>,
    /// What is missing and why, for people.
    pub(crate) text: String,
}

impl Degradation {
    pub(crate) fn of(lacks: Protection, text: String) -> Degradation {
        Degradation {
            lacks: BTreeSet::from([lacks]),
            text,
        }
    }
}

/// Refuses a machine that lacks something of what the node does not run without.
pub(crate) fn check_minimum(
    degradations: &[Degradation],
    minimum: &BTreeSet<Protection>,
) -> Result<(), Failure> {
    for degradation in degradations {
        if let Some(protection) = degradation.lacks.intersection(minimum).next() {
            return Err(Failure::Confinement {
                protection: *protection,
                reason: degradation.text.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_what_is_asked_for_and_missing_is_fatal() {
        let all = Protection::ALL;
        for missing in all {
            let degradations = [Degradation::of(missing, "no".to_owned())];
            for asked in all {
                let refused = check_minimum(&degradations, &BTreeSet::from([asked])).is_err();
                assert_eq!(
                    refused,
                    asked == missing,
                    "{asked} asked, {missing} missing"
                );
            }
            assert!(check_minimum(&degradations, &BTreeSet::new()).is_ok());
            assert!(check_minimum(&degradations, &BTreeSet::from(all)).is_err());
        }
        assert!(check_minimum(&[], &BTreeSet::from(all)).is_ok());
    }
}
