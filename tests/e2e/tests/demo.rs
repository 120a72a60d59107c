//! The README's demo command works, and leaves everything as it found it.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use anyhow::Result;
use cri::{RuntimeChanges as _, RuntimeReads as _, v1};
use test_support::{Containerd, ContainerdOptions, PrivateContainerd, TestNode, binaries};

#[test]
fn the_demo_shows_pods_that_run() -> Result<()> {
    // In a node of its own, so that whatever it left would show.
    let node = TestNode::create()?;
    let output = demo(&node, &[])?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for shown in ["pod-worker-pool", "crash-looping", "hello from web"] {
        assert!(text.contains(shown), "{shown} is missing:\n{text}");
    }
    Ok(())
}

#[test]
fn the_demo_refuses_a_containerd_that_runs_the_pods_of_others() -> Result<()> {
    let options = ContainerdOptions {
        images: false,
        ..ContainerdOptions::default()
    };
    let containerd = PrivateContainerd::start(&options)?;
    containerd.import(&test_support::images::archives()?[0])?;
    let foreign = v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "foreign".to_owned(),
            uid: "foreign".to_owned(),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        labels: [("io.kubernetes.pod.name".to_owned(), "foreign".to_owned())].into(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: format!("{}/foreign", containerd.node().cgroup_root()),
            ..Default::default()
        }),
        ..Default::default()
    };
    containerd.block_on(containerd.client().run_pod_sandbox(foreign, ""))?;
    let before = content(&containerd)?;
    let socket = containerd.socket().to_string_lossy().into_owned();
    let output = demo(containerd.node(), &["--containerd", &socket])?;
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("pods of another node agent"), "{text}");
    assert_eq!(content(&containerd)?, before);
    Ok(())
}

fn demo(node: &TestNode, arguments: &[&str]) -> Result<Output> {
    let mut command: Command = node.command(binaries::cargo());
    binaries::forget_cargo(&mut command);
    command.current_dir(binaries::workspace());
    command.args(["xtask", "demo", "--once"]).args(arguments);
    Ok(node.run(|| command.output())??)
}

/// Names of the images, and ids of sandboxes and containers.
fn content(containerd: &Containerd) -> Result<BTreeSet<String>> {
    let images = containerd.ctr(&["images", "list", "--quiet"])?;
    let mut found: BTreeSet<String> = images.lines().map(str::to_owned).collect();
    let client = containerd.client();
    let sandboxes =
        containerd.block_on(client.list_pod_sandboxes(v1::PodSandboxFilter::default()))?;
    found.extend(sandboxes.into_iter().map(|sandbox| sandbox.id));
    let containers = containerd.block_on(client.list_containers(v1::ContainerFilter::default()))?;
    found.extend(containers.into_iter().map(|container| container.id));
    Ok(found)
}
