//! A control plane as kubeadm writes it: its four manifests are accepted as they are under
//! the policy that `bulkhead policy grant` writes for them, and pods of the same shape run.
//!
//! What differs in the pods that run: the image and the command, since no test starts a
//! real control plane; the paths on the node, which lie in the directory of the test; the
//! probes' ports, and no TLS.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use test_support::BulkheadOptions;
use test_support::images::TESTAPP;

/// Each pod, and the port that its stand-in serves.
const PODS: [(&str, u16); 4] = [
    ("etcd", 18_081),
    ("kube-apiserver", 18_082),
    ("kube-controller-manager", 18_083),
    ("kube-scheduler", 18_084),
];

fn manifest(name: &str) -> PathBuf {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/control-plane");
    manifests.join(format!("{name}.yaml"))
}

/// The manifest with what no test has replaced, line by line.
fn stand_in(text: &str, port: u16, root: &Path) -> String {
    let mut lines = Vec::new();
    let mut in_command = false;
    for line in text.lines() {
        in_command = match line.trim_start() {
            "- command:" => {
                let words = format!("[--listen, 127.0.0.1, --http, \"{port}\"]");
                lines.push(format!("  - args: {words}"));
                true
            }
            _ => in_command && line.starts_with("    - "),
        };
        if in_command {
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        lines.push(match line.trim_start().split_once(": ") {
            Some(("image", _)) => format!("{indent}image: {TESTAPP}"),
            Some(("host", _)) => format!("{indent}host: 127.0.0.1"),
            Some(("port", _)) => format!("{indent}port: {port}"),
            Some(("scheme", _)) => format!("{indent}scheme: HTTP"),
            // Both probes and volumes have paths; volumes' are of directories of the node.
            Some(("path", path)) if is_of_node(path) => {
                format!("{indent}path: {}{path}", root.display())
            }
            Some(("path", _)) => format!("{indent}path: /healthz"),
            _ => line.to_owned(),
        });
    }
    lines.join("\n") + "\n"
}

fn is_of_node(path: &str) -> bool {
    ["/etc/", "/usr/", "/var/"]
        .iter()
        .any(|directory| path.starts_with(directory))
}

/// Runs `bulkhead` with these words and these files; what it prints.
fn bulkhead(ground: &Ground, words: &[&str], files: &[PathBuf]) -> Result<(bool, String)> {
    let mut arguments = words.to_vec();
    for file in files {
        arguments.push(file.to_str().context("a path is no text")?);
    }
    let output = ground.bulkhead.command_line(&arguments)?;
    Ok((output.status.success(), output.stdout + &output.stderr))
}

/// The grants that these manifests need, written by the command for that.
fn grants(ground: &Ground, files: &[PathBuf]) -> Result<String> {
    let (_, refused) = bulkhead(ground, &["policy", "check"], files)?;
    ensure!(refused.contains("hostNetwork"), "{refused}");
    let (granted, grants) = bulkhead(ground, &["policy", "grant"], files)?;
    ensure!(granted, "{grants}");
    Ok(grants)
}

#[test]
fn the_manifests_of_a_control_plane_are_accepted_and_pods_of_their_shape_run() -> Result<()> {
    let ground = Ground::start_with(&BulkheadOptions {
        policy: Some(String::new()),
        ..BulkheadOptions::default()
    })?;
    let shared = ground.bulkhead.paths().shared.clone();
    let as_written = PODS.map(|(name, _)| manifest(name));
    let policy = shared.join("control-plane.toml");
    fs::write(&policy, grants(&ground, &as_written)?)?;
    let named = policy.to_str().context("a path is no text")?;
    let (accepted, said) = bulkhead(&ground, &["check", "--policy", named], &as_written)?;
    assert!(accepted && said.matches("accepted").count() == 4, "{said}");

    // A node has these; what is missing above a path that was granted is not made for a pod.
    for there in [
        "etc/kubernetes/pki",
        "etc/ssl",
        "usr/libexec/kubernetes/kubelet-plugins/volume",
        "usr/local/share",
        "usr/share",
        "var/lib",
    ] {
        fs::create_dir_all(shared.join(there))?;
    }
    let mut files = Vec::new();
    for (name, port) in PODS {
        let text = stand_in(&fs::read_to_string(manifest(name))?, port, &shared);
        let file = shared.join(format!("{name}.yaml"));
        fs::write(&file, &text)?;
        files.push(file);
        ground
            .bulkhead
            .write_manifest(&format!("{name}.yaml"), &text)?;
    }
    ground.bulkhead.write_policy(&grants(&ground, &files)?)?;
    for (name, _) in PODS {
        let pod = ground.bulkhead.wait_until_pod_ready(name, TIMEOUT)?;
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    }
    for made in [
        "var/lib/etcd",
        "etc/kubernetes/pki",
        "etc/kubernetes/scheduler.conf",
    ] {
        assert!(shared.join(made).exists(), "{made}");
    }
    Ok(())
}
