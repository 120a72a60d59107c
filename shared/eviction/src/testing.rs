//! Thresholds and pods for the tests of this crate.

use std::collections::BTreeMap;
use std::time::Duration;

use pod::Quantity;

use crate::candidate::{Candidate, ContainerFacts};
use crate::signal::Signal;
use crate::threshold::{Amount, Threshold};
use crate::usage::{ContainerUsage, PodUsage};

pub(crate) fn hard(signal: Signal, amount: i64) -> Threshold {
    Threshold {
        signal,
        value: Amount::Absolute(amount),
        grace: Duration::ZERO,
        minimum_reclaim: None,
    }
}

pub(crate) fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

/// A pod with one container `c` that requests nothing.
pub(crate) fn candidate(uid: &str) -> Candidate {
    Candidate {
        uid: uid.to_owned(),
        priority: 0,
        is_spared: false,
        memory_request: 0,
        storage_request: 0,
        storage_limit: None,
        containers: vec![ContainerFacts {
            name: "c".to_owned(),
            memory_request: Quantity::ZERO,
            storage_request: Quantity::ZERO,
            storage_limit: None,
        }],
        empty_dirs: Vec::new(),
    }
}

/// What container `c` uses.
pub(crate) fn usage(of_c: ContainerUsage) -> PodUsage {
    PodUsage {
        containers: BTreeMap::from([("c".to_owned(), of_c)]),
        ..PodUsage::default()
    }
}
