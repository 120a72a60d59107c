//! What passes the gate and what does not, with a simulated runtime behind it: what is
//! refused never arrives there.

use std::collections::BTreeSet;

use clock::{UnixNanos, WallClock};
use cri::v1::Int64Value;
use node_policy::{Policy, Protected, Subject};
use pod::PodSource;
use pod::metadata::POD_UID_LABEL;
use simulated_runtime::{Faults, SimulatedRuntime};
use tokio::time::Instant;

use super::*;
use crate::testing::{self, UID, identity, places, security};
use crate::user_ids::tests::{mapping, options};

const IMAGE: &str = "localhost/app:1";
const AGENT_USER: u32 = 4242;
const AGENT_GROUP: u32 = 4343;

struct Scene {
    runtime: SimulatedRuntime,
    held: HeldPods,
    gate: Gate,
}

fn permit(policy: &str) -> Permit {
    let mut protected = Protected::default();
    protected.add_user(AGENT_USER, "a user of the agent");
    protected.add_group(AGENT_GROUP, "a group of the agent");
    let policy = Policy::parse(policy, protected).unwrap();
    let images = vec![IMAGE.to_owned()];
    policy.permit_for(&Subject::new(PodSource::File, "ns", "web", "n1", images))
}

fn command(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|&part| part.to_owned()).collect()
}

impl Scene {
    fn new(policy: &str) -> Scene {
        let clock = WallClock::simulated(UnixNanos(1_700_000_000_000_000_000));
        let runtime = SimulatedRuntime::new(1, clock, false);
        runtime.add_image(IMAGE, true);
        let held = HeldPods::default();
        let scene = Scene {
            gate: Gate::new(runtime.clone().into(), held.clone(), places()),
            runtime,
            held,
        };
        scene.hold(Standing::Permitted(Arc::new(permit(policy))));
        scene
    }

    fn hold(&self, standing: Standing) {
        let probe = CommandDigest::of(&command(&["true"]));
        self.held.hold(HeldPod {
            identity: identity(),
            standing,
            is_beyond_baseline: false,
            runtime_handler: String::new(),
            has_user_namespace: false,
            commands: [("c".to_owned(), BTreeSet::from([probe]))].into(),
            volumes: testing::volumes(),
        });
    }

    /// The same runtime behind another gate, as after a restart.
    fn restarted(&self) -> Gate {
        Gate::new(self.runtime.clone().into(), self.held.clone(), places())
    }

    async fn sandbox(&self) -> String {
        let made = self.gate.run_pod_sandbox(testing::sandbox(), "");
        made.await.unwrap()
    }

    async fn create(
        &self,
        sandbox: &str,
        change: impl Fn(&mut v1::ContainerConfig),
    ) -> Result<String, RuntimeError> {
        let mut config = testing::container(IMAGE);
        change(&mut config);
        let sandbox_config = testing::sandbox();
        self.gate
            .create_container(sandbox, config, sandbox_config)
            .await
    }

    fn calls(&self, method: &str) -> u64 {
        self.runtime.calls().get(method).copied().unwrap_or(0)
    }
}

