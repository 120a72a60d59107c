//! Lifecycle hooks: what they hold up, and that they are begun once.

use std::time::Duration;

use bulkhead_api::v1::RuntimeState;
use futures_util::FutureExt as _;
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};
use simulated_runtime::{Entry, Faults, Happening};
use tokio::time::Instant;

use super::{calls, finished, running};
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

/// A hook that takes so long and exits with this.
fn hook(seconds: u64, code: i32) -> Value {
    let millis = (seconds * 1000).to_string();
    json!({"exec": {"command": ["hook", millis, code.to_string()]}})
}

fn with(lifecycle: Value, command: &[&str]) -> Value {
    let mut pod = pod_running("a", "u1", command);
    pod["spec"]["containers"][0]["lifecycle"] = lifecycle;
    pod
}

fn entries(node: &TestNode, is_it: impl Fn(&Happening) -> bool) -> Vec<Entry> {
    let history = node.runtime.history().to_vec().into_iter();
    let history = history.filter(|entry| !entry.container.is_empty());
    history.filter(|entry| is_it(&entry.happening)).collect()
}

fn hooks_begun(node: &TestNode) -> usize {
    entries(node, |it| matches!(it, Happening::Executed { .. })).len()
}

async fn hook_begun(node: &TestNode) {
    eventually("a hook is begun", || hooks_begun(node) == 1).await;
}

/// Waits until nothing of the pod is alive, whoever knows of it still.
async fn all_stopped(node: &TestNode) {
    eventually("all is stopped", || {
        node.running("u1").is_none() && node.runtime.sandboxes().iter().all(|it| !it.ready)
    })
    .await;
}

/// Seconds from then until the SIGTERM and until the end of the only container.
async fn ends_after(node: &TestNode, begun: Instant, wall: f64) -> (u64, u64) {
    eventually("it ends", || node.running("u1").is_none()).await;
    let exit = begun.elapsed().as_secs();
    let terminated = entries(node, |it| *it == Happening::Terminated);
    let at = terminated[0].at.since(crate::testing::START).as_secs_f64();
    ((at - wall) as u64, exit)
}

