//! One pod, its stop, a container's restart: Bulkhead and direct calls by turns, so that both see the same machine.

use anyhow::{Context as _, Result};
use cri::{RuntimeReads as _, v1};

use crate::direct;
use crate::statistics::{Row, Samples};
use crate::world::{World, poll};

/// How long the test program lives before it ends by itself, when it does.
const LIFE: &str = "300";

pub(crate) fn start(world: &World, repetitions: usize) -> Result<Vec<Row>> {
    let (mut bulkhead, mut floor) = (Samples::default(), Samples::default());
    // The first of each warms up.
    for index in 0..=repetitions {
        let name = format!("start-{index}");
        let begin = World::now();
        world.put(&name, &[])?;
        let latency = world.noted(&name, "started", 0)?.since(begin);
        world.remove(&name)?;
        world.until_gone(&name)?;

        let direct_name = format!("direct-start-{index}");
        let direct_begin = World::now();
        let pod = world
            .containerd
            .block_on(direct::start(world, world.manifest(&direct_name, &[])))?;
        let direct_latency = world.noted(&direct_name, "started", 0)?.since(direct_begin);
        world.containerd.block_on(direct::remove(world, &pod))?;
        if index > 0 {
            bulkhead.push(latency);
            floor.push(direct_latency);
        }
    }
    Ok(vec![Row::against(
        "manifest written -> process runs",
        &bulkhead,
        &floor,
        "<= 1.10",
    )])
}

pub(crate) fn stop(world: &World, repetitions: usize) -> Result<Vec<Row>> {
    let (mut bulkhead, mut floor) = (Samples::default(), Samples::default());
    for index in 0..=repetitions {
        let name = format!("stop-{index}");
        world.put(&name, &[])?;
        world.noted(&name, "started", 0)?;
        let sandbox = sandbox_of(world, &name)?;
        let begin = World::now();
        world.remove(&name)?;
        poll("a stopped sandbox", || {
            let status = world
                .containerd
                .block_on(world.containerd.client().pod_sandbox_status(&sandbox));
            let ready = i32::from(v1::PodSandboxState::SandboxReady);
            Ok(status
                .map_or(true, |status| status.state != ready)
                .then_some(()))
        })?;
        let latency = World::now().since(begin);
        world.until_gone(&name)?;

        let direct_name = format!("direct-stop-{index}");
        let pod = world
            .containerd
            .block_on(direct::start(world, world.manifest(&direct_name, &[])))?;
        world.noted(&direct_name, "started", 0)?;
        let direct_begin = World::now();
        world.containerd.block_on(direct::stop(world, &pod))?;
        let direct_latency = World::now().since(direct_begin);
        world.containerd.block_on(direct::remove(world, &pod))?;
        if index > 0 {
            bulkhead.push(latency);
            floor.push(direct_latency);
        }
    }
    Ok(vec![Row::against(
        "manifest removed -> sandbox stopped",
        &bulkhead,
        &floor,
        "none",
    )])
}

fn sandbox_of(world: &World, name: &str) -> Result<String> {
    let full = format!("{name}-{}", world.bulkhead.node_name());
    let list = world
        .containerd
        .client()
        .list_pod_sandboxes(v1::PodSandboxFilter::default());
    let sandboxes = world.containerd.block_on(list)?;
    let mut of_pod = sandboxes.into_iter().filter(|sandbox| {
        sandbox
            .metadata
            .as_ref()
            .is_some_and(|metadata| metadata.name == full)
    });
    of_pod
        .next()
        .map(|sandbox| sandbox.id)
        .context("the pod has no sandbox")
}

pub(crate) fn exit_to_restart(world: &World, repetitions: usize) -> Result<Vec<Row>> {
    let (mut bulkhead, mut floor) = (Samples::default(), Samples::default());
    for index in 0..=repetitions {
        // The first restart of a container waits for nothing.
        let name = format!("exit-{index}");
        world.put(&name, &["--exit-after-ms", LIFE, "--exit-code", "1"])?;
        let exit = world.noted(&name, "exit", 0)?;
        let latency = world.noted(&name, "started", 1)?.since(exit);
        world.remove(&name)?;
        world.until_gone(&name)?;

        let direct_name = format!("direct-exit-{index}");
        let pod = world
            .containerd
            .block_on(direct::start(world, world.manifest(&direct_name, &[])))?;
        let again = format!("{direct_name}-again");
        let direct_begin = World::now();
        world.containerd.block_on(direct::start_again(
            world,
            &pod,
            world.manifest(&again, &[]),
            1,
        ))?;
        let direct_latency = world.noted(&again, "started", 0)?.since(direct_begin);
        world.containerd.block_on(direct::remove(world, &pod))?;
        if index > 0 {
            bulkhead.push(latency);
            floor.push(direct_latency);
        }
    }
    Ok(vec![Row::against(
        "container exit -> next start",
        &bulkhead,
        &floor,
        "p99 <= 200 ms",
    )])
}
