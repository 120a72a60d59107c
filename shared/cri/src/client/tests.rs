//! The client against a made runtime on a real Unix socket.

mod fake_runtime;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fake_runtime::{FakeRuntime, serve};
use futures_util::stream;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::connection::{LISTS_AT_A_TIME, socket_path};
use super::*;
use crate::id::{MAX_ID_BYTES, is_valid_id};
use crate::v1::runtime_service_server::RuntimeServiceServer;
use crate::{EventKind, RuntimeEvent};

#[test]
fn an_endpoint_is_a_unix_socket_by_url_or_by_path() {
    for (endpoint, path) in [
        (
            "unix:///run/containerd/containerd.sock",
            Some("/run/containerd/containerd.sock"),
        ),
        ("/run/x.sock", Some("/run/x.sock")),
        ("run/x.sock", None),
        ("unix://run/x.sock", None),
        ("tcp://127.0.0.1:1", None),
        ("", None),
    ] {
        assert_eq!(socket_path(endpoint), path.map(PathBuf::from), "{endpoint}");
    }
}

#[test]
fn ids_that_are_safe_file_names_are_valid() {
    for id in ["a", "0f3e", "sandbox-1_x.y", &"f".repeat(MAX_ID_BYTES)] {
        assert!(is_valid_id(id), "{id}");
    }
    for id in [
        "",
        ".",
        "..",
        ".hidden",
        "a/b",
        "a\0",
        "ä",
        "a b",
        &"f".repeat(MAX_ID_BYTES + 1),
    ] {
        assert!(!is_valid_id(id), "{id:?}");
    }
}

#[test]
fn grace_is_rounded_up_to_whole_seconds() {
    for (duration, seconds) in [
        (Duration::ZERO, 0),
        (Duration::from_millis(1), 1),
        (Duration::from_secs(30), 30),
        (Duration::from_millis(30_001), 31),
        (Duration::MAX, 3_153_600_000),
    ] {
        assert_eq!(whole_seconds(duration), seconds, "{duration:?}");
    }
}

#[tokio::test]
async fn a_call_is_answered_over_the_socket() {
    let served = serve(FakeRuntime::default(), false);
    assert_eq!(served.client().version().await.unwrap().version, "v1");
}

#[tokio::test]
async fn of_what_commands_print_the_beginning_is_kept() {
    let served = serve(FakeRuntime::default(), false);
    let client = served.client();
    let second = Duration::from_secs(1);
    let commands = (0..4).map(|_| client.exec_sync("a", Vec::new(), 60 * second));
    for printed in futures_util::future::join_all(commands).await {
        let printed = printed.unwrap();
        assert!(printed.stdout == vec![b'o'; MAX_EXEC_OUTPUT_BYTES]);
        assert!(printed.stderr == vec![b'e'; MAX_EXEC_OUTPUT_BYTES]);
        assert_eq!(printed.exit_code, 3);
    }
}

#[tokio::test]
async fn a_runtime_that_is_not_there_is_unavailable_and_works_once_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let client = CriClient::new(path.to_str().unwrap()).unwrap();
    let error = client.version().await.unwrap_err();
    assert_eq!(
        (error.method, error.kind),
        ("Version", RuntimeErrorKind::Unavailable),
        "{error}"
    );

    let incoming = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
    let server = Server::builder().add_service(RuntimeServiceServer::new(FakeRuntime::default()));
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    assert_eq!(client.version().await.unwrap().version, "v1");
    server.abort();
}

#[tokio::test]
async fn a_connection_that_breaks_during_a_call_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let accept_and_drop = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut preface = [0_u8; 24];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut preface)
            .await
            .unwrap();
    });
    let client = CriClient::new(path.to_str().unwrap()).unwrap();
    let error = client.version().await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unavailable, "{error}");
    accept_and_drop.await.unwrap();
}

