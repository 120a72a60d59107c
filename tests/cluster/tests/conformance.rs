//! The upstream project's own tests of a node.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use cluster::conformance::{Outcomes, Program, passed};
use cluster::kubelet::KubeletCluster;
use cluster::{Cluster, ControlPlane};
use test_support::Containerd;

/// The names that pass, one a line.
const PASSED: &str = include_str!("../data/node-conformance-passed.txt");

/// Has the names that passed added to the file.
const UPDATE: &str = "BULKHEAD_CONFORMANCE_UPDATE";
/// Has the tests run against a kubelet too.
const PEER: &str = "BULKHEAD_CONFORMANCE_PEER";

/// Volumes of tokens are not supported yet: pods get none.
const FLAGS: [&str; 1] = ["--disable-admission-plugins=ServiceAccount"];

fn known() -> BTreeSet<&'static str> {
    PASSED.lines().filter(|line| !line.is_empty()).collect()
}

fn run(
    program: &Program,
    name: &str,
    plane: &ControlPlane,
    containerd: &Containerd,
) -> Result<Outcomes> {
    let reports = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&reports)?;
    let outcomes = program.run(plane, containerd, &reports)?;
    let passed = passed(&outcomes);
    let mut said = format!("{name}: {} of {} pass\n", passed.len(), outcomes.len());
    for new in passed.difference(&known()) {
        said += &format!("new: {new}\n");
    }
    for (name, outcome) in outcomes.iter().filter(|(_, it)| *it != "passed") {
        said += &format!("{name}: {outcome}\n");
    }
    // Past the capture of the test's output.
    write!(io::stdout(), "{said}")?;
    Ok(outcomes)
}

#[test]
fn what_passed_of_the_upstream_tests_passes() -> Result<()> {
    let Some(program) = Program::find() else {
        test_support::not_tried(
            "the upstream tests: BULKHEAD_CONFORMANCE or KUBEBUILDER_ASSETS is not set",
        );
        return Ok(());
    };
    let cluster = Cluster::start_with_flags(&FLAGS)?;
    let containerd = &cluster.ground.containerd;
    let outcomes = run(&program, "bulkhead", &cluster.plane, containerd)?;
    let passed = passed(&outcomes);
    let known = known();
    if std::env::var_os(UPDATE).is_some() {
        let all: Vec<&str> = passed.union(&known).copied().collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/node-conformance-passed.txt");
        fs::write(path, all.join("\n") + "\n")?;
    }
    let lost = program.not_passed(&known, &outcomes);
    ensure!(lost.is_empty(), "they do not pass any more: {lost:#?}");
    Ok(())
}

#[test]
fn what_passes_of_the_upstream_tests_passes_against_a_kubelet() -> Result<()> {
    let (Some(program), Some(_)) = (Program::find(), std::env::var_os(PEER)) else {
        return Ok(());
    };
    let Some(kubelet) = KubeletCluster::start_with_flags(&FLAGS)? else {
        return Ok(());
    };
    let outcomes = run(&program, "kubelet", &kubelet.plane, &kubelet.containerd)?;
    let other = program.not_passed(&known(), &outcomes);
    ensure!(other.is_empty(), "a kubelet does not pass: {other:#?}");
    Ok(())
}
