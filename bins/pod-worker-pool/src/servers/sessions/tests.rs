//! Sessions with pods on a simulated node.

use bulkhead_api::v1::open_session_request::Session;
use bulkhead_api::v1::sessions_server::Sessions as _;
use serde_json::json;

use super::*;
use crate::testing::{TestNode, eventually, pod_running};

fn reference(name: &str) -> Option<v1::PodReference> {
    Some(v1::PodReference {
        uid: String::new(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    })
}

/// Whether it is known that the container of the pod `u1` runs.
fn runs(node: &TestNode) -> bool {
    let observation = node.observation("u1").unwrap_or_default();
    let mut containers = observation.containers.iter();
    containers.any(|container| container.state() == v1::RuntimeState::Running)
}

/// What becomes of an exec in the container `c` of a pod.
async fn exec(service: &Service, pod: Option<v1::PodReference>) -> Result<(), Code> {
    let request = v1::OpenSessionRequest {
        pod,
        session: Some(Session::Exec(v1::ExecSession {
            container_name: "c".to_owned(),
            command: vec!["ls".to_owned()],
            stdout: true,
            ..v1::ExecSession::default()
        })),
        ..v1::OpenSessionRequest::default()
    };
    let opened = service.open_session(Request::new(request)).await;
    let opened = opened.map(|answer| {
        let v1::OpenSessionResponse { tls, port, token } = answer.into_inner();
        assert_eq!((tls, port), (false, 10010));
        assert!(token.starts_with("token-"), "{token}");
    });
    opened.map_err(|status| status.code())
}

#[tokio::test(start_paused = true)]
async fn a_running_container_has_sessions_by_name_and_by_uid() {
    let node = TestNode::new();
    node.create(&pod_running("a", "u1", &["run"])).await;
    eventually("it runs", || runs(&node)).await;
    let service = Service::new(node.current_run().clone());
    assert_eq!(exec(&service, reference("a")).await, Ok(()));
    let by_uid = v1::PodReference {
        uid: "u1".to_owned(),
        ..v1::PodReference::default()
    };
    assert_eq!(exec(&service, Some(by_uid)).await, Ok(()));
    assert_eq!(exec(&service, reference("b")).await, Err(Code::NotFound));
    let run = v1::RunCommandRequest {
        pod: reference("a"),
        container_name: "c".to_owned(),
        command: vec!["ls".to_owned()],
        ..v1::RunCommandRequest::default()
    };
    let ran = service.run_command(Request::new(run)).await.unwrap();
    assert_eq!(ran.into_inner().exit_code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_after_a_restart_is_waited_for() {
    let node = TestNode::new();
    let service = Service::new(node.current_run().clone());
    let pod = pod_running("a", "u1", &["run"]);
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        node.create(&pod).await;
    };
    let (opened, ()) = tokio::join!(exec(&service, reference("a")), later);
    // It is there, and does not run yet.
    assert_eq!(opened, Err(Code::FailedPrecondition));
}

#[tokio::test(start_paused = true)]
async fn a_pod_beyond_baseline_needs_exec_in_the_policy() {
    let node = TestNode::that_watches_its_policy();
    let grant = "[[grants]]\npods = [\"default/a\"]\nhostNetwork = true\n";
    node.write_policy(grant);
    let mut pod = pod_running("a", "u1", &["run"]);
    pod["spec"]["hostNetwork"] = json!(true);
    node.create(&pod).await;
    eventually("it runs", || runs(&node)).await;
    let service = Service::new(node.current_run().clone());
    let refused = exec(&service, reference("a")).await;
    assert_eq!(refused, Err(Code::PermissionDenied));
    node.write_policy(&format!("{grant}exec = true\n"));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while exec(&service, reference("a")).await != Ok(()) {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