#[tokio::test]
async fn a_server_that_dies_during_a_call_is_unavailable() {
    let runtime = FakeRuntime {
        hang: true,
        ..FakeRuntime::default()
    };
    let hanging = Arc::clone(&runtime.hanging);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    // A thread with its own executor dies as a process does: with all its connections.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let listener = listener.into_std().unwrap();
    let server = std::thread::spawn(move || {
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        executor.block_on(async {
            let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
            let server = Server::builder().add_service(RuntimeServiceServer::new(runtime));
            tokio::select! {
                _ = server.serve_with_incoming(incoming) => {}
                _ = stopped => {}
            }
        });
    });
    let client = CriClient::new(path.to_str().unwrap()).unwrap();
    let call = tokio::spawn(async move { client.version().await });
    while !hanging.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    stop.send(()).unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unavailable, "{error}");
    server.join().unwrap();
}

#[tokio::test]
async fn a_silent_runtime_is_a_deadline_exceeded() {
    let served = serve(
        FakeRuntime {
            hang: true,
            ..FakeRuntime::default()
        },
        false,
    );
    let mut client = served.client().runtime;
    let error = call(
        "Version",
        Duration::from_millis(20),
        v1::VersionRequest::default(),
        |request| client.version(request),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::DeadlineExceeded, "{error}");
}

#[tokio::test]
async fn stopping_waits_for_the_grace_and_two_minutes_more() {
    let runtime = FakeRuntime::default();
    let stopped = Arc::clone(&runtime.stopped);
    let served = serve(runtime, false);
    let error = served
        .client()
        .stop_container("c1", Duration::from_millis(29_500))
        .await
        .unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.message, "no such container");
    let (id, timeout, deadline) = stopped.lock().unwrap().clone().unwrap();
    assert_eq!((id.as_str(), timeout), ("c1", 30));
    assert_eq!(deadline, "149500m");
    // A grace beyond all measure is neither a panic here nor an overflow there.
    let error = served
        .client()
        .stop_container("c1", Duration::MAX)
        .await
        .unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(stopped.lock().unwrap().clone().unwrap().1, 3_153_600_000);
}

/// Layers come over a slow line, and a sandbox waits for the network plugins.
#[tokio::test]
async fn a_pull_may_take_an_hour_and_a_sandbox_four_minutes() {
    let runtime = FakeRuntime {
        sandbox_id: "s1".to_owned(),
        ..FakeRuntime::default()
    };
    let deadlines = Arc::clone(&runtime.deadlines);
    let served = serve(runtime, false);
    let client = served.client();
    let image = v1::ImageSpec {
        image: "i".to_owned(),
        ..Default::default()
    };
    client.pull_image(image, None, None).await.unwrap();
    let config = v1::PodSandboxConfig::default();
    client.run_pod_sandbox(config, "").await.unwrap();
    assert_eq!(*deadlines.lock().unwrap(), ["3600000m", "240000m"]);
}

#[tokio::test]
async fn a_method_that_the_runtime_lacks_is_unimplemented() {
    let served = serve(FakeRuntime::default(), false);
    let error = served.client().runtime_config().await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unimplemented);
    let config = v1::RuntimeConfig::default();
    let error = served.client().update_runtime_config(config).await;
    assert_eq!(error.unwrap_err().kind, RuntimeErrorKind::Unimplemented);
}

#[tokio::test]
async fn one_bad_id_in_a_list_does_not_hide_the_rest() {
    let container_ids = ["a", "../../etc", "", "b"].map(str::to_owned).to_vec();
    let served = serve(
        FakeRuntime {
            container_ids,
            ..FakeRuntime::default()
        },
        false,
    );
    let listed = served
        .client()
        .list_containers(v1::ContainerFilter::default())
        .await
        .unwrap();
    let ids: Vec<_> = listed
        .iter()
        .map(|container| container.id.as_str())
        .collect();
    assert_eq!(ids, ["a", "b"]);
}

#[tokio::test]
async fn a_list_beyond_the_bound_is_refused() {
    let container_ids = vec!["a".to_owned(); MAX_LIST_ITEMS + 1];
    let served = serve(
        FakeRuntime {
            container_ids,
            ..FakeRuntime::default()
        },
        false,
    );
    let error = served
        .client()
        .list_containers(v1::ContainerFilter::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Other);
    assert_eq!(error.message, "answered with 50001 items, more than 50000");
}

#[tokio::test]
async fn answers_without_what_was_asked_for_are_errors() {
    let served = serve(FakeRuntime::default(), false);
    let client = served.client();
    let config = v1::PodSandboxConfig::default();
    let error = client.run_pod_sandbox(config, "").await.unwrap_err();
    assert_eq!(error.message, "answered with id \"\"");
    assert_eq!(
        client.container_status("c").await.unwrap_err().message,
        "the answer is empty"
    );
}

