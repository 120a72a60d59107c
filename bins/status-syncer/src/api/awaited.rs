//! The reports of pods that the API server has not taken yet, for people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use bulkhead_api::v1::report_request::Report;
use ipc::CallError;
use ipc::limits::truncate;
use tonic::Code;

/// Most that are kept. A pod that vanishes before its report is taken leaves one behind.
const MAX_AWAITED: usize = 2048;

/// Longest reason.
const MAX_REASON_BYTES: usize = 512;

/// By namespace and name, which a static pod and its mirror share. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AwaitedReports(Arc<Mutex<BTreeMap<(String, String), Awaited>>>);

#[derive(Debug)]
struct Awaited {
    what: &'static str,
    /// Why the last try failed; empty before it has.
    reason: String,
}

/// A report of a pod, and how people call it.
pub(crate) fn of_pod(report: &Report) -> Option<(v1::PodReference, &'static str)> {
    match report {
        Report::PodStatus(patch) => Some((patch.pod.clone()?, "its status")),
        Report::PodEnd(pod) => Some((pod.clone(), "its last DELETE")),
        _ => None,
    }
}

/// Why a report was not taken; none where it was, or where its pod is gone.
fn failure(result: &Result<v1::ReportResponse, CallError>) -> Option<String> {
    match result {
        Ok(answer) if answer.code < 300 || answer.code == 404 => None,
        Ok(answer) => {
            let body = String::from_utf8_lossy(&answer.body);
            Some(format!("the API server answers {}: {body}", answer.code))
        }
        Err(error) if error.code() == Some(Code::NotFound) => None,
        Err(error) => Some(telemetry::chain(error)),
    }
}

impl AwaitedReports {
    /// A report is made.
    pub(crate) fn begins(&self, pod: &v1::PodReference, what: &'static str) {
        let mut awaited = self.lock();
        let key = (pod.namespace.clone(), pod.name.clone());
        if awaited.get(&key).is_some_and(|known| known.what == what) {
            return;
        }
        while awaited.len() >= MAX_AWAITED {
            awaited.pop_first();
        }
        let reason = String::new();
        awaited.insert(key, Awaited { what, reason });
    }

    /// This came of it.
    pub(crate) fn ends(
        &self,
        pod: &v1::PodReference,
        result: &Result<v1::ReportResponse, CallError>,
    ) {
        let mut awaited = self.lock();
        let key = (pod.namespace.clone(), pod.name.clone());
        match failure(result) {
            None => drop(awaited.remove(&key)),
            Some(mut reason) => {
                truncate(&mut reason, MAX_REASON_BYTES);
                if let Some(known) = awaited.get_mut(&key) {
                    known.reason = reason;
                }
            }
        }
    }

    /// What of a pod is awaited; empty when nothing is.
    pub(crate) fn text(&self, namespace: &str, name: &str) -> String {
        let awaited = self.lock();
        match awaited.get(&(namespace.to_owned(), name.to_owned())) {
            None => String::new(),
            Some(Awaited { what, reason }) if reason.is_empty() => format!("{what} is on its way"),
            Some(Awaited { what, reason }) => format!("{what} is not taken yet: {reason}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Awaited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u32) -> Result<v1::ReportResponse, CallError> {
        let body = b"no".to_vec();
        Ok(v1::ReportResponse { code, body })
    }

    #[test]
    fn a_report_is_awaited_until_it_is_taken_or_its_pod_is_gone() {
        let pod = v1::PodReference {
            namespace: "d".to_owned(),
            name: "web".to_owned(),
            ..v1::PodReference::default()
        };
        let reports = AwaitedReports::default();
        for (what, code, before, after) in [
            ("its status", 200, "its status is on its way", ""),
            (
                "its status",
                422,
                "its status is on its way",
                "its status is not taken yet: the API server answers 422: no",
            ),
            (
                "its status",
                200,
                "its status is not taken yet: the API server answers 422: no",
                "",
            ),
            ("its last DELETE", 404, "its last DELETE is on its way", ""),
        ] {
            reports.begins(&pod, what);
            assert_eq!(reports.text("d", "web"), before);
            reports.ends(&pod, &answered(code));
            assert_eq!(reports.text("d", "web"), after);
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let reports = AwaitedReports::default();
        for number in 0..=MAX_AWAITED {
            let pod = v1::PodReference {
                name: number.to_string(),
                ..v1::PodReference::default()
            };
            reports.begins(&pod, "its status");
        }
        assert_eq!(reports.lock().len(), MAX_AWAITED);
    }
}
