//! What keeps the supervisor from starting: each with its own exit code, and a
//! text that says what to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::node::{self, KUBELET_HEADER, Node};
use bulkhead_api::v1;
use topology::Process;

#[track_caller]
fn assert_refused(command: Command, code: i32, text: &str) {
    let (found, errors) = Node::refusal(command);
    assert_eq!(found, code, "{errors}");
    assert!(errors.contains(text), "{text:?} is not in: {errors}");
}

#[test]
fn whoever_is_not_root_is_refused() {
    let node = Node::prepare();
    // A copy that the other user can reach.
    let program = node.path("bin/supervisor-copy");
    Node::copy_program(env!("CARGO_BIN_EXE_supervisor").as_ref(), &program);
    let mut command = Command::new(program);
    command.uid(64_999).gid(64_999);
    assert_refused(command, 10, "must be started as root");
}

#[test]
fn a_start_without_a_container_runtime_is_refused() {
    let mut node = Node::prepare();
    node.stop_runtime();
    assert_refused(node.command(), 12, "start containerd again");
    fs::remove_file(node.path("runtime.sock")).unwrap();
    assert_refused(node.command(), 11, "--container-runtime-endpoint");
}

#[tokio::test]
async fn a_second_supervisor_is_refused_and_the_first_does_not_notice() {
    let node = Node::ready().await;
    assert_refused(node.command(), 13, "another supervisor");
    node.wait_for(node::all_ready).await;
}

#[test]
fn a_program_that_is_missing_or_cannot_be_run_is_refused() {
    let node = Node::prepare();
    let pleg = node.path("bin").join(Process::Pleg.name());
    fs::set_permissions(&pleg, Permissions::from_mode(0o700)).unwrap();
    assert_refused(node.command(), 14, "may not execute");
    fs::set_permissions(&pleg, Permissions::from_mode(0o644)).unwrap();
    assert_refused(node.command(), 14, "not executable");
    fs::remove_file(&pleg).unwrap();
    assert_refused(node.command(), 14, "--bin-dir");
}

#[test]
fn users_that_do_not_exist_are_refused() {
    let node = Node::prepare();
    let mut command = Command::new(env!("CARGO_BIN_EXE_supervisor"));
    let with_base = node.command();
    let mut arguments = with_base.get_args();
    while let Some(argument) = arguments.next() {
        if argument == "--uid-base" {
            arguments.next();
        } else {
            command.arg(argument);
        }
    }
    assert_refused(command, 15, "--uid-base");
}

#[test]
fn a_directory_that_is_unsafe_or_out_of_reach_is_refused() {
    let node = Node::prepare();
    let run = node.path("run");
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, Permissions::from_mode(0o777)).unwrap();
    assert_refused(node.command(), 16, "chmod go-w");
    fs::set_permissions(&run, Permissions::from_mode(0o700)).unwrap();
    assert_refused(node.command(), 16, "chmod o+x");
    fs::set_permissions(&run, Permissions::from_mode(0o711)).unwrap();
    std::os::unix::fs::chown(&run, Some(64_999), None).unwrap();
    assert_refused(node.command(), 16, "chown root");
    fs::remove_dir(&run).unwrap();
    std::os::unix::fs::symlink("/tmp", &run).unwrap();
    assert_refused(node.command(), 16, "not a directory");
}

#[test]
fn a_wrong_configuration_is_refused_by_the_name_of_what_is_wrong() {
    let node = Node::prepare();
    for (body, named) in [
        ("maxPodz: 1\n", "maxPodz"),
        ("maxPods: many\n", "config.yaml: maxPods"),
        ("syncFrequency: soon\n", "config.yaml: syncFrequency"),
    ] {
        fs::write(node.path("config.yaml"), format!("{KUBELET_HEADER}{body}")).unwrap();
        assert_refused(node.command(), 78, named);
    }
    fs::write(node.path("config.yaml"), "kind: Pod\n").unwrap();
    assert_refused(node.command(), 78, "apiVersion");
    fs::write(node.path("config.yaml"), KUBELET_HEADER).unwrap();
    let mut command = node.command();
    command.args(["--node-labels", "broken"]);
    assert_refused(command, 78, "--node-labels broken");
    let mut command = node.command();
    command.args(["--node-ip", "127.0.0.1"]);
    assert_refused(command, 78, "--node-ip 127.0.0.1");
    let mut command = node.command();
    command
        .arg("--bulkhead-config")
        .arg(node.path("config.yaml"));
    assert_refused(command, 78, "bulkhead/v1");
    // The flag of this command line is another.
    let elsewhere = "containerRuntimeEndpoint: /other.sock\nimageServiceEndpoint: /other.sock\n";
    let text = format!("{KUBELET_HEADER}{elsewhere}");
    fs::write(node.path("config.yaml"), text).unwrap();
    assert_refused(node.command(), 78, "imageServiceEndpoint");
}

/// Writes a Bulkhead configuration that asks for this.
fn ask_for(path: &Path, minimum: &str) {
    let header = "apiVersion: bulkhead/v1\nkind: BulkheadConfiguration\n";
    fs::write(path, format!("{header}minimumConfinement: [{minimum}]\n")).unwrap();
}

/// The supervisor as root without one of the capabilities that the topology gives.
fn without_ptrace(supervisor: &Command, configuration: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps", "-sys_ptrace", "--bounding-set", "-sys_ptrace"]);
    command
        .arg(supervisor.get_program())
        .args(supervisor.get_args());
    command.arg("--bulkhead-config").arg(configuration);
    command
}

#[test]
fn a_machine_that_lacks_what_is_asked_for_is_refused() {
    let node = Node::prepare();
    let path = node.path("bulkhead.yaml");
    ask_for(&path, "seccomp, capabilities");
    let command = without_ptrace(&node.command(), &path);
    assert_refused(command, 17, "CAP_SYS_PTRACE");
    // No unit of systemd has started it.
    ask_for(&path, "egress");
    let mut command = node.command();
    command.arg("--bulkhead-config").arg(&path);
    assert_refused(command, 17, "keep off metadata services");
    ask_for(&path, "magic");
    let mut command = node.command();
    command.arg("--bulkhead-config").arg(&path);
    assert_refused(command, 78, "minimumConfinement");
}

#[tokio::test]
async fn what_is_not_asked_for_may_lack_until_a_reload_asks_for_it_which_is_refused() {
    let mut node = Node::prepare();
    let path = node.path("bulkhead.yaml");
    ask_for(&path, "seccomp");
    node.start_with(|command| *command = without_ptrace(command, &path))
        .await;
    let status = node.wait_for(node::all_ready).await;
    let told = |text: &String| text.contains("CAP_SYS_PTRACE");
    assert!(status.degradations.iter().any(told), "{status:?}");
    ask_for(&path, "capabilities");
    let answer = node.client().reload(v1::ReloadRequest {}).await;
    let refused = answer.unwrap_err();
    assert!(refused.message().contains("CAP_SYS_PTRACE"), "{refused}");
    ask_for(&path, "");
    let answer = node.client().reload(v1::ReloadRequest {}).await;
    answer.unwrap();
}

#[test]
fn a_flag_that_does_not_exist_is_refused() {
    let mut command = Node::prepare().command();
    command.arg("--unknown");
    assert_refused(command, 2, "--unknown");
}
