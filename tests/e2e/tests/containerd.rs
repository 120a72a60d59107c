//! The ground that all other tests stand on: a private containerd runs
//! containers with an address, survives its own death and leaves nothing.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use cri::{RuntimeChanges as _, RuntimeReads as _, v1};
use futures_util::future;
use test_support::node::Leftovers;
use test_support::{ContainerdOptions, PrivateContainerd, http, images, wait_for};

const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_container_serves_over_its_pods_address_and_nothing_is_left() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let identity = containerd.node().identity();
    let sandbox = run_sandbox(&containerd, "web")?;
    start_container(
        &containerd,
        &sandbox,
        "web",
        images::TESTAPP,
        &["--http", "8080"],
    )?;
    let shell = start_container(
        &containerd,
        &sandbox,
        "shell",
        images::BUSYBOX,
        &[
            "sh",
            "-c",
            "trap 'exit 0' TERM; while true; do sleep 1 & wait; done",
        ],
    )?;

    let address = SocketAddr::new(pod_address(&containerd, &sandbox)?.parse()?, 8080);
    let answer = wait_for("the web server to answer", TIMEOUT, || {
        http::request(containerd.node(), "GET", address, "/healthz")
    })?;
    assert_eq!((answer.status, answer.body.as_str()), (200, "health 200\n"));

    let command = ["wget", "-q", "-O", "-", "http://127.0.0.1:8080/hostname"];
    let command = command.map(str::to_owned).to_vec();
    let output = containerd.block_on(containerd.client().exec_sync(
        &shell,
        command,
        Duration::from_secs(10),
    ))?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "web-host\n");

    assert!(
        !interfaces()?.contains("pods"),
        "the machine's own network is untouched"
    );
    assert!(
        !identity.leftovers()?.processes.is_empty(),
        "the search finds what lives"
    );
    drop(containerd);
    assert_eq!(identity.leftovers()?, Leftovers::default());
    Ok(())
}

/// By one of both garbage collection knows what it must not remove: no container has it.
#[test]
fn the_image_of_sandboxes_is_pinned_or_named_by_the_runtime() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let (image, status) = containerd.block_on(async {
        let client = containerd.client();
        let pause = v1::ImageSpec {
            image: images::PAUSE.to_owned(),
            ..Default::default()
        };
        let image = client.image_status(pause).await?;
        anyhow::Ok((image, client.status(true).await?))
    })?;
    let image = image.context("the image is there")?;
    let config = status.info.get("config").context("it tells")?;
    let config: serde_json::Value = serde_json::from_str(config)?;
    assert!(
        image.pinned || config["sandboxImage"] == images::PAUSE,
        "{config}"
    );
    Ok(())
}

/// Without taking turns containerd before 1.6.22 mostly ends here ("concurrent map read and map
/// write", its pull request 8130).
#[test]
fn questions_of_what_pods_use_do_not_end_containerd_while_pods_come_and_go() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let mut stay = Vec::new();
    for name in ["one", "two", "three"] {
        let sandbox = run_sandbox(&containerd, name)?;
        start_container(&containerd, &sandbox, name, images::TESTAPP, &[])?;
        stay.push(sandbox);
    }
    let client = containerd.client();
    let ask = async |sandbox: &String| -> Result<()> {
        loop {
            client.pod_sandbox_stats(sandbox).await?;
        }
    };
    let askers = stay.iter().cycle().take(8 * stay.len()).map(ask);
    let come_and_go = async {
        for number in 0..10 {
            let config = sandbox_config(&containerd, &format!("guest-{number}"));
            let guest = client.run_pod_sandbox(config, "").await?;
            client.pod_sandbox_stats(&guest).await?;
            client.stop_pod_sandbox(&guest).await?;
            client.remove_pod_sandbox(&guest).await?;
        }
        Ok(())
    };
    containerd.block_on(async {
        tokio::select! {
            ended = future::try_join_all(askers) => ended.map(drop),
            ended = come_and_go => ended,
        }
    })
}

#[test]
fn a_panic_leaves_nothing_either() -> Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let containerd = PrivateContainerd::start(&ContainerdOptions::default()).unwrap();
        run_sandbox(&containerd, "unlucky").unwrap();
        sender.send(containerd.node().identity()).unwrap();
        panic!("as a failing test does");
    })
    .join();
    assert!(panicked.is_err());
    assert_eq!(receiver.recv()?.leftovers()?, Leftovers::default());
    Ok(())
}

fn run_sandbox(containerd: &PrivateContainerd, name: &str) -> Result<String> {
    let config = sandbox_config(containerd, name);
    Ok(containerd.block_on(containerd.client().run_pod_sandbox(config, ""))?)
}

fn sandbox_config(containerd: &PrivateContainerd, name: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        hostname: format!("{name}-host"),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: format!("{}/{name}", containerd.node().cgroup_root()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn start_container(
    containerd: &PrivateContainerd,
    sandbox: &str,
    name: &str,
    image: &str,
    arguments: &[&str],
) -> Result<String> {
    let config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: name.to_owned(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        }),
        args: arguments
            .iter()
            .map(|&argument| argument.to_owned())
            .collect(),
        ..Default::default()
    };
    let sandbox_config = sandbox_config(containerd, "of-container");
    containerd.block_on(async {
        let client = containerd.client();
        let id = client
            .create_container(sandbox, config, sandbox_config)
            .await?;
        client.start_container(&id).await?;
        Ok(id)
    })
}

fn pod_address(containerd: &PrivateContainerd, sandbox: &str) -> Result<String> {
    let status = containerd.block_on(containerd.client().pod_sandbox_status(sandbox))?;
    Ok(status.network.context("the sandbox has no network")?.ip)
}

/// The interfaces of the machine itself.
fn interfaces() -> Result<String> {
    std::fs::read_to_string("/proc/self/net/dev").context("/proc/self/net/dev")
}