fn is_forbidden<T>(result: &Result<T, RuntimeError>) -> bool {
    let kind = result.as_ref().err().map(|error| error.kind);
    kind == Some(RuntimeErrorKind::Forbidden)
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_nothing_passes() {
    let scene = Scene::new("sources = { file = \"restricted\" }");
    let sandbox = scene.sandbox().await;
    let id = scene.create(&sandbox, |_| {}).await.unwrap();
    scene.gate.start_container(&id).await.unwrap();
    let second = Duration::from_secs(1);
    let probed = scene.gate.exec_sync(&id, command(&["true"]), second);
    probed.await.unwrap();
    let limits = v1::LinuxContainerResources::default();
    let updated = scene.gate.update_container_resources(&id, limits);
    updated.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_for_a_pod_that_nobody_has_taken() {
    let scene = Scene::new("");
    let sandbox = scene.sandbox().await;
    let id = scene.create(&sandbox, |_| {}).await.unwrap();
    scene.held.release(UID);
    let limits = v1::LinuxContainerResources::default();
    let mut next = testing::sandbox();
    next.metadata.as_mut().unwrap().attempt = 1;
    assert!(is_forbidden(&scene.gate.run_pod_sandbox(next, "").await));
    assert!(is_forbidden(&scene.create(&sandbox, |_| {}).await));
    let updated = scene.gate.update_container_resources(&id, limits).await;
    assert!(is_forbidden(&updated));
    for (method, calls) in [
        ("RunPodSandbox", 1),
        ("CreateContainer", 1),
        ("UpdateContainerResources", 0),
    ] {
        assert_eq!(scene.calls(method), calls, "{method}");
    }
    // What takes away goes through.
    scene.gate.stop_pod_sandbox(&sandbox).await.unwrap();
    scene.gate.remove_container(&id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_new_is_made_for_a_pod_that_the_policy_refuses() {
    let scene = Scene::new("");
    let sandbox = scene.sandbox().await;
    let id = scene.create(&sandbox, |_| {}).await.unwrap();
    scene.hold(Standing::Refused("too much".to_owned()));
    let error = scene.create(&sandbox, |_| {}).await.unwrap_err();
    assert_eq!(error.kind, RuntimeErrorKind::Forbidden);
    assert!(error.message.contains("too much"), "{error}");
    let second = Duration::from_secs(1);
    let probed = scene.gate.exec_sync(&id, command(&["true"]), second).await;
    assert!(is_forbidden(&probed));
}

#[tokio::test(start_paused = true)]
async fn what_the_permit_lacks_is_refused_and_what_it_has_passes() {
    let etc = |config: &mut v1::ContainerConfig| {
        config.mounts.push(v1::Mount {
            container_path: "/x".to_owned(),
            host_path: testing::host_path_mount("etc"),
            readonly: true,
            ..v1::Mount::default()
        });
    };
    let granted = "grants = [{ pods = [\"ns/web\"], \
                   hostPaths = [{ prefix = \"/etc\", readOnly = true }] }]";
    let of_image = "grants = [{ images = [\"localhost/app\"], \
                    hostPaths = [{ prefix = \"/etc\", readOnly = true }] }]";
    let of_other_image = "grants = [{ images = [\"localhost/other\"], \
                          hostPaths = [{ prefix = \"/etc\", readOnly = true }] }]";
    for (policy, passes) in [
        ("", false),
        (granted, true),
        (of_image, true),
        (of_other_image, false),
    ] {
        let scene = Scene::new(policy);
        let sandbox = scene.sandbox().await;
        let made = scene.create(&sandbox, etc).await;
        assert_eq!(made.is_ok(), passes, "{policy}");
        assert_eq!(is_forbidden(&made), !passes, "{policy}");
        assert_eq!(scene.calls("CreateContainer"), u64::from(passes));
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_audits_lets_through_what_it_would_refuse_and_nothing_else() {
    let scene = Scene::new("");
    scene.hold(Standing::Audited(Arc::new(permit("mode = \"audit\""))));
    let sandbox = scene.sandbox().await;
    let privileged = scene.create(&sandbox, |it| security(it).privileged = true);
    privileged.await.unwrap();
    // A log outside of the pod's directory is no matter of grants.
    let escaped = scene.create(&sandbox, |it| it.log_path = "../x".to_owned());
    assert!(is_forbidden(&escaped.await));
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_in_a_sandbox_of_its_own_pod_only() {
    let scene = Scene::new("");
    let changes: [fn(&mut v1::PodSandboxMetadata); 3] = [
        |pod| pod.uid = "other".to_owned(),
        // A manifest may state any UID, that of another pod too.
        |pod| pod.name = "other".to_owned(),
        |pod| pod.namespace = "other".to_owned(),
    ];
    for change in changes {
        let mut config = testing::sandbox();
        change(config.metadata.as_mut().unwrap());
        let other = scene.runtime.run_pod_sandbox(config, "").await.unwrap();
        assert!(is_forbidden(&scene.create(&other, |_| {}).await));
    }
    let own = scene.sandbox().await;
    scene.create(&own, |_| {}).await.unwrap();
    assert_eq!(scene.calls("CreateContainer"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_in_no_sandbox_with_namespaces_of_the_node_that_its_pod_may_not_have() {
    let changes: [fn(&mut v1::NamespaceOption); 3] = [
        |options| options.set_network(v1::NamespaceMode::Node),
        |options| options.set_pid(v1::NamespaceMode::Node),
        |options| options.set_ipc(v1::NamespaceMode::Node),
    ];
    for change in changes {
        let mut config = testing::sandbox();
        let linux = config.linux.as_mut().unwrap();
        let security = linux.security_context.as_mut().unwrap();
        change(security.namespace_options.as_mut().unwrap());
        // As a kubelet made it: the requests for what is in it say nothing of it.
        for (level, is_refused) in [("baseline", true), ("privileged", false)] {
            let scene = Scene::new(&format!("sources = {{ file = \"{level}\" }}"));
            let made = scene.runtime.run_pod_sandbox(config.clone(), "").await;
            let sandbox = made.unwrap();
            let created = scene.create(&sandbox, |_| {}).await;
            assert_eq!(is_forbidden(&created), is_refused, "{created:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_sees_the_processes_of_its_own_pods_containers_only() {
    let scene = Scene::new("");
    let own = scene.sandbox().await;
    let seen = scene.create(&own, |_| {}).await.unwrap();
    let other = {
        let mut config = testing::sandbox();
        config.metadata.as_mut().unwrap().uid = "other".to_owned();
        let made = scene.runtime.run_pod_sandbox(config.clone(), "").await;
        let sandbox = made.unwrap();
        let mut container = testing::container(IMAGE);
        let uid = container.labels.get_mut(POD_UID_LABEL).unwrap();
        *uid = "other".to_owned();
        let runtime = &scene.runtime;
        let made = runtime.create_container(&sandbox, container, config);
        made.await.unwrap()
    };
    let sees = |id: &str| {
        let id = id.to_owned();
        move |config: &mut v1::ContainerConfig| {
            config.metadata.as_mut().unwrap().attempt = 1;
            let options = security(config).namespace_options.as_mut().unwrap();
            options.set_pid(v1::NamespaceMode::Target);
            options.target_id.clone_from(&id);
        }
    };
    assert!(is_forbidden(&scene.create(&own, sees(&other)).await));
    assert!(is_forbidden(&scene.create(&own, sees("")).await));
    scene.create(&own, sees(&seen)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_user_of_the_agent_is_refused_by_number_by_image_and_by_name() {
    let number = i64::from(AGENT_USER);
    let scene = Scene::new("sources = { file = \"privileged\" }");
    let sandbox = scene.sandbox().await;
    let by_number = scene.create(&sandbox, |it| {
        security(it).run_as_user = Some(Int64Value { value: number });
    });
    assert!(is_forbidden(&by_number.await));
    let of_the_image = |it: &mut v1::ContainerConfig| security(it).run_as_user = None;
    scene.runtime.set_image_user(IMAGE, "4242");
    assert!(is_forbidden(&scene.create(&sandbox, of_the_image).await));
    assert_eq!(scene.calls("CreateContainer"), 0);
    // What a name stands for only the container tells: it is made, and goes unstarted.
    scene.runtime.set_image_user(IMAGE, "agent");
    scene.runtime.add_user("agent", AGENT_USER);
    assert!(is_forbidden(&scene.create(&sandbox, of_the_image).await));
    assert_eq!(scene.calls("RemoveContainer"), 1);
    assert_eq!(scene.runtime.containers().len(), 0);
    let by_name = scene.create(&sandbox, |it| {
        security(it).run_as_user = None;
        security(it).run_as_username = "agent".to_owned();
    });
    assert!(is_forbidden(&by_name.await));
    // Others may have names.
    scene.runtime.set_image_user(IMAGE, "app");
    let id = scene.create(&sandbox, of_the_image).await.unwrap();
    scene.gate.start_container(&id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_of_the_agent_is_refused_by_number_and_from_the_files_of_the_image() {
    let group = i64::from(AGENT_GROUP);
    let scene = Scene::new("sources = { file = \"privileged\" }");
    let mut as_sandbox = testing::sandbox();
    testing::sandbox_security(&mut as_sandbox).supplemental_groups = vec![group];
    assert!(is_forbidden(
        &scene.gate.run_pod_sandbox(as_sandbox, "").await
    ));
    let sandbox = scene.sandbox().await;
    let own = scene.create(&sandbox, |it| {
        security(it).run_as_group = Some(Int64Value { value: group });
    });
    assert!(is_forbidden(&own.await));
    // The group of the pod's volumes comes so, too.
    let other = scene.create(&sandbox, |it| security(it).supplemental_groups.push(group));
    assert!(is_forbidden(&other.await));
    assert_eq!(scene.calls("CreateContainer"), 0);
    // What the files of the image say only the container tells.
    for groups in [[group, 7], [7, group]] {
        scene.runtime.set_groups(1000, &groups);
        assert!(is_forbidden(&scene.create(&sandbox, |_| {}).await));
        assert_eq!(scene.runtime.containers().len(), 0);
    }
    scene.runtime.set_groups(1000, &[7, 8]);
    let id = scene.create(&sandbox, |_| {}).await.unwrap();
    scene.gate.start_container(&id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_runtime_is_asked_once_whom_containers_of_an_image_run_as() {
    let digest = format!("sha256:{:064}", 1);
    let scene = Scene::new("sources = { file = \"privileged\" }");
    scene.runtime.add_image(&digest, true);
    let sandbox = scene.sandbox().await;
    let attempt = |attempt, group: i64| {
        let digest = digest.clone();
        move |it: &mut v1::ContainerConfig| {
            it.metadata.as_mut().unwrap().attempt = attempt;
            it.image.as_mut().unwrap().image.clone_from(&digest);
            security(it).supplemental_groups = vec![group];
        }
    };
    let mut asked = Vec::new();
    for (number, group) in [(0, 7), (1, 7), (2, 8), (3, 7)] {
        let id = scene
            .create(&sandbox, attempt(number, group))
            .await
            .unwrap();
        scene.gate.start_container(&id).await.unwrap();
        asked.push(scene.calls("ContainerStatus"));
    }
    assert_eq!(asked, [1, 1, 2, 2]);
    // What it has said is judged for each container.
    scene.runtime.set_groups(1000, &[i64::from(AGENT_GROUP)]);
    for number in [4, 5] {
        let refused = scene.create(&sandbox, attempt(number, 9)).await;
        assert!(is_forbidden(&refused));
    }
    assert_eq!(scene.calls("ContainerStatus"), 3);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_run_made_is_judged_before_it_is_started() {
    let scene = Scene::new("");
    let sandbox = scene.sandbox().await;
    let as_agent = |it: &mut v1::ContainerConfig| {
        security(it).run_as_user = None;
        security(it).run_as_username = "agent".to_owned();
    };
    // The pool died between the two calls that the gate makes.
    let mut config = testing::container(IMAGE);
    as_agent(&mut config);
    let made = scene
        .runtime
        .create_container(&sandbox, config, testing::sandbox());
    let unjudged = made.await.unwrap();
    scene.runtime.add_user("agent", AGENT_USER);
    let judged = scene.create(&sandbox, |it| {
        it.metadata.as_mut().unwrap().attempt = 1;
    });
    let judged = judged.await.unwrap();
    let gate = scene.restarted();
    assert!(is_forbidden(&gate.start_container(&unjudged).await));
    assert_eq!(scene.calls("StartContainer"), 0);
    gate.start_container(&judged).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_commands_that_a_container_was_created_with_are_run_in_it() {
    let scene = Scene::new("");
    let sandbox = scene.sandbox().await;
    let id = scene.create(&sandbox, |_| {}).await.unwrap();
    scene.gate.start_container(&id).await.unwrap();
    // The pod gets another probe, which this instance was not made with.
    let later = CommandDigest::of(&command(&["cat", "/secret"]));
    let held = scene.held.get(UID).unwrap();
    scene.held.hold(HeldPod {
        commands: [("c".to_owned(), BTreeSet::from([later]))].into(),
        ..(*held).clone()
    });
    let second = Duration::from_secs(1);
    for gate in [&scene.gate, &scene.restarted()] {
        let probed = gate.exec_sync(&id, command(&["true"]), second);
        probed.await.unwrap();
        for refused in [
            command(&["cat", "/secret"]),
            command(&["true", ""]),
            command(&[]),
        ] {
            assert!(is_forbidden(&gate.exec_sync(&id, refused, second).await));
        }
    }
    assert_eq!(scene.calls("ExecSync"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_pod_nobody_has_runs_the_commands_that_it_was_made_with() {
    let scene = Scene::new("");
    let sandbox = scene.sandbox().await;
    let id = scene.create(&sandbox, |_| {}).await.unwrap();
    // A kubelet made this one.
    let mut config = testing::container(IMAGE);
    config.metadata.as_mut().unwrap().attempt = 1;
    let made = scene
        .runtime
        .create_container(&sandbox, config, testing::sandbox());
    let without_note = made.await.unwrap();
    for id in [&id, &without_note] {
        scene.runtime.start_container(id).await.unwrap();
    }
    scene.held.release(UID);
    let second = Duration::from_secs(1);
    for gate in [&scene.gate, &scene.restarted()] {
        let own = gate.exec_sync(&id, command(&["true"]), second);
        own.await.unwrap();
        for (id, refused) in [(&id, "id"), (&without_note, "true"), (&without_note, "id")] {
            let refused = gate.exec_sync(id, command(&[refused]), second);
            assert!(is_forbidden(&refused.await));
        }
    }
    scene.hold(Standing::Refused("too much".to_owned()));
    let refused = scene.gate.exec_sync(&id, command(&["true"]), second);
    assert!(is_forbidden(&refused.await));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_hangs_ends_before_a_command_is_sent_and_says_so() {
    let scene = Scene::new("");
    let sandbox = scene.sandbox().await;
    let id = scene.create(&sandbox, |_| {}).await.unwrap();
    scene.gate.start_container(&id).await.unwrap();
    scene.runtime.set_faults(Faults {
        slowness: 1e6,
        ..Faults::NONE
    });
    let began = Instant::now();
    let second = Duration::from_secs(1);
    let gate = scene.restarted();
    let error = gate.exec_sync(&id, command(&["true"]), second).await;
    let error = error.unwrap_err();
    assert!(!error.is_of(EXEC_SYNC), "{error}");
    assert_eq!(began.elapsed(), LOOK_BEFORE_COMMAND);
    assert_eq!(scene.calls("ExecSync"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_container_without_a_note_runs_the_commands_of_its_pod() {
    let scene = Scene::new("");
    let sandbox = scene.sandbox().await;
    // A kubelet made it.
    let config = testing::container(IMAGE);
    let made = scene
        .runtime
        .create_container(&sandbox, config, testing::sandbox());
    let id = made.await.unwrap();
    scene.runtime.start_container(&id).await.unwrap();
    let second = Duration::from_secs(1);
    let own = scene.gate.exec_sync(&id, command(&["true"]), second);
    own.await.unwrap();
    let other = scene.gate.exec_sync(&id, command(&["id"]), second);
    assert!(is_forbidden(&other.await));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_runs_by_the_handler_of_its_pod_alone() {
    let scene = Scene::new("");
    let run = async |handler: &str| {
        scene
            .gate
            .run_pod_sandbox(testing::sandbox(), handler)
            .await
    };
    assert!(is_forbidden(&run("kata").await));
    let held = scene.held.get(UID).unwrap();
    scene.held.hold(HeldPod {
        runtime_handler: "kata".to_owned(),
        ..(*held).clone()
    });
    assert!(is_forbidden(&run("").await));
    let id = run("kata").await.unwrap();
    // Its containers need no word about it.
    scene.create(&id, |_| {}).await.unwrap();
}

/// What the pod with users of its own, and each of its mounts, is asked for with.
fn own_users() -> v1::NamespaceOption {
    let ids = [mapping(131_072, 0, 65_536)];
    options(&ids, &ids)
}

fn sandbox_with(options: v1::NamespaceOption) -> v1::PodSandboxConfig {
    let mut config = testing::sandbox();
    let linux = config.linux.as_mut().unwrap();
    linux.security_context.as_mut().unwrap().namespace_options = Some(options);
    config
}

/// A container of root that sees all of `/proc`.
fn unmasked(options: v1::NamespaceOption) -> v1::ContainerConfig {
    let mut config = testing::container(IMAGE);
    let linux = config.linux.as_mut().unwrap();
    let security = linux.security_context.as_mut().unwrap();
    security.namespace_options = Some(options);
    security.run_as_user = Some(Int64Value { value: 0 });
    security.masked_paths.clear();
    security.readonly_paths.clear();
    config
}

#[tokio::test(start_paused = true)]
async fn with_users_of_its_own_a_pod_has_its_root_and_all_of_proc() {
    let scene = Scene::new("");
    let held = scene.held.get(UID).unwrap();
    scene.held.hold(HeldPod {
        has_user_namespace: true,
        ..(*held).clone()
    });
    // What would have the node's users.
    assert!(is_forbidden(
        &scene.gate.run_pod_sandbox(testing::sandbox(), "").await
    ));
    let sandbox = sandbox_with(own_users());
    let id = scene
        .gate
        .run_pod_sandbox(sandbox.clone(), "")
        .await
        .unwrap();
    for (attempt, gate) in [(0, &scene.gate), (1, &scene.restarted())] {
        let create = |config| gate.create_container(&id, config, sandbox.clone());
        let mut made = unmasked(own_users());
        made.metadata.as_mut().unwrap().attempt = attempt;
        made.mounts[0].uid_mappings = vec![mapping(131_072, 0, 65_536)];
        create(made).await.unwrap();
        // Without them, or with others, also in a mount.
        let other = [mapping(196_608, 0, 65_536)];
        assert!(is_forbidden(
            &create(unmasked(v1::NamespaceOption::default())).await
        ));
        assert!(is_forbidden(
            &create(unmasked(options(&other, &other))).await
        ));
        let mut mounts = unmasked(own_users());
        mounts.mounts[0].gid_mappings = other.to_vec();
        assert!(is_forbidden(&create(mounts).await));
    }
    // Users of another pod than those of the sandbox.
    let other = [mapping(196_608, 0, 65_536)];
    let other = options(&other, &other);
    let made = scene
        .gate
        .create_container(&id, unmasked(other.clone()), sandbox_with(other));
    assert!(is_forbidden(&made.await));
}

#[tokio::test(start_paused = true)]
async fn a_container_in_a_sandbox_with_the_nodes_users_does_not_get_what_others_may() {
    let scene = Scene::new("");
    let id = scene.sandbox().await;
    assert!(is_forbidden(
        &scene
            .create(&id, |config| *config = unmasked(own_users()))
            .await
    ));
    // The pod is to have users of its own from now on, and its sandbox has not.
    let held = scene.held.get(UID).unwrap();
    scene.held.hold(HeldPod {
        has_user_namespace: true,
        ..(*held).clone()
    });
    for gate in [&scene.gate, &scene.restarted()] {
        let sandbox = sandbox_with(own_users());
        let made = gate.create_container(&id, unmasked(own_users()), sandbox);
        assert!(is_forbidden(&made.await));
    }
}
