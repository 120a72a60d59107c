//! The promises of the CRI that the simulated runtime keeps.

use clock::UnixNanos;
use cri::{RuntimeChanges as _, RuntimeReads as _, v1};

use super::*;
use crate::history::Happening;

fn runtime() -> SimulatedRuntime {
    let runtime = SimulatedRuntime::new(1, WallClock::simulated(UnixNanos(1_000)), true);
    runtime.add_image("busybox", true);
    runtime
}

fn sandbox_config(attempt: u32) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "p".into(),
            uid: "u".into(),
            namespace: "default".into(),
            attempt,
        }),
        ..v1::PodSandboxConfig::default()
    }
}

fn container_config(command: &[&str]) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "c".into(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: "busybox".into(),
            ..v1::ImageSpec::default()
        }),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        labels: [("io.kubernetes.pod.uid".to_owned(), "u".to_owned())].into(),
        ..v1::ContainerConfig::default()
    }
}

async fn started(runtime: &SimulatedRuntime, command: &[&str]) -> String {
    let sandbox = runtime
        .run_pod_sandbox(sandbox_config(0), "")
        .await
        .unwrap();
    let config = container_config(command);
    let id = runtime
        .create_container(&sandbox, config, sandbox_config(0))
        .await
        .unwrap();
    runtime.start_container(&id).await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn a_name_can_be_taken_once() {
    let runtime = runtime();
    let sandbox = runtime
        .run_pod_sandbox(sandbox_config(0), "")
        .await
        .unwrap();
    let again = runtime
        .run_pod_sandbox(sandbox_config(0), "")
        .await
        .unwrap_err();
    assert_eq!(again.kind, RuntimeErrorKind::AlreadyExists);
    let create = || runtime.create_container(&sandbox, container_config(&[]), sandbox_config(0));
    create().await.unwrap();
    assert_eq!(
        create().await.unwrap_err().kind,
        RuntimeErrorKind::AlreadyExists
    );
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_while_its_sandbox_is_made_for_a_caller_who_is_gone() {
    let runtime = runtime();
    runtime.set_faults(Faults {
        sandbox_delay: Duration::from_secs(60),
        ..Faults::NONE
    });
    let run = || runtime.run_pod_sandbox(sandbox_config(0), "");
    assert!(tokio::time::timeout(millis(1000), run()).await.is_err());
    let error = run().await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::AlreadyExists);
    assert!(runtime.sandboxes().is_empty());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(runtime.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_when_the_caller_is_gone() {
    let runtime = runtime();
    let call = runtime.run_pod_sandbox(sandbox_config(0), "");
    let aborted = tokio::time::timeout(millis(1), call).await;
    assert!(aborted.is_err());
    tokio::time::sleep(millis(1000)).await;
    assert_eq!(runtime.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_ignores_term_is_killed_after_the_grace() {
    let runtime = runtime();
    let id = started(&runtime, &["ignore-term"]).await;
    let begin = Instant::now();
    runtime
        .stop_container(&id, Duration::from_secs(3))
        .await
        .unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(3));
    let last = runtime.history().last().cloned().unwrap();
    assert_eq!(
        last.happening,
        Happening::Exited {
            code: 137,
            killed: true
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_program_ends_by_itself_with_an_event_and_shows_it_later() {
    let runtime = runtime();
    let mut events = runtime.events().await.unwrap().unwrap().stream;
    let id = started(&runtime, &["exit", "3", "500"]).await;
    loop {
        let event = futures_util::StreamExt::next(&mut events)
            .await
            .unwrap()
            .unwrap();
        if event.kind == EventKind::Stopped {
            assert_eq!(event.container_id, id);
            break;
        }
    }
    let status = runtime.container_status(&id).await.unwrap();
    assert_eq!(status.state(), v1::ContainerState::ContainerRunning);
    tokio::time::sleep(Faults::NONE.clean_up).await;
    let status = runtime.container_status(&id).await.unwrap();
    assert_eq!(status.state(), v1::ContainerState::ContainerExited);
    assert_eq!(status.exit_code, 3);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_still_has_its_effect() {
    let runtime = runtime();
    runtime.set_faults(Faults {
        lost_reply: 1.0,
        ..Faults::NONE
    });
    let error = runtime
        .run_pod_sandbox(sandbox_config(0), "")
        .await
        .unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::DeadlineExceeded);
    assert_eq!(runtime.sandboxes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_with_a_container_that_runs_and_its_address_can_be_used_once() {
    use cri::RuntimeSessions as _;

    use super::sessions::StreamingServer as _;
    let runtime = runtime();
    let id = started(&runtime, &["serve"]).await;
    let asks = |id: &str| v1::ExecRequest {
        container_id: id.to_owned(),
        ..v1::ExecRequest::default()
    };
    let url = runtime.exec(asks(&id)).await.unwrap();
    let path = url.strip_prefix("http://127.0.0.1:10010").unwrap();
    assert_eq!(runtime.use_address(path), Some(id.clone()));
    assert_eq!(runtime.use_address(path), None);
    runtime.crash_container(&id, 1);
    runtime.until_ended(&id).await;
    runtime.exec(asks(&id)).await.unwrap_err();
}
