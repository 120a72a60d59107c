//! What keeps the supervisor from starting: each with its own exit code, and a
//! text that says what to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::node::{self, KUBELET_HEADER, Node, PATIENCE};
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

/// The exit code of a supervisor that asks for more than the machine gives.
const TOO_MUCH_ASKED: i32 = 17;

/// A command line that asks for so much that the supervisor never starts, even where all
/// that a test looks at is well.
fn demanding(node: &Node) -> Command {
    let path = node.path("bulkhead.yaml");
    // No unit of systemd has started it.
    ask_for(&path, "egress");
    let mut command = node.command();
    command.arg("--bulkhead-config").arg(path);
    command
}

/// The same with another directory.
fn with_directory(given: &Command, flag: &str, directory: &Path) -> Command {
    let mut command = Command::new(given.get_program());
    let mut arguments = given.get_args();
    while let Some(argument) = arguments.next() {
        command.arg(argument);
        if argument == flag {
            arguments.next();
            command.arg(directory);
        }
    }
    command
}

/// What is refused of a file or directory at `path`, by its owner and its mode.
fn assert_refusals(path: &Path, command: impl Fn() -> Command, cases: &[(u32, u32, i32, &str)]) {
    for &(owner, mode, code, text) in cases {
        std::os::unix::fs::chown(path, Some(owner), None).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        assert_refused(command(), code, text);
    }
}

#[test]
fn a_directory_below_one_that_is_unsafe_or_out_of_reach_is_refused() {
    let node = Node::prepare();
    let above = node.path("above");
    fs::create_dir_all(above.join("between")).unwrap();
    let refused = format!("{} cannot be used: ", above.display());
    // Somebody else may put another link there.
    let foreign = node.path("foreign");
    fs::create_dir(&foreign).unwrap();
    std::os::unix::fs::symlink(&above, foreign.join("link")).unwrap();
    for flag in ["--run-dir", "--state-dir"] {
        let command = || with_directory(&demanding(&node), flag, &above.join("between/here"));
        let cases = [
            (0, 0o755, TOO_MUCH_ASKED, "egress"),
            (0, 0o777, 16, "chmod go-w"),
            (0, 0o775, 16, "chmod go-w"),
            // What others have in it is not theirs to replace.
            (0, 0o1777, TOO_MUCH_ASKED, "egress"),
            (0, 0o700, 16, "chmod o+x"),
            (64_999, 0o755, 16, "chown root"),
        ];
        assert_refusals(&above, command, &cases);
        assert_refused(command(), 16, &refused);
        std::os::unix::fs::chown(&above, Some(0), None).unwrap();
        let by_link = foreign.join("link/between/here");
        let command = || with_directory(&demanding(&node), flag, &by_link);
        let cases = [
            (0, 0o755, TOO_MUCH_ASKED, "egress"),
            (64_999, 0o755, 16, "chown root"),
        ];
        assert_refusals(&foreign, command, &cases);
    }
}

#[test]
fn what_names_programs_that_give_credentials_must_be_roots_alone() {
    let node = Node::prepare();
    let file = node.path("files/providers.yaml");
    fs::create_dir(node.path("files")).unwrap();
    let provider = "  - name: ecr\n    matchImages: [\"*.example.com\"]\n    \
        defaultCacheDuration: 12h\n    apiVersion: credentialprovider.kubelet.k8s.io/v1\n";
    let header = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n";
    fs::write(&file, format!("{header}providers:\n{provider}")).unwrap();
    let directory = node.path("above/programs");
    fs::create_dir_all(&directory).unwrap();
    fs::copy(node.path("bin/pleg"), node.path("bin/credential-provider")).unwrap();
    let command = || {
        let mut command = demanding(&node);
        command.arg("--image-credential-provider-config").arg(&file);
        command
            .arg("--image-credential-provider-bin-dir")
            .arg(&directory);
        command
    };
    let unsafe_ones = [
        (0, 0o666, 16, "chmod go-w"),
        (64_999, 0o644, 16, "chown root"),
        (0, 0o755, TOO_MUCH_ASKED, "egress"),
    ];
    let (of_file, of_directory) = (node.path("files"), node.path("above"));
    for path in [&file, &of_file, &directory, &of_directory] {
        assert_refusals(path, command, &unsafe_ones);
    }
    let out_of_reach = [(0, 0o700, 16, "chmod o+x")];
    assert_refusals(&directory, command, &out_of_reach);
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

#[test]
fn sockets_that_everybody_can_connect_to_are_refused_where_that_is_asked_for() {
    let node = Node::prepare();
    let (run, path) = (node.path("run"), node.path("bulkhead.yaml"));
    fs::create_dir(&run).unwrap();
    ask_for(&path, "socketAccess");
    // Where it is not refused, it has to end all the same.
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string());
    let without_lists = "mount -t ramfs none \"$0\" && exec \"$@\"";
    command.args(["unshare", "--mount", "sh", "-c", without_lists]);
    command.arg(run);
    let mut mounted = Command::new(command.get_program());
    mounted.args(command.get_args()).arg("true");
    let (code, why) = Node::refusal(mounted);
    if code != 0 {
        return node::not_tried(&format!("a run directory without access lists: {why}"));
    }
    let supervisor = node.command();
    command.arg(supervisor.get_program());
    command.args(supervisor.get_args());
    command.arg("--bulkhead-config").arg(path);
    assert_refused(command, 17, "every local user can connect");
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
