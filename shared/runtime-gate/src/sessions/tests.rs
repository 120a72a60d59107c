//! Which sessions pass the gate, with a simulated runtime behind it.

use std::sync::Arc;

use clock::{UnixNanos, WallClock};
use cri::{RuntimeChanges as _, RuntimeErrorKind};
use node_policy::{Permit, Policy, Protected, Subject};
use pod::PodSource;
use simulated_runtime::SimulatedRuntime;

use super::*;
use crate::testing::{self, identity, places};
use crate::{HeldPod, HeldPods, Standing};

const IMAGE: &str = "localhost/app:1";

struct Scene {
    held: HeldPods,
    gate: Gate,
    sandbox: String,
    container: String,
}

fn permit(policy: &str) -> Arc<Permit> {
    let policy = Policy::parse(policy, Protected::default()).unwrap();
    let images = vec![IMAGE.to_owned()];
    let subject = Subject::new(PodSource::File, "ns", "web", "n1", images);
    Arc::new(policy.permit_for(&subject))
}

impl Scene {
    /// A pod that runs, on the network of the node or its own.
    async fn new(is_on_the_nodes_network: bool) -> Scene {
        let clock = WallClock::simulated(UnixNanos(1_700_000_000_000_000_000));
        let runtime = SimulatedRuntime::new(1, clock, false);
        runtime.add_image(IMAGE, true);
        let held = HeldPods::default();
        let gate = Gate::new(runtime.into(), held.clone(), places());
        hold(
            &held,
            Standing::Permitted(permit("sources = { file = \"privileged\" }")),
            true,
        );
        let mut sandbox = testing::sandbox();
        let mut config = testing::container(IMAGE);
        if is_on_the_nodes_network {
            let node = v1::NamespaceMode::Node.into();
            let context = testing::sandbox_security(&mut sandbox);
            context.namespace_options.get_or_insert_default().network = node;
            let context = testing::security(&mut config);
            context.namespace_options.get_or_insert_default().network = node;
        }
        let made = gate.run_pod_sandbox(sandbox.clone(), "").await.unwrap();
        let id = gate.create_container(&made, config, sandbox).await.unwrap();
        gate.start_container(&id).await.unwrap();
        Scene {
            held,
            gate,
            sandbox: made,
            container: id,
        }
    }

    /// Whether an exec, an attach, a command and a connection to a port pass.
    async fn passed(&self) -> [bool; 4] {
        let container_id = self.container.clone();
        let exec = v1::ExecRequest {
            container_id: container_id.clone(),
            cmd: vec!["ls".to_owned()],
            ..v1::ExecRequest::default()
        };
        let attach = v1::AttachRequest {
            container_id,
            ..v1::AttachRequest::default()
        };
        let ports = v1::PortForwardRequest {
            pod_sandbox_id: self.sandbox.clone(),
            port: vec![80],
        };
        let second = Duration::from_secs(1);
        let command = vec!["ls".to_owned()];
        let command = self.gate.run_command(&self.container, command, second);
        [
            passes(&self.gate.exec(exec).await),
            passes(&self.gate.attach(attach).await),
            passes(&command.await),
            passes(&self.gate.port_forward(ports).await),
        ]
    }
}

fn hold(held: &HeldPods, standing: Standing, is_beyond_baseline: bool) {
    held.hold(HeldPod {
        identity: identity(),
        standing,
        is_beyond_baseline,
        runtime_handler: String::new(),
        has_user_namespace: false,
        commands: std::collections::BTreeMap::new(),
        volumes: testing::volumes(),
    });
}

fn passes<T>(result: &Result<T, RuntimeError>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind, RuntimeErrorKind::Forbidden, "{error}");
            false
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_with_a_pod_beyond_baseline_need_the_policys_word() {
    const ALL: [bool; 4] = [true; 4];
    const PORTS: [bool; 4] = [false, false, false, true];
    let scene = Scene::new(false).await;
    for (policy, is_beyond_baseline, expected) in [
        ("", false, ALL),
        ("sources = { file = \"restricted\" }", false, ALL),
        ("", true, PORTS),
        ("sources = { api = \"privileged\" }", true, PORTS),
        ("sources = { file = \"privileged\" }", true, ALL),
        (
            "grants = [{ pods = [\"ns/web\"], privileged = true }]",
            true,
            PORTS,
        ),
        ("grants = [{ pods = [\"ns/web\"], exec = true }]", true, ALL),
        (
            "grants = [{ pods = [\"ns/db\"], exec = true }]",
            true,
            PORTS,
        ),
        (
            "grants = [{ images = [\"localhost/app\"], exec = true }]",
            true,
            ALL,
        ),
        (
            "grants = [{ images = [\"localhost/db\"], exec = true }]",
            true,
            PORTS,
        ),
    ] {
        hold(
            &scene.held,
            Standing::Permitted(permit(policy)),
            is_beyond_baseline,
        );
        assert_eq!(
            scene.passed().await,
            expected,
            "{policy} {is_beyond_baseline}"
        );
    }
    hold(
        &scene.held,
        Standing::Audited(permit("mode = \"audit\"")),
        true,
    );
    assert_eq!(scene.passed().await, ALL, "it only audits");
    hold(
        &scene.held,
        Standing::Refused("it may not".to_owned()),
        false,
    );
    assert_eq!(scene.passed().await, [false; 4], "a pod that is refused");
    scene.held.release(identity().uid());
    assert_eq!(scene.passed().await, [false; 4], "a pod that nobody has");
}

#[tokio::test(start_paused = true)]
async fn ports_of_the_node_are_as_a_command_on_it() {
    let scene = Scene::new(true).await;
    let standing = Standing::Permitted(permit(""));
    hold(&scene.held, standing, true);
    assert_eq!(scene.passed().await, [false; 4]);
    let granted = permit("grants = [{ pods = [\"ns/web\"], exec = true }]");
    hold(&scene.held, Standing::Permitted(granted), true);
    assert_eq!(scene.passed().await, [true; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_session_names_the_grant_that_it_lacks() {
    let scene = Scene::new(false).await;
    hold(&scene.held, Standing::Permitted(permit("")), true);
    let exec = v1::ExecRequest {
        container_id: scene.container.clone(),
        ..v1::ExecRequest::default()
    };
    let error = scene.gate.exec(exec).await.unwrap_err();
    assert_eq!(
        error.message,
        "exec: a session with a pod that is beyond baseline is not allowed at level baseline; \
         this grant would allow it: { pods = [\"ns/web\"], sources = [\"file\"], exec = true }"
    );
}