#[tokio::test]
async fn an_unknown_image_is_none_and_a_nameless_one_an_error() {
    let served = serve(FakeRuntime::default(), false);
    let client = served.client();
    let spec = |image: &str| v1::ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    };
    assert_eq!(client.image_status(spec("unknown")).await.unwrap(), None);
    assert_eq!(
        client
            .image_status(spec("known"))
            .await
            .unwrap()
            .unwrap()
            .id,
        "sha256:1"
    );
    assert!(client.image_status(spec("nameless")).await.is_err());
}

#[tokio::test]
async fn events_come_from_the_interface_where_it_has_them() {
    let served = serve(
        FakeRuntime {
            cri_events: true,
            ..FakeRuntime::default()
        },
        true,
    );
    let mut events = served.client().events().await.unwrap().unwrap();
    assert_eq!(events.source, EventSource::Cri);
    // Of commands containerd tells, in whatever order.
    let mut told = Vec::new();
    let end = loop {
        match events.stream.next().await.unwrap() {
            Ok(event) => told.push((event.container_id, event.kind, event.pod_uid)),
            Err(error) => break error,
        }
    };
    assert_eq!(end.message, "bye");
    let stopped = (
        "c1".to_owned(),
        EventKind::Stopped,
        Some("uid-1".to_owned()),
    );
    assert!(told.contains(&stopped), "{told:?}");
    let filters = served.filters.lock().unwrap().clone();
    let expected = r#"namespace=="k8s.io",topic=="/tasks/exec-started""#;
    assert_eq!(filters, [expected]);
}

#[tokio::test]
async fn one_stream_of_two_ends_when_one_of_them_does() {
    let event = |id: &str, kind| {
        Ok(RuntimeEvent {
            container_id: id.to_owned(),
            kind,
            pod_uid: None,
        })
    };
    let one = stream::iter([event("a", EventKind::Stopped)]).chain(stream::pending());
    let other = stream::iter([event("b", EventKind::CommandStarted)]);
    let told: Vec<_> = events::both(one, other).collect().await;
    let told = told.into_iter().map(|event| event.unwrap().container_id);
    assert_eq!(told.collect::<Vec<_>>(), ["a", "b"]);
}

#[tokio::test]
async fn events_come_from_containerd_where_the_interface_has_none() {
    let served = serve(FakeRuntime::default(), true);
    let mut events = served.client().events().await.unwrap().unwrap();
    assert_eq!(events.source, EventSource::Containerd);
    let event = events.stream.next().await.unwrap().unwrap();
    assert_eq!(
        (event.container_id.as_str(), event.kind),
        ("c1", EventKind::Stopped)
    );
    let event = events.stream.next().await.unwrap().unwrap();
    assert_eq!(
        (event.container_id.as_str(), event.kind),
        ("c1", EventKind::CommandStarted)
    );
    let filters = served.filters.lock().unwrap().clone();
    assert!(
        filters.contains(&r#"namespace=="k8s.io",topic=="/tasks/exit""#.to_owned()),
        "{filters:?}"
    );
}

#[tokio::test]
async fn a_runtime_without_events_has_none_and_one_that_is_down_is_an_error() {
    let served = serve(FakeRuntime::default(), false);
    assert!(served.client().events().await.unwrap().is_none());
    let directory = tempfile::tempdir().unwrap();
    let client = CriClient::new(directory.path().join("s").to_str().unwrap()).unwrap();
    assert_eq!(
        client.events().await.unwrap_err().kind,
        RuntimeErrorKind::Unavailable
    );
}

#[tokio::test]
async fn what_containerd_lost_of_a_start_is_killed_and_deleted() {
    let served = serve(FakeRuntime::default(), true);
    let client = served.client();
    for (id, deletions) in [("ended", 1), ("created", 1), ("runs", 2)] {
        assert!(client.delete_task(id).await.unwrap(), "{id}");
        let asked = std::mem::take(&mut *served.asked.lock().unwrap());
        let delete = vec![format!("delete {id} in k8s.io"); deletions];
        assert_eq!(asked[0], format!("signal 9 all true {id} in k8s.io"));
        assert_eq!(asked[1..], delete, "{id}");
    }
    assert!(!client.delete_task("gone").await.unwrap());
    let error = client.delete_task("stuck").await.unwrap_err();
    assert_eq!(error.message, "it is stuck");
}

#[tokio::test]
async fn a_runtime_that_is_not_containerd_has_no_tasks() {
    let served = serve(FakeRuntime::default(), false);
    let error = served.client().delete_task("c1").await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unimplemented);
    let error = served.client().running_commands("c1").await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Unimplemented);
}

