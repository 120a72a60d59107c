//! The upstream project's own tests of a node.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use cluster::conformance::{Outcomes, Program};
use cluster::kubelet::KubeletCluster;
use cluster::{Cluster, ControlPlane};
use test_support::Containerd;

/// Has the names that passed added to the file of those that are known to.
const UPDATE: &str = "BULKHEAD_CONFORMANCE_UPDATE";
/// Has the tests run against a kubelet too.
const PEER: &str = "BULKHEAD_CONFORMANCE_PEER";

/// Volumes of tokens are not supported yet: pods get none.
const FLAGS: [&str; 1] = ["--disable-admission-plugins=ServiceAccount"];

fn run(
    program: &Program,
    node: &str,
    plane: &ControlPlane,
    containerd: &Containerd,
) -> Result<Outcomes> {
    let reports = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(node);
    let outcomes = program.run(plane, containerd, &reports)?;
    // Past the capture of the test's output.
    write!(io::stdout(), "{node}: {}", outcomes.summary())?;
    Ok(outcomes)
}

#[test]
fn the_upstream_tests_that_are_known_to_pass_do() -> Result<()> {
    let Some(program) = Program::find() else {
        test_support::not_tried(
            "the upstream tests: BULKHEAD_CONFORMANCE or KUBEBUILDER_ASSETS is not set",
        );
        return Ok(());
    };
    let cluster = Cluster::start_with_flags(&FLAGS)?;
    let containerd = &cluster.ground.containerd;
    let outcomes = run(&program, "bulkhead", &cluster.plane, containerd)?;
    if std::env::var_os(UPDATE).is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/node-conformance-passed.txt");
        fs::write(path, outcomes.all_known())?;
    }
    let lost = outcomes.lost();
    ensure!(lost.is_empty(), "they do not pass any more: {lost:#?}");
    Ok(())
}

#[test]
fn the_upstream_tests_that_pass_do_against_a_kubelet() -> Result<()> {
    let (Some(program), Some(_)) = (Program::find(), std::env::var_os(PEER)) else {
        return Ok(());
    };
    let Some(kubelet) = KubeletCluster::start_with_flags(&FLAGS)? else {
        return Ok(());
    };
    let outcomes = run(&program, "kubelet", &kubelet.plane, &kubelet.containerd)?;
    let lost = outcomes.lost();
    ensure!(lost.is_empty(), "a kubelet does not pass: {lost:#?}");
    Ok(())
}