#[tokio::test(start_paused = true)]
async fn a_pre_stop_hook_comes_before_the_sigterm_and_counts_in_the_grace() {
    // What the hook is, when the SIGTERM comes, and when the SIGKILL.
    for (pre_stop, sigterm, sigkill) in [
        (hook(5, 0), 5, 30),
        (hook(5, 3), 5, 30),
        (hook(29, 0), 29, 31),
        (hook(100, 0), 30, 32),
        (json!({"sleep": {"seconds": 7}}), 7, 30),
        (json!({"sleep": {"seconds": 0}}), 0, 30),
        (json!({"tcpSocket": {"port": 80}}), 0, 30),
    ] {
        let node = TestNode::new();
        let pod = with(json!({"preStop": pre_stop}), &["ignore-term"]);
        node.create(&pod).await;
        running(&node, "u1").await;
        let (begun, wall) = (Instant::now(), node.seconds());
        node.stop(&pod, 30).await;
        let (term, kill) = ends_after(&node, begun, wall).await;
        assert_eq!((term, kill), (sigterm, sigkill), "{pre_stop}");
        let fails = pre_stop == hook(5, 3) || pre_stop.get("tcpSocket").is_some();
        let told = node.reasons("u1").contains(&"FailedPreStopHook".to_owned());
        assert_eq!(told, fails, "{pre_stop}");
        finished(&node, "u1").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_cuts_a_pre_stop_hook_short_and_begins_no_other() {
    let node = TestNode::new();
    let pod = with(json!({"preStop": hook(100, 0)}), &["ignore-term"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    let (begun, wall) = (Instant::now(), node.seconds());
    node.stop(&pod, 60).await;
    hook_begun(&node).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    node.stop(&pod, 10).await;
    assert_eq!(ends_after(&node, begun, wall).await, (13, 15));
    assert_eq!(hooks_begun(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pre_stop_hook_is_begun_once_however_often_the_pool_dies() {
    // The hook, its grace, when the SIGTERM comes. Once the pool has died, the runtime says
    // whether a command has ended, the time whether a sleep has, and nothing whether a
    // request has.
    for (pre_stop, grace, sigterm) in [
        (hook(5, 0), 20, 5..=6),
        (hook(100, 0), 20, 20..=20),
        (json!({"sleep": {"seconds": 6}}), 20, 6..=6),
        (json!({"httpGet": {"port": 80}}), 20, 1..=1),
    ] {
        let mut node = TestNode::new();
        let pod = with(json!({"preStop": pre_stop}), &["ignore-term"]);
        node.create(&pod).await;
        running(&node, "u1").await;
        let (begun, wall) = (Instant::now(), node.seconds());
        node.stop(&pod, grace).await;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            node.kill();
            node.start();
        }
        let (term, kill) = ends_after(&node, begun, wall).await;
        assert!(sigterm.contains(&term), "{pre_stop}: {term}");
        assert_eq!(kill, grace.max(term + 2), "{pre_stop}");
        assert!(hooks_begun(&node) <= 1, "{pre_stop}");
        all_stopped(&node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pre_stop_hook_of_an_earlier_process_ends_with_its_container() {
    let mut node = TestNode::new();
    let pod = with(json!({"preStop": hook(100, 0)}), &["exit", "0", "8000"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.stop(&pod, 60).await;
    hook_begun(&node).await;
    node.kill();
    node.start();
    all_stopped(&node).await;
    assert!(node.seconds() < 12.0, "{}", node.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_has_ended_is_not_waited_for_by_the_next_process() {
    let mut node = TestNode::new();
    let pod = with(json!({"preStop": hook(1, 0)}), &["slow-term", "9000"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.stop(&pod, 300).await;
    let terminated = || !entries(&node, |it| *it == Happening::Terminated).is_empty();
    eventually("the SIGTERM is sent", terminated).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.kill();
    node.start();
    all_stopped(&node).await;
    assert!(node.seconds() < 20.0, "{}", node.seconds());
    assert_eq!(hooks_begun(&node), 1);
}

/// Before a command of a container that an earlier process made, the runtime is asked about
/// it. Where that fails, the command is tried again, and not beyond the SIGTERM.
#[tokio::test(start_paused = true)]
async fn a_pre_stop_hook_that_could_not_begin_begins_in_the_grace_or_never() {
    let (mut begun_late, mut never) = (0, 0);
    for seed in 0..16 {
        let mut node = TestNode::with_seed(seed);
        let pod = with(json!({"preStop": hook(1, 0)}), &["ignore-term"]);
        node.create(&pod).await;
        running(&node, "u1").await;
        node.kill();
        node.start();
        node.create(&pod).await;
        eventually("it is adopted", || node.observation("u1").is_some()).await;
        node.runtime.set_faults(Faults {
            error: 0.6,
            ..Faults::NONE
        });
        let asked = Instant::now();
        node.stop(&pod, 3).await;
        let mut first = None;
        eventually("it ends", || {
            first = first.or((hooks_begun(&node) > 0).then(|| asked.elapsed()));
            node.running("u1").is_none()
        })
        .await;
        node.runtime.set_faults(Faults::NONE);
        let happened = entries(&node, |it| {
            matches!(it, Happening::Terminated | Happening::Executed { .. })
        });
        let last = happened.last().map(|it| &it.happening);
        assert_eq!(last, Some(&Happening::Terminated), "seed {seed}");
        begun_late += usize::from(first.is_some_and(|it| it >= Duration::from_secs(1)));
        never += usize::from(first.is_none());
        all_stopped(&node).await;
    }
    assert!(begun_late > 0 && never > 0, "{begun_late}, {never}");
}

fn shown(node: &TestNode, id: &str) -> Option<RuntimeState> {
    let observation = node.observation("u1")?;
    let mut containers = observation.containers.into_iter();
    Some(containers.find(|it| it.id == id)?.state())
}

#[tokio::test(start_paused = true)]
async fn a_container_counts_as_started_after_its_post_start_hook_and_others_wait() {
    let node = TestNode::new();
    let mut pod = with(json!({"postStart": hook(8, 0)}), &["run"]);
    pod["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 1}});
    let other = json!({"name": "d", "image": IMAGE, "command": ["run"]});
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(other);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    hook_begun(&node).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(shown(&node, &id), Some(RuntimeState::Created));
    let target = || node.current_run().pool.publisher().targets().get(&id);
    assert!(target().is_some_and(|target| !target.running));
    assert_eq!(node.runtime.containers().len(), 1);
    eventually("the other one runs", || {
        node.runtime.containers().len() == 2
    })
    .await;
    assert!((8.0..9.0).contains(&node.seconds()), "{}", node.seconds());
    assert_eq!(shown(&node, &id), Some(RuntimeState::Running));
    assert!(target().is_some_and(|target| target.running));
    assert_eq!(hooks_begun(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_post_start_hook_fails_is_stopped_and_waits_like_one_that_crashed() {
    for lifecycle in [
        json!({"postStart": hook(1, 7)}),
        json!({"postStart": {"tcpSocket": {"port": 80}}}),
    ] {
        let node = TestNode::new();
        let mut pod = with(lifecycle, &["run"]);
        let other = json!({"name": "d", "image": IMAGE, "command": ["run"]});
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(other);
        node.create(&pod).await;
        let starts = || entries(&node, |it| *it == Happening::Started);
        let of = |name: &str| {
            let starts = starts().into_iter();
            starts.filter(|entry| entry.container == name).count()
        };
        eventually("it is started again and again", || of("c") == 3).await;
        // At once, and then after 10 s.
        assert!((9.0..20.0).contains(&node.seconds()), "{}", node.seconds());
        assert_eq!(of("d"), 1);
        let reasons = node.reasons("u1");
        assert!(
            reasons.contains(&"FailedPostStartHook".to_owned()),
            "{reasons:?}"
        );
        assert!(reasons.contains(&"Killing".to_owned()), "{reasons:?}");
        assert!(node.runtime.violations().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_start_hook_is_begun_once_though_the_pool_dies_at_any_time() {
    let mut unheard = 0;
    for after in (0..1500).step_by(30) {
        let mut node = TestNode::with_seed(after);
        let pod = with(json!({"postStart": hook(1, 0)}), &["run"]);
        node.create(&pod).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.kill();
        node.start();
        node.create(&pod).await;
        let id = running(&node, "u1").await;
        eventually("it counts as started", || {
            shown(&node, &id) == Some(RuntimeState::Running)
        })
        .await;
        // Once it is written down that it begins, nobody can tell later whether it did:
        // a kill between that and the call costs the hook, and never runs it twice.
        let begun = hooks_begun(&node);
        assert!(
            begun <= 1,
            "begun {begun} times when killed after {after} ms"
        );
        unheard += 1 - begun;
        assert_eq!(entries(&node, |it| *it == Happening::Started).len(), 1);
    }
    assert!(unheard <= 2, "{unheard} of 50 hooks were never begun");
}

#[tokio::test(start_paused = true)]
async fn a_post_start_hook_is_begun_where_only_the_start_of_the_run_before_took_effect() {
    let mut node = TestNode::new();
    node.runtime.set_faults(Faults {
        start_delay: Duration::from_secs(5),
        ..Faults::NONE
    });
    let pod = with(json!({"postStart": hook(1, 0)}), &["run"]);
    node.create(&pod).await;
    eventually("it is being started", || {
        node.runtime.containers().iter().any(|it| it.is_starting)
    })
    .await;
    node.kill();
    let id = node.runtime.containers()[0].id.clone();
    node.runtime.set_call_fails("StartContainer", &id, true);
    node.start();
    node.create(&pod).await;
    assert_eq!(running(&node, "u1").await, id);
    let starts = calls(&node, "StartContainer");
    assert!(starts >= 2, "the next run was refused the start");
    hook_begun(&node).await;
    eventually("it counts as started", || {
        shown(&node, &id) == Some(RuntimeState::Running)
    })
    .await;
    assert_eq!(hooks_begun(&node), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_ends_in_the_midst_of_a_post_start_hook() {
    let node = TestNode::new();
    let pod = with(json!({"postStart": hook(1000, 0)}), &["ignore-term"]);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    hook_begun(&node).await;
    node.stop(&pod, 5).await;
    eventually("it has ended", || {
        let shown = shown(&node, &id);
        assert_ne!(shown, Some(RuntimeState::Running), "it has never started");
        shown == Some(RuntimeState::Exited)
    })
    .await;
    finished(&node, "u1").await;
    assert!(node.seconds() < 10.0, "{}", node.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_command_of_a_later_version_is_not_run_before_a_stop() {
    let node = TestNode::new();
    let mut pod = with(json!({"preStop": hook(1, 0)}), &["run"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": hook(2, 0)});
    node.update(UpdateKind::Update, &pod).await.unwrap();
    node.stop(&pod, 30).await;
    finished(&node, "u1").await;
    let executed = entries(&node, |it| matches!(it, Happening::Executed { .. }));
    let command = ["hook", "1000", "0"].map(str::to_owned).to_vec();
    assert_eq!(executed.len(), 1);
    assert_eq!(executed[0].happening, Happening::Executed { command });
}

#[tokio::test(start_paused = true)]
async fn http_hooks_are_the_probers_to_carry_out() {
    let node = TestNode::new();
    let get = |path: &str| json!({"httpGet": {"port": "web", "path": path}});
    let mut pod = with(
        json!({"postStart": get("/up"), "preStop": get("/down")}),
        &["run"],
    );
    pod["spec"]["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 8080}]);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    let told = node.current_run().http_hooks.listen();
    let hook = told.next().await.unwrap();
    assert_eq!((hook.path.as_str(), hook.port), ("/up", 8080));
    assert_eq!(shown(&node, &id), Some(RuntimeState::Created));
    node.current_run().http_hooks.report(hook.id, Ok(()));
    eventually("it counts as started", || {
        shown(&node, &id) == Some(RuntimeState::Running)
    })
    .await;
    let begun = Instant::now();
    node.stop(&pod, 30).await;
    let hook = told.next().await.unwrap();
    assert_eq!(hook.path, "/down");
    assert!(!hook.pod_ip.is_empty());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        node.running("u1").is_some(),
        "the SIGTERM waits for the hook"
    );
    node.current_run()
        .http_hooks
        .report(hook.id, Err("no answer".to_owned()));
    finished(&node, "u1").await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(node.reasons("u1").contains(&"FailedPreStopHook".to_owned()));
}

/// Its source took it back while the pool was away.
#[tokio::test(start_paused = true)]
async fn a_pre_stop_hook_is_run_also_where_nobody_has_the_pod_any_more() {
    let mut node = TestNode::new();
    let pod = with(json!({"preStop": hook(5, 0)}), &["run"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.kill();
    node.start();
    let identity = pod::PodIdentity::new("u1", "default", "a").unwrap();
    let update = pod_lifecycle::Update {
        kind: UpdateKind::Kill,
        subject: pod_lifecycle::Subject::RuntimeOnly(identity),
        kill: Some(pod_lifecycle::KillRequest::default()),
    };
    let told = crate::pool::UpdateExtras::default();
    node.current_run().pool.update(update, told).await.unwrap();
    all_stopped(&node).await;
    assert_eq!(hooks_begun(&node), 1);
    assert!(node.runtime.violations().is_empty());
}

fn with_http_post_start(command: &[&str]) -> Value {
    let get = json!({"httpGet": {"port": 80, "path": "/up"}});
    with(json!({"postStart": get}), command)
}

#[tokio::test(start_paused = true)]
async fn a_prober_that_dies_in_a_post_start_hook_costs_no_container() {
    let node = TestNode::new();
    node.create(&with_http_post_start(&["run"])).await;
    let id = running(&node, "u1").await;
    let told = node.current_run().http_hooks.listen();
    assert_eq!(told.next().await.unwrap().path, "/up");
    drop(told);
    eventually("it counts as started", || {
        shown(&node, &id) == Some(RuntimeState::Running)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.running("u1").unwrap().id, id);
    assert_eq!(entries(&node, |it| *it == Happening::Started).len(), 1);
    let reasons = node.reasons("u1");
    assert!(!reasons.contains(&"FailedPostStartHook".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_post_start_hook_over_http_does_not_outlive_its_container() {
    let node = TestNode::new();
    node.create(&with_http_post_start(&["exit", "0", "8000"]))
        .await;
    running(&node, "u1").await;
    let told = node.current_run().http_hooks.listen();
    let hook = told.next().await.unwrap();
    let begun = Instant::now();
    let next = told.next().await.unwrap();
    assert_eq!((next.id, next.is_cancelled), (hook.id, true));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// The operator removes the grant while the pod runs: the pod runs on, and the prober sends
/// nothing to that host for it any more.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_meanwhile_has_nothing_sent_to_hosts_that_it_names() {
    const GRANT: &str = "[[grants]]\npods = [\"*/*\"]\nprobeHosts = [\"10.9.9.9\"]\n";
    let node = TestNode::that_watches_its_policy();
    node.write_policy(GRANT);
    let get = json!({"httpGet": {"host": "10.9.9.9", "port": 80, "path": "/"}});
    let mut pod = with(json!({"preStop": get}), &["run"]);
    let main = &mut pod["spec"]["containers"][0];
    main["livenessProbe"] = get.clone();
    main["readinessProbe"] = json!({"tcpSocket": {"port": 80}});
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    let probes = |node: &TestNode| {
        let target = node.current_run().pool.publisher().targets().get(&id);
        target.map(|it| (!it.liveness_json.is_empty(), !it.readiness_json.is_empty()))
    };
    eventually("both probes are told", || {
        probes(&node) == Some((true, true))
    })
    .await;
    node.write_policy("");
    eventually("the probe of the pod alone is told", || {
        probes(&node) == Some((false, true))
    })
    .await;
    assert!(node.running("u1").is_some());
    let told = node.current_run().http_hooks.listen();
    node.stop(&pod, 30).await;
    finished(&node, "u1").await;
    assert!(told.next().now_or_never().is_none());
    assert!(node.reasons("u1").contains(&"FailedPreStopHook".to_owned()));
}
