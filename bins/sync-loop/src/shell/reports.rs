//! What status-syncer is still to be told: the newest of each, one report at a
//! time. Pure; `status_syncer` does the sending.
//!
//! A rejection that status-syncer has no room for holds nothing else up: room is made by
//! what waits behind it, the list of the pods that there are.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use bulkhead_api::v1;
use pod::PodSource;

/// Events that wait; the oldest go first when there are more.
const MAX_EVENTS: usize = 1024;

/// Events in one report: 128 of at most about 4 KiB are half a message.
const EVENTS_PER_REPORT: usize = 128;

/// Verdicts in one report: 256 of at most 2 KiB are half a message.
const VERDICTS_PER_REPORT: usize = 256;

/// Verdicts that wait: far more than a node has containers; the prober tells the
/// others again when they change.
const MAX_VERDICTS: usize = 16_384;

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Report {
    /// A pod was rejected.
    Rejection(v1::RejectPodRequest),
    /// What probes found.
    Verdicts(v1::SetProbeVerdictsRequest),
    /// What happened.
    Events(v1::ReportEventsRequest),
    /// How pleg and the node are.
    Health(v1::SetNodeHealthRequest),
    /// Which pods there are.
    Known(v1::RemoveOrphanedStatusesRequest),
}

/// Everything that waits. What was taken stays until it is done.
#[derive(Debug, Default)]
pub(super) struct Reports {
    rejections: BTreeMap<String, v1::RejectPodRequest>,
    /// The uid of the rejection that was put back last: those after it are tried before it.
    put_back: Option<String>,
    verdicts: BTreeMap<(String, i32), v1::ProbeVerdict>,
    events: VecDeque<v1::Event>,
    health: Option<v1::SetNodeHealthRequest>,
    known: Option<v1::RemoveOrphanedStatusesRequest>,
}

impl Reports {
    pub(super) fn reject(&mut self, rejection: v1::RejectPodRequest) {
        let uid = rejection_uid(&rejection);
        self.rejections.insert(uid, rejection);
    }

    pub(super) fn set_verdicts(&mut self, verdicts: Vec<v1::ProbeVerdict>) {
        for verdict in verdicts {
            let key = (verdict.container_id.clone(), verdict.kind);
            if self.verdicts.len() < MAX_VERDICTS || self.verdicts.contains_key(&key) {
                self.verdicts.insert(key, verdict);
            }
        }
    }

