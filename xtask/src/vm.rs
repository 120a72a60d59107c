//! `cargo xtask vm-test`: end-to-end tests in a guest with Debian's own kernel, on
//! cgroup v2, whatever this machine's kernel is like.
//!
//! The guest is emulated by qemu, many times slower than a machine, and its clock counts
//! instructions: what takes long for want of a processor takes the guest no time. So
//! deadlines hold as on a slow machine, however busy this one is.

mod guest;

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;
use test_support::{binaries, images};

use crate::build::{self, Profile};
use crate::{packages, report, tree};
use guest::Report;

/// The programs with tests, by their package and name.
const TESTS: [(&str, &str); 3] = [
    ("e2e", "e2e"),
    ("confinement", "escapes"),
    ("confine", "sealed"),
];

/// What exercises cgroups, the kernel's limits, what it tells of memory, what of the
/// confinement it has, and the whole life of a pod. Those without a file are of packages
/// that have one.
const USUAL: [&str; 36] = [
    "a_weaker_confinement_shows",
    "an_empty_network_reaches_nobody",
    "its_mounts_keep_who_starts_programs_from_what_others_leave",
    "mounts_of_its_own_show_nothing_else",
    "no_process_escapes",
    "the_pool_starts_nothing_traces_nobody_and_has_no_network",
    "who_starts_programs_gets_no_namespace_and_no_strange_socket",
    "calls_by_the_numbers_of_another_interface_are_not_permitted",
    "calls_that_nobody_needs_are_not_permitted_to_anybody",
    "no_process_is_started_and_threads_are",
    "nobody_makes_a_namespace_with_a_process_or_a_thread",
    "only_listed_files_are_opened",
    "pairs_of_sockets_are_of_this_node",
    "sockets_of_other_families_are_for_who_needs_the_internet",
    "threads_may_part_and_nobody_gets_a_namespace_but_mounts_for_others",
    "what_can_be_written_is_never_run",
    "who_has_namespaces_for_others_enters_no_other_kind",
    "who_needs_the_internet_connects_and_nobody_listens",
    "confinement::each_process_has_namespaces_of_its_own_as_the_topology_says",
    "confinement::the_kernel_confines_each_process_as_the_topology_says",
    "edges::only_the_edges_of_the_topology_can_be_called",
    "cgroups::a_pod_has_no_more_processes_than_the_node_allows",
    "cgroups::all_pods_together_have_no_more_than_the_node_gives_them",
    "containerd::a_container_serves_over_its_pods_address_and_nothing_is_left",
    "containers::resources_reach_the_cgroups_and_hold",
    "eviction::short_of_memory_pods_go_by_priority_and_best_effort_pods_stay_out",
    "eviction::pods_over_a_limit_of_the_nodes_disk_are_evicted_and_others_run_on",
    "lifecycle::a_pod_is_to_the_runtime_what_a_kubelet_makes_of_it",
    "lifecycle::nothing_is_left_of_a_deleted_pod_and_it_can_come_back",
    "newer_runtimes::a_pod_has_users_of_its_own_where_the_runtime_can_and_is_not_made_where_not",
    "process_limits::each_process_is_limited_by_itself_as_the_topology_says",
    "process_limits::what_a_process_leaves_in_its_cgroup_is_gone_before_its_next_run",
    "restart_policy::the_policy_and_the_exit_code_decide_what_starts_again",
    "security::capabilities_and_privileges_are_those_that_are_granted",
    "security::sysctls_hold_in_the_pod_and_others_are_refused",
    "security::users_groups_and_a_read_only_root_hold_in_the_container",
];

/// What the guest has besides the smallest Debian.
const PACKAGES: &str = "systemd,systemd-sysv,udev,kmod,e2fsprogs,linux-image-cloud-amd64,containerd,runc,\
                        containernetworking-plugins,busybox-static,iproute2,iptables,nftables";

/// How `timeout` ends when it had to end the program.
const TIMED_OUT: i32 = 124;

/// Arguments of `vm-test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Debian's release in the guest
    #[arg(long, value_enum, default_value = "bookworm")]
    release: Release,
    /// Minutes after which the guest is switched off
    #[arg(long, default_value_t = 120)]
    minutes: u32,
    /// Only tests whose name, FILE::TEST, contains one of these (default: what
    /// exercises cgroups, and the life of a pod)
    filters: Vec<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    /// Debian 12: Linux 6.1, containerd 1.6
    Bookworm,
    /// Debian 13: Linux 6.12, containerd 1.7
    Trixie,
    /// Debian's next release as it is today: in November 2026 Linux 7.2, containerd 2.1
    Testing,
}

impl Release {
    fn name(self) -> &'static str {
        match self {
            Release::Bookworm => "bookworm",
            Release::Trixie => "trixie",
            Release::Testing => "testing",
        }
    }
}

/// Runs the tests in a guest; fails unless all of them ran and passed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    packages::require_for_guests()?;
    let filters: Vec<&str> = match arguments.filters.as_slice() {
        [] => USUAL.to_vec(),
        chosen => chosen.iter().map(String::as_str).collect(),
    };
    report::step("building programs and tests");
    build::programs(Profile::Development, &[])?;
    let archives = images::archives()?;
    let (tests, started_by_tests) = build_tests()?;

    let directory = binaries::target_directory()?
        .join("vm")
        .join(arguments.release.name());
    let root = tree::debian(&directory, arguments.release.name(), PACKAGES)?;
    report::step("making the guest's disk");
    let built = [tests.as_slice(), &started_by_tests].concat();
    tree::put_in(&root, &payload(&built, &archives)?)?;
    guest::install(&root, &tests, &filters)?;
    let disk = tree::disk(&root, &directory)?;

    report::step(&format!("tests on {}", arguments.release.name()));
    let console = directory.join("console.log");
    let mut guest = boot(&root, &disk, &console, arguments.minutes)?;
    let heard = follow(&mut guest)?;
    let status = guest.wait().context("cannot wait for qemu")?;
    report::line(&format!("the guest's console: {}", console.display()));
    if status.code() == Some(TIMED_OUT) {
        bail!("the guest took more than {} minutes", arguments.minutes);
    }
    heard.verdict(&filters)?;
    report::line(&heard.to_string());
    Ok(ExitCode::SUCCESS)
}

