//! status-syncer: turns what the worker pool observes, and what the probes say,
//! into PodStatus, and keeps the events.

pub mod status;
pub mod verdicts;
