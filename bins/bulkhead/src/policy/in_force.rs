//! The node policy that pod-worker-pool has in force, and the pods that it refuses.

use bulkhead_api::v1;
use bulkhead_api::v1::node_policy_client::NodePolicyClient;
use clock::UnixNanos;
use topology::Process;

use crate::connection::Connection;
use crate::escape::plain;
use crate::failure::Failure;
use crate::words::timestamp;

/// Asks pod-worker-pool.
pub(super) async fn report(connection: &Connection) -> Result<v1::PolicyReport, Failure> {
    let process = Process::PodWorkerPool;
    let client = NodePolicyClient::new(connection.channel(process)?);
    connection
        .call(process, || {
            let mut client = client.clone();
            async move { client.get_policy(v1::GetPolicyRequest {}).await }
        })
        .await
}

/// Where the policy comes from, and what it does to pods now.
pub(super) fn told(report: &v1::PolicyReport) -> String {
    let origin = match report.origin.as_str() {
        "file" if report.problem.is_empty() => "the file",
        "file" | "last good file" => "the file as it was when it was last good",
        "no file" => "no file: baseline for every source",
        "nothing" => "none: no pod is started until the file is good",
        other => other,
    };
    let since = timestamp(UnixNanos(report.since_unix_nanos));
    let mut text = format!("in force   {} since {since}\n", plain(origin));
    if !report.problem.is_empty() {
        text += &format!("problem    {}\n", plain(&report.problem));
    }
    for finding in &report.findings {
        let word = match finding.refused {
            true => "refused",
            false => "audited",
        };
        let pod = finding.pod.clone().unwrap_or_default();
        let name = plain(&format!("{}/{}", pod.namespace, pod.name));
        text += &format!("{word:<10} {name}: {}\n", plain(&finding.message));
    }
    let all = report.refused_pods.saturating_add(report.audited_pods);
    let told = u32::try_from(report.findings.len()).unwrap_or(u32::MAX);
    if all > told {
        text += &format!("and        {} more pods\n", all - told);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_file_and_refused_pods_are_told() {
        let report = v1::PolicyReport {
            origin: "last good file".to_owned(),
            problem: "line 2: hostNetwork is no number".to_owned(),
            refused_pods: 3,
            findings: vec![v1::PolicyFinding {
                pod: Some(v1::PodReference {
                    namespace: "default".to_owned(),
                    name: "web\u{1b}[2J".to_owned(),
                    ..v1::PodReference::default()
                }),
                refused: true,
                message: "hostNetwork is not allowed".to_owned(),
            }],
            ..v1::PolicyReport::default()
        };
        let told = told(&report);
        for part in [
            "in force   the file as it was when it was last good since 1970-01-01T00:00:00Z",
            "problem    line 2: hostNetwork is no number",
            ": hostNetwork is not allowed",
            "and        2 more pods",
        ] {
            assert!(told.contains(part), "{part:?} in {told:?}");
        }
        assert!(!told.contains('\u{1b}'), "names cannot steer a terminal");
    }
}