/// Builds the programs with the tests, and returns where they are, and where those are that
/// they start.
fn build_tests() -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let mut command = binaries::cargo_command();
    command.args(["test", "--no-run"]);
    for (package, test) in TESTS {
        command.args(["--package", package, "--test", test]);
    }
    command.args(["--message-format", "json-render-diagnostics"]);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the tests cannot be built: {}", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let built = executables(&messages, "test");
    ensure!(built.len() == TESTS.len(), "cargo built only {built:?}");
    Ok((built, executables(&messages, "bin")))
}

/// Where cargo says that the programs of this kind are: with tests (`test`), or what these
/// start (`bin`).
fn executables(messages: &str, kind: &str) -> Vec<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let artifacts = messages.filter(|message| {
        message["reason"] == "compiler-artifact"
            && message["profile"]["test"] == (kind == "test")
            && message["target"]["kind"][0] == kind
    });
    let path = |artifact: Value| artifact["executable"].as_str().map(PathBuf::from);
    artifacts.filter_map(path).collect()
}

/// What the tests look for, by the paths that they were built with.
fn payload(built: &[PathBuf], archives: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let directory = binaries::profile_directory()?;
    let workspace = binaries::workspace();
    let mut paths: Vec<PathBuf> = binaries::PROGRAMS
        .iter()
        .map(|(_, program)| directory.join(program))
        .collect();
    paths.extend_from_slice(built);
    // With the fingerprint, and what it is made from: nothing is built in the guest.
    let images = archives.first().and_then(|archive| archive.parent());
    paths.push(images.context("there are no images")?.to_owned());
    paths.push(workspace.join("tests/images"));
    paths.push(workspace.join("tests/e2e/manifests"));
    Ok(paths)
}

/// Starts a guest. What is written to its second serial line comes to the standard output.
fn boot(root: &Path, disk: &Path, console: &Path, minutes: u32) -> Result<Child> {
    let mut of_file = OsString::from("file:");
    of_file.push(console);
    let mut drive = OsString::from("format=raw,if=virtio,cache=unsafe,file=");
    // A comma begins the next option.
    drive.push(disk.to_string_lossy().replace(',', ",,"));
    Command::new("timeout")
        .args(["--foreground", "--kill-after=10"])
        .arg(format!("{minutes}m"))
        .arg("qemu-system-x86_64")
        // Hardware that helps is missing or does not work where tests run.
        .args(["-accel", "tcg", "-machine", "q35"])
        // An old processor: with the newest one that it knows, qemu 7.2 has Linux 6.12 fail.
        .args(["-cpu", "Nehalem", "-smp", "1", "-m", "2048"])
        // A nanosecond for each instruction; real time while there is nothing to do.
        .args(["-icount", "shift=0,sleep=on", "-rtc", "clock=vm"])
        .args(["-display", "none", "-monitor", "none", "-nic", "none"])
        .args(["-no-reboot", "-device", "virtio-rng-pci"])
        .arg("-serial")
        .arg(of_file)
        .args(["-serial", "stdio", "-drive"])
        .arg(drive)
        // Debian's links to the newest.
        .arg("-kernel")
        .arg(root.join("vmlinuz"))
        .arg("-initrd")
        .arg(root.join("initrd.img"))
        .args(["-append", guest::KERNEL_COMMAND_LINE])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start qemu")
}

/// Shows what the tests print until the guest ends.
fn follow(guest: &mut Child) -> Result<Report> {
    let output = guest.stdout.take().context("no output to read")?;
    let mut heard = Report::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read the guest's output")?;
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        report::line(line);
        heard.add(line);
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_and_those_that_they_start_are_found_among_what_cargo_built() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"]},"profile":{"test":false},"executable":"/testapp"}"#,
            "\nnonsense\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"]},"profile":{"test":true},"executable":"/no"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"]},"profile":{"test":true},"executable":"/no"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["test"]},"profile":{"test":true},"executable":"/t/e2e-1"}"#,
        );
        assert_eq!(executables(messages, "test"), [Path::new("/t/e2e-1")]);
        assert_eq!(executables(messages, "bin"), [Path::new("/testapp")]);
        assert_eq!(executables("nonsense", "test"), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn the_usual_tests_are_there() {
        let in_package = [
            "tests/confinement/tests/escapes.rs",
            "shared/confine/tests/sealed.rs",
        ];
        let source = |path: &str| std::fs::read_to_string(binaries::workspace().join(path));
        let has = |path: &str, name: &str| {
            let source = source(path).unwrap();
            source.contains(&format!("fn {name}()"))
        };
        for text in USUAL {
            let is_there = match text.split_once("::") {
                Some((file, name)) => has(&format!("tests/e2e/tests/{file}.rs"), name),
                None => in_package.iter().any(|path| has(path, text)),
            };
            assert!(is_there, "{text}");
        }
        // All that tries to escape.
        let all = source(in_package[0]).unwrap();
        let without_file = USUAL.iter().filter(|text| has(in_package[0], text));
        assert_eq!(all.matches("#[test]").count(), without_file.count());
    }
}