#[tokio::test]
async fn containerd_says_which_commands_run_in_a_container() {
    let served = serve(FakeRuntime::default(), true);
    let client = served.client();
    let running = client.running_commands("runs").await.unwrap();
    assert_eq!(
        running,
        BTreeSet::from(["one".to_owned(), "two".to_owned()])
    );
    let error = client.running_commands("gone").await.unwrap_err();
    assert!(error.is_not_found());
    let asked = served.asked.lock().unwrap().clone();
    assert_eq!(asked, ["list runs in k8s.io", "list gone in k8s.io"]);
}

#[tokio::test]
async fn the_runtime_is_asked_one_question_of_usage_at_a_time() {
    let runtime = FakeRuntime::default();
    let served = serve(runtime.clone(), false);
    let client = served.client();
    let ask = async |client: CriClient| {
        let all = v1::ContainerStatsFilter::default();
        let answers = tokio::join!(
            client.list_container_stats(all),
            client.pod_sandbox_stats("s"),
            client.container_stats("c"),
        );
        answers.0.unwrap();
        answers.1.unwrap();
        answers.2.unwrap();
    };
    tokio::join!(ask(client.clone()), ask(client.clone()), ask(client));
    assert_eq!(runtime.usage.1.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_runtime_is_asked_for_few_lists_at_a_time() {
    let runtime = FakeRuntime::default();
    let served = serve(runtime.clone(), false);
    let client = served.client();
    let asked = (0..100).map(|_| client.list_containers(v1::ContainerFilter::default()));
    for answer in futures_util::future::join_all(asked).await {
        answer.unwrap();
    }
    assert_eq!(runtime.lists.1.load(Ordering::SeqCst), LISTS_AT_A_TIME);
}

/// Who waits for its turn behind lists that hang does not wait for one deadline after the other.
#[tokio::test(start_paused = true)]
async fn a_list_is_late_after_one_deadline_however_many_hang() {
    let hangs = FakeRuntime {
        hang: true,
        ..FakeRuntime::default()
    };
    let served = serve(hangs, false);
    let client = served.client();
    let begin = tokio::time::Instant::now();
    let asked = (0..100).map(|_| client.list_containers(v1::ContainerFilter::default()));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.unwrap_err().kind, RuntimeErrorKind::DeadlineExceeded);
    }
    assert!(
        begin.elapsed() < DEFAULT_DEADLINE * 2,
        "{:?}",
        begin.elapsed()
    );
}

/// A step of a pod that is resized asks for the usage of one container.
#[tokio::test(start_paused = true)]
async fn questions_of_usage_that_hang_delay_others_by_seconds_however_many_they_are() {
    let hangs = FakeRuntime {
        hang: true,
        ..FakeRuntime::default()
    };
    let served = serve(hangs, false);
    let client = served.client();
    let begin = tokio::time::Instant::now();
    let all = v1::ContainerStatsFilter::default;
    let hanging = (0..10).map(|_| client.list_container_stats(all()));
    let one = async {
        let told = client.container_stats("c").await;
        (told, begin.elapsed())
    };
    let (late, (told, waited)) = tokio::join!(futures_util::future::join_all(hanging), one);
    let late = late.into_iter().map(|answer| answer.unwrap_err().kind);
    assert!(late.eq([RuntimeErrorKind::DeadlineExceeded; 10]));
    assert!(waited < USAGE_DEADLINE * 2, "{told:?} after {waited:?}");
    // Who asks once there is room is answered.
    client.container_stats("c").await.unwrap();
    assert!(
        begin.elapsed() < USAGE_DEADLINE * 2,
        "{:?}",
        begin.elapsed()
    );
}
