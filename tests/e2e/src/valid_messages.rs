//! A message for each method that its server takes for a good one, about what is not there:
//! nothing happens, and what is refused is refused for who asks, not for what is asked.

use anyhow::{Result, bail};
use bulkhead_api::v1;
use bulkhead_api::v1::open_session_request::Session;
use bulkhead_api::v1::report_request::Report;
use pod::{PodDocument, PodSource};
use prost::Message;
use serde_json::json;

/// No pod has it.
const UID: &str = "0c7f1f7e-6a1b-4a53-8d0e-1f0b7a8c9d10";

/// No container has it.
const CONTAINER_ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The message for a method, by its service without the package.
///
/// # Errors
/// When the method is not in the table.
pub fn message(method: &str) -> Result<Vec<u8>> {
    let method = method.trim_start_matches("bulkhead.v1.");
    let (service, name) = method.split_once('/').unwrap_or_default();
    match service {
        "PodWorkers" => pod_workers(name),
        "StatusReports" => status_reports(name),
        "RuntimePods" | "ProbeTargets" => of_observers(name),
        _ => of_readers(name),
    }
}

fn uid() -> String {
    UID.to_owned()
}

fn app() -> String {
    "app".to_owned()
}

fn reference() -> v1::PodReference {
    v1::PodReference {
        uid: uid(),
        namespace: "default".to_owned(),
        name: "nobody".to_owned(),
    }
}

fn pod_workers(name: &str) -> Result<Vec<u8>> {
    Ok(match name {
        "UpdatePod" => v1::UpdatePodRequest {
            r#type: v1::UpdateType::Sync.into(),
            pod: Some(reference()),
            hash: "0".repeat(64),
            ..v1::UpdatePodRequest::default()
        }
        .encode_to_vec(),
        "SyncKnownPods" => v1::SyncKnownPodsRequest {
            desired_pod_uids: vec![uid()],
            delivered_sources: Vec::new(),
        }
        .encode_to_vec(),
        "CleanUpContainers" => v1::CleanUpContainersRequest { pod_uid: uid() }.encode_to_vec(),
        "CollectGarbage" => v1::CollectGarbageRequest {
            desired_pod_uids: vec![uid()],
            sources_ready: false,
        }
        .encode_to_vec(),
        "GetNodeCapacity" => v1::GetNodeCapacityRequest {}.encode_to_vec(),
        other => bail!("no message for {other}"),
    })
}

fn of_node_api(name: &str) -> Result<Vec<u8>> {
    Ok(match name {
        "ReviewToken" => v1::ReviewTokenRequest {
            token: "nobody's".to_owned(),
        }
        .encode_to_vec(),
        "ReviewAccess" => v1::ReviewAccessRequest {
            user: None,
            verb: "get".to_owned(),
            subresource: "proxy".to_owned(),
        }
        .encode_to_vec(),
        "OpenSession" => v1::OpenSessionRequest {
            pod: Some(reference()),
            requester: String::new(),
            session: Some(Session::PortForward(v1::PortForwardSession::default())),
        }
        .encode_to_vec(),
        "RunCommand" => v1::RunCommandRequest {
            pod: Some(reference()),
            requester: String::new(),
            container_name: app(),
            command: vec!["true".to_owned()],
        }
        .encode_to_vec(),
        other => bail!("no message for {other}"),
    })
}