    pub(super) fn report(&mut self, event: v1::Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// How pleg and the node are now.
    pub(super) fn set_health(&mut self, health: v1::SetNodeHealthRequest) {
        self.health = Some(health);
    }

    /// Pods that were known at a time since the boot of the machine. A rejection of another
    /// is of no interest any more.
    pub(super) fn retain(
        &mut self,
        known: Vec<String>,
        delivered: &[PodSource],
        listed_at: Duration,
    ) {
        self.rejections.retain(|uid, _| known.contains(uid));
        self.known = Some(v1::RemoveOrphanedStatusesRequest {
            known_pod_uids: known,
            delivered_sources: delivered.iter().map(ToString::to_string).collect(),
            listed_at_nanos_since_boot: u64::try_from(listed_at.as_nanos()).ok(),
        });
    }

    /// The next report.
    pub(super) fn next(&self) -> Option<Report> {
        let rejection = || self.next_rejection().cloned().map(Report::Rejection);
        let other = || self.next_other();
        match self.put_back {
            None => rejection().or_else(other),
            Some(_) => other().or_else(rejection),
        }
    }

    fn next_rejection(&self) -> Option<&v1::RejectPodRequest> {
        let after = self.put_back.as_ref().and_then(|last| {
            let after = (Bound::Excluded(last), Bound::Unbounded);
            self.rejections.range::<String, _>(after).next()
        });
        let next = after.or_else(|| self.rejections.first_key_value());
        next.map(|(_, rejection)| rejection)
    }

    fn next_other(&self) -> Option<Report> {
        if !self.verdicts.is_empty() {
            let verdicts = self
                .verdicts
                .values()
                .take(VERDICTS_PER_REPORT)
                .cloned()
                .collect();
            return Some(Report::Verdicts(v1::SetProbeVerdictsRequest { verdicts }));
        }
        if !self.events.is_empty() {
            let events = self
                .events
                .iter()
                .take(EVENTS_PER_REPORT)
                .cloned()
                .collect();
            return Some(Report::Events(v1::ReportEventsRequest { events }));
        }
        let known = self.known.clone().map(Report::Known);
        known.or_else(|| self.health.map(Report::Health))
    }

    /// A report was not taken, and may be later. Rejections are then behind all others, and
    /// this one behind the other rejections.
    pub(super) fn put_back(&mut self, report: &Report) {
        if let Report::Rejection(rejection) = report {
            self.put_back = Some(rejection_uid(rejection));
        }
    }

    /// A report was taken, or can never be. What is newer than it still waits.
    pub(super) fn done(&mut self, report: &Report) {
        match report {
            Report::Rejection(rejection) => {
                self.put_back = None;
                let uid = rejection_uid(rejection);
                if self.rejections.get(&uid) == Some(rejection) {
                    self.rejections.remove(&uid);
                }
            }
            Report::Verdicts(request) => {
                for verdict in &request.verdicts {
                    let key = (verdict.container_id.clone(), verdict.kind);
                    if self.verdicts.get(&key) == Some(verdict) {
                        self.verdicts.remove(&key);
                    }
                }
            }
            Report::Events(request) => {
                for event in &request.events {
                    // The oldest may have been dropped meanwhile for want of room.
                    if self.events.front() == Some(event) {
                        self.events.pop_front();
                    }
                }
            }
            Report::Health(request) => {
                if self.health.as_ref() == Some(request) {
                    self.health = None;
                }
            }
            Report::Known(request) => {
                if self.known.as_ref() == Some(request) {
                    self.known = None;
                }
            }
        }
    }
}

pub(super) fn rejection_uid(rejection: &v1::RejectPodRequest) -> String {
    let reference = rejection
        .pod
        .as_ref()
        .and_then(|pod| pod.reference.as_ref());
    reference
        .map(|reference| reference.uid.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str) -> v1::Event {
        v1::Event {
            reason: reason.into(),
            ..v1::Event::default()
        }
    }

    fn verdict(container_id: &str, message: &str) -> v1::ProbeVerdict {
        v1::ProbeVerdict {
            container_id: container_id.into(),
            message: message.into(),
            ..v1::ProbeVerdict::default()
        }
    }

    fn rejection(uid: &str, reason: &str) -> v1::RejectPodRequest {
        let reference = v1::PodReference {
            uid: uid.into(),
            ..v1::PodReference::default()
        };
        let pod = v1::Pod {
            reference: Some(reference),
            ..v1::Pod::default()
        };
        v1::RejectPodRequest {
            pod: Some(pod),
            reason: reason.into(),
            message: String::new(),
        }
    }

    #[test]
    fn a_report_that_is_not_done_is_made_again() {
        let mut reports = Reports::default();
        reports.reject(rejection("u", "r"));
        let first = reports.next().unwrap();
        assert_eq!(reports.next(), Some(first.clone()));
        reports.done(&first);
        assert_eq!(reports.next(), None);
    }

    #[test]
    fn a_rejection_that_finds_no_room_holds_nothing_up() {
        let mut reports = Reports::default();
        reports.retain(vec!["a".into(), "b".into()], &[], Duration::ZERO);
        reports.set_health(v1::SetNodeHealthRequest::default());
        reports.reject(rejection("a", "r"));
        reports.reject(rejection("b", "r"));
        reports.set_verdicts(vec![verdict("c", "m")]);
        reports.report(event("e"));
        let mut told = Vec::new();
        // status-syncer has room for no rejection.
        while let Some(report) = reports.next() {
            told.push(match &report {
                Report::Rejection(rejection) => rejection_uid(rejection),
                Report::Verdicts(_) => "verdicts".to_owned(),
                Report::Events(_) => "events".to_owned(),
                Report::Health(_) => "health".to_owned(),
                Report::Known(_) => "known".to_owned(),
            });
            match report {
                Report::Rejection(_) => reports.put_back(&report),
                _ => reports.done(&report),
            }
            if told.len() == 8 {
                break;
            }
        }
        let expected = ["a", "verdicts", "events", "known", "health", "b", "a", "b"];
        assert_eq!(told, expected);
        // It has room again.
        reports.set_verdicts(vec![verdict("c", "m")]);
        reports.done(&Report::Rejection(rejection("a", "r")));
        let next = reports.next();
        assert_eq!(next, Some(Report::Rejection(rejection("b", "r"))));
    }

    #[test]
    fn what_is_newer_than_a_report_still_waits() {
        let mut reports = Reports::default();
        reports.set_verdicts(vec![verdict("a", "old"), verdict("b", "same")]);
        let sent = reports.next().unwrap();
        reports.set_verdicts(vec![verdict("a", "new")]);
        reports.done(&sent);
        let Some(Report::Verdicts(request)) = reports.next() else {
            panic!("nothing")
        };
        assert_eq!(request.verdicts, [verdict("a", "new")]);

        let mut reports = Reports::default();
        reports.retain(vec!["a".into()], &[], Duration::from_secs(1));
        let sent = reports.next().unwrap();
        reports.retain(vec!["a".into()], &[], Duration::from_secs(2));
        reports.done(&sent);
        let Some(Report::Known(request)) = reports.next() else {
            panic!("nothing")
        };
        assert_eq!(request.listed_at_nanos_since_boot, Some(2_000_000_000));
    }

    #[test]
    fn events_that_come_during_a_report_wait_although_old_ones_are_dropped() {
        let mut reports = Reports::default();
        for index in 0..MAX_EVENTS {
            reports.report(event(&index.to_string()));
        }
        let Some(Report::Events(sent)) = reports.next() else {
            panic!("no events")
        };
        assert_eq!(sent.events.len(), EVENTS_PER_REPORT);
        reports.report(event("one more"));
        reports.report(event("and one more"));
        reports.done(&Report::Events(sent));
        let Some(Report::Events(next)) = reports.next() else {
            panic!("no events")
        };
        assert_eq!(next.events[0].reason, EVENTS_PER_REPORT.to_string());
    }

    #[test]
    fn the_rejection_of_a_pod_that_is_gone_is_dropped() {
        let mut reports = Reports::default();
        reports.reject(rejection("gone", "r"));
        reports.reject(rejection("here", "r"));
        reports.retain(vec!["here".into()], &[], Duration::ZERO);
        assert_eq!(
            reports.next(),
            Some(Report::Rejection(rejection("here", "r")))
        );
    }
}
