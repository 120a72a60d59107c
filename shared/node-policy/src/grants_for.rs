//! The smallest grants that given pods need beyond a policy.

use std::collections::BTreeMap;

use pod::Pod;

use crate::grant::Grant;
use crate::policy::Policy;
use crate::smallest::{add, grant_without_content};
use crate::subject::Subject;

/// The grants that these pods need beyond a policy, one for each pod. Nothing is in
/// them that a pod did not ask for and was refused. What no grant can allow (a path
/// with `..`) is left out.
#[must_use]
pub fn grants_for(pods: &[(Subject, &Pod)], policy: &Policy) -> Vec<Grant> {
    let mut grants = BTreeMap::new();
    for (subject, pod) in pods {
        let Err(denials) = policy.judge(subject, pod) else {
            continue;
        };
        let Some(empty) = grant_without_content(subject) else {
            continue;
        };
        let key = (subject.source, subject.full_name());
        let grant = grants.entry(key).or_insert(empty);
        for denial in denials {
            add(grant, &denial.refusal.demand, policy.protected());
        }
    }
    let grants = grants.into_values();
    grants.filter(|grant| !grant.gives_nothing()).collect()
}