fn status_reports(name: &str) -> Result<Vec<u8>> {
    let verdict = v1::ProbeVerdict {
        pod_uid: uid(),
        container_name: app(),
        container_id: CONTAINER_ID.to_owned(),
        kind: v1::ProbeKind::Readiness.into(),
        result: v1::ProbeResult::Failure.into(),
        message: "no".to_owned(),
    };
    let event = v1::Event {
        pod: Some(reference()),
        r#type: v1::EventType::Normal.into(),
        reason: "Tried".to_owned(),
        message: "a test calls".to_owned(),
        count: 1,
        ..v1::Event::default()
    };
    Ok(match name {
        "SetProbeVerdicts" => v1::SetProbeVerdictsRequest {
            verdicts: vec![verdict],
        }
        .encode_to_vec(),
        "SetNodeHealth" => v1::SetNodeHealthRequest {
            pleg_inactive_nanos: Some(0),
            shuts_down: false,
        }
        .encode_to_vec(),
        "RejectPod" => v1::RejectPodRequest {
            pod: Some(pod()?),
            reason: "Tried".to_owned(),
            message: "a test calls".to_owned(),
        }
        .encode_to_vec(),
        "ReportEvents" => v1::ReportEventsRequest {
            events: vec![event],
        }
        .encode_to_vec(),
        // Of a time before all pods: nothing is forgotten.
        "RemoveOrphanedStatuses" => v1::RemoveOrphanedStatusesRequest {
            known_pod_uids: vec![uid()],
            delivered_sources: Vec::new(),
            listed_at_nanos_since_boot: Some(1),
        }
        .encode_to_vec(),
        other => bail!("no message for {other}"),
    })
}

fn pod() -> Result<v1::Pod> {
    let json = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "nobody", "namespace": "default", "uid": UID },
        "spec": { "containers": [{ "name": "app", "image": "localhost/busybox:test" }] },
    });
    let document = PodDocument::from_json(json.to_string().into_bytes(), PodSource::File)?;
    Ok(document.0.to_message())
}

fn of_observers(name: &str) -> Result<Vec<u8>> {
    Ok(match name {
        "ListPods" => v1::ListPodsRequest { pod_uid: uid() }.encode_to_vec(),
        "ExecProbe" => v1::ExecProbeRequest {
            pod_uid: uid(),
            container_name: app(),
            container_id: CONTAINER_ID.to_owned(),
            kind: v1::ProbeKind::Liveness.into(),
        }
        .encode_to_vec(),
        "ReportHttpHook" => v1::ReportHttpHookRequest {
            boot_id: "test".to_owned(),
            id: 1,
            error: String::new(),
        }
        .encode_to_vec(),
        "WatchHints" | "WatchProbeTargets" | "WatchHttpHooks" => Vec::new(),
        other => bail!("no message for {other}"),
    })
}

fn of_readers(name: &str) -> Result<Vec<u8>> {
    Ok(match name {
        "RestartProcess" => v1::RestartProcessRequest {
            name: "nobody".to_owned(),
        }
        .encode_to_vec(),
        "ListCrashes" => v1::ListCrashesRequest {
            name: "pleg".to_owned(),
        }
        .encode_to_vec(),
        "ReadLogs" => v1::ReadLogsRequest {
            pod_uid: uid(),
            container_name: app(),
            ..v1::ReadLogsRequest::default()
        }
        .encode_to_vec(),
        "ListEvents" => v1::ListEventsRequest {
            watch: false,
            pod_uid: uid(),
        }
        .encode_to_vec(),
        "ListDesiredPods" => v1::ListDesiredPodsRequest { pod_uid: uid() }.encode_to_vec(),
        "GetPod" | "GetObservedPod" => v1::GetPodRequest {
            pod_uid: uid(),
            hash: "0".repeat(64),
        }
        .encode_to_vec(),
        "GetObject" => v1::GetObjectRequest {
            kind: "ConfigMap".to_owned(),
            namespace: "default".to_owned(),
            name: "nobody".to_owned(),
            version: "0".to_owned(),
        }
        .encode_to_vec(),
        "GetCredentials" => v1::GetCredentialsRequest {
            repository: "b.io/nobody".to_owned(),
        }
        .encode_to_vec(),
        "Report" => v1::ReportRequest {
            report: Some(Report::PodEnd(reference())),
        }
        .encode_to_vec(),
        // They ask for all there is.
        "WatchApiPods" | "WatchApiReports" | "GetApiConnection" | "GetApiNode" | "GetNodeFacts"
        | "GetStatus" | "WatchStatus" | "Reload" | "WatchObservations" | "GetPolicy"
        | "GetUsage" | "ListPodStatuses" | "WatchEvents" | "WatchResults" | "WatchPods"
        | "WatchObjects" | "WatchApiServices" | "WatchServices" | "WatchNode" | "GetLoopStatus" => {
            Vec::new()
        }
        other => return of_node_api(other),
    })
}
