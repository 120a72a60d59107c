//! A reload leaves all processes with the same configuration, and does not undo a stop.

use std::fs;
use std::process::Command;

use bulkhead_api::v1::{ProcessState, ReloadRequest, ReloadResponse};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node_config::NodeConfig;
use topology::Process;

use crate::node::{KUBELET_HEADER, Node, all_ready, row, supervised};

/// What it answers, or why it is refused.
async fn reload(node: &Node) -> Result<ReloadResponse, String> {
    let answer = node.client().reload(ReloadRequest {}).await;
    let refused = |status: tonic::Status| {
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        status.message().to_owned()
    };
    answer.map(tonic::Response::into_inner).map_err(refused)
}

fn configure(node: &Node, text: &str) {
    let config = format!("{KUBELET_HEADER}{text}");
    fs::write(node.path("config.yaml"), config).unwrap();
}

#[tokio::test]
async fn what_is_lost_or_damaged_of_the_resolved_configuration_is_there_after_a_reload() {
    let node = Node::ready().await;
    let (public, private) = (
        node.path("run/node.json"),
        node.path("run/config-sourcer.node.json"),
    );
    let before = NodeConfig::read(&public).unwrap();
    fs::remove_file(&public).unwrap();
    fs::write(&private, "{").unwrap();
    assert!(reload(&node).await.unwrap().restarted.is_empty());
    assert_eq!(NodeConfig::read(&public).unwrap(), before);
    assert_eq!(NodeConfig::read(&private).unwrap(), before);
}

#[tokio::test]
async fn a_configuration_that_cannot_be_written_whole_is_written_for_nobody() {
    let node = Node::ready().await;
    let public = node.path("run/node.json");
    let before = NodeConfig::read(&public).unwrap();
    // In the way of the second of three files.
    let in_the_way = node.path("run/config-sourcer.node.next");
    fs::create_dir(&in_the_way).unwrap();
    configure(&node, "maxPods: 7\n");
    let refused = reload(&node).await.unwrap_err();
    assert!(refused.contains("config-sourcer.node"), "{refused}");
    assert_eq!(NodeConfig::read(&public).unwrap(), before);
    let status = node.wait_for(all_ready).await;
    for process in supervised() {
        assert_eq!(row(&status, process).restarts_total, 0, "{process}");
    }
    assert!(!node.path("run/node.next").exists());
    fs::remove_dir(&in_the_way).unwrap();
    assert!(!reload(&node).await.unwrap().restarted.is_empty());
    assert_eq!(NodeConfig::read(&public).unwrap().max_pods, 7);
}

#[tokio::test]
async fn during_an_ordered_stop_nothing_is_reloaded() {
    let mut node = Node::ready().await;
    let before = node.wait_for(all_ready).await;
    let pid = |process| Pid::from_raw(row(&before, process).pid.cast_signed());
    // The first in order does not hear of the stop.
    kill(pid(Process::ConfigSourcer), Signal::SIGSTOP).unwrap();
    node.signal(Signal::SIGTERM);
    let is_stopping =
        |status: &_| row(status, Process::ConfigSourcer).state() == ProcessState::Stopping;
    node.wait_for(is_stopping).await;
    configure(&node, "maxPods: 7\n");
    node.signal(Signal::SIGHUP);
    let refused = reload(&node).await.unwrap_err();
    assert!(refused.contains("stopping"), "{refused}");
    let status = node.wait_for(is_stopping).await;
    for process in supervised().filter(|it| *it != Process::ConfigSourcer) {
        let row = row(&status, process);
        assert_eq!(row.state(), ProcessState::Ready, "{process}");
        assert_eq!(row.pid.cast_signed(), pid(process).as_raw());
    }
    kill(pid(Process::ConfigSourcer), Signal::SIGCONT).unwrap();
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.errors());
    let config = NodeConfig::read(&node.path("run/node.json")).unwrap();
    assert_ne!(config.max_pods, 7);
}

/// What is prepared for systemd by a node of this name.
fn prepare_as(node: &Node, name: &str, more: &[&str]) -> NodeConfig {
    prepare_with(node, ("--hostname-override", name), more)
}

/// The same with another value of a flag, by a supervisor that works in the node's directory.
fn prepare_with(node: &Node, (flag, value): (&str, &str), more: &[&str]) -> NodeConfig {
    let usual = node.command();
    let mut command = Command::new(usual.get_program());
    let mut follows_flag = false;
    for argument in usual.get_args() {
        command.arg(if follows_flag {
            value.as_ref()
        } else {
            argument
        });
        follows_flag = argument == flag;
    }
    let (code, said) = Node::refusal({
        command.arg("--prepare").args(more);
        command.current_dir(node.path(""));
        command
    });
    assert_eq!(code, 0, "{said}");
    NodeConfig::read(&node.path("run/node.json")).unwrap()
}

#[test]
fn under_systemd_a_node_keeps_its_name_over_a_reload_and_not_over_a_start() {
    let node = Node::prepare();
    let again = |name| prepare_as(&node, name, &["--again"]).node_name;
    // Nothing is known yet.
    assert_eq!(again("first"), "first");
    configure(&node, "maxPods: 7\n");
    let reloaded = prepare_as(&node, "renamed", &["--again"]);
    assert_eq!((&*reloaded.node_name, reloaded.max_pods), ("first", 7));
    assert_eq!(prepare_as(&node, "renamed", &[]).node_name, "renamed");
    fs::write(node.path("run/node.json"), "{").unwrap();
    assert_eq!(again("third"), "third");
}

#[test]
fn flags_of_a_node_mean_what_a_kubelet_takes_them_for() {
    let node = Node::prepare();
    let pair = prepare_as(&node, "node", &["--node-ip", "10.0.0.1,fd00::1"]);
    assert_eq!(pair.node_ip, Some([10, 0, 0, 1].into()));
    let found = prepare_as(&node, "node", &[]).node_ip;
    // Empty text is no flag.
    let empty = prepare_as(&node, "", &["--node-ip="]);
    assert_eq!(empty.node_ip, found);
    let host = nix::unistd::gethostname().unwrap();
    assert_eq!(*empty.node_name, *host.to_string_lossy().to_lowercase());
    // Nor is a family, whichever of its addresses the machine has.
    for family in ["0.0.0.0", "::"] {
        let address = prepare_as(&node, "node", &["--node-ip", family]).node_ip;
        assert_ne!(address, Some(family.parse().unwrap()));
    }
}

#[test]
fn paths_in_a_file_that_is_named_by_a_relative_path_count_from_its_directory() {
    let node = Node::prepare();
    configure(&node, "staticPodPath: manifests\n");
    fs::create_dir(node.path("drop-ins")).unwrap();
    let drop_in = format!("{KUBELET_HEADER}resolvConf: resolv.conf\n");
    fs::write(node.path("drop-ins/10.conf"), drop_in).unwrap();
    let more = ["--config-dir", "drop-ins"];
    let prepared = prepare_with(&node, ("--config", "config.yaml"), &more);
    assert_eq!(prepared.static_pod_path, Some(node.path("manifests")));
    let resolv_conf = node.path("drop-ins/resolv.conf");
    assert_eq!(prepared.resolv_conf, Some(resolv_conf));
}

#[test]
fn images_may_come_from_the_runtime_that_the_flag_names() {
    let node = Node::prepare();
    let runtime = node.path("runtime.sock");
    let field = format!("imageServiceEndpoint: unix://{}\n", runtime.display());
    configure(&node, &field);
    let prepared = prepare_as(&node, "node", &[]);
    assert_eq!(prepared.container_runtime.0, runtime);
}
