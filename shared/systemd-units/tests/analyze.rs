//! What `systemd-analyze` says of the units, with nothing but their files: that they have no
//! mistake, and how exposed each service is. It takes no running systemd.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use systemd_units::{PROGRAMS, bundle, service_name};
use tempfile::TempDir;
use topology::{Need, PROCESSES, Process, ProcessRow};

/// Most exposure of a service, times ten: systemd-analyze(1), `security`. Mounts of its own,
/// which most of what is left asks for, nobody can have who mounts what pods see:
/// pod-worker-pool, and the supervisor that starts it.
fn exposure_max(row: &ProcessRow) -> u32 {
    match row.process {
        Process::Supervisor => 54,
        Process::PodWorkerPool => 37,
        _ if row.needs(Need::Internet) => 15,
        _ => 5,
    }
}

/// Of what prepares the node: root with five capabilities, which makes directories and sets
/// quotas wherever the node has them, and asks systemd to start the target.
const EXPOSURE_OF_PREPARE_MAX: u32 = 75;

/// Of what loads the rules for loopback addresses: root of the node's network.
const EXPOSURE_OF_LOOPBACK_MAX: u32 = 14;

/// A root directory with the units, stand-ins for the programs, and systemd's own units.
fn installed() -> (TempDir, Vec<PathBuf>) {
    let root = tempfile::tempdir().unwrap();
    let place = |path: &str| root.path().join(path.trim_start_matches('/'));
    let program = |path: PathBuf| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    for process in Process::ALL {
        program(place(PROGRAMS).join(process.name()));
    }
    program(place("/bin/kill"));
    program(place("/bin/sh"));
    program(place("/usr/sbin/nft"));
    let systemd = Path::new("/usr/lib/systemd/system");
    let own = place("/usr/lib/systemd");
    fs::create_dir_all(&own).unwrap();
    let mut copy = Command::new("cp");
    let copied = copy.arg("--archive").arg(systemd).arg(&own).status();
    assert!(
        copied.unwrap().success(),
        "{} is missing: install the package systemd",
        systemd.display()
    );
    let units = place("/etc/systemd/system");
    fs::create_dir_all(&units).unwrap();
    let mut installed = Vec::new();
    let written = [
        (
            "bulkhead.service",
            include_str!("../../../systemd/bulkhead.service"),
        ),
        (
            "bulkhead-loopback.service",
            include_str!("../../../systemd/bulkhead-loopback.service"),
        ),
    ];
    let written = written.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let files = bundle().into_iter().map(|file| (file.name, file.text));
    for (name, text) in files.chain(written) {
        let path = units.join(name);
        fs::write(&path, text).unwrap();
        installed.push(path);
    }
    (root, installed)
}

fn analyze(words: &[&str], root: &TempDir, units: &[PathBuf]) -> Output {
    let mut command = Command::new("systemd-analyze");
    command
        .args(words)
        .arg(format!("--root={}", root.path().display()))
        .args(units);
    let output = command.output();
    output.expect("systemd-analyze, of the package systemd, has to be there")
}

/// Of jobs that wait for each other, systemd leaves some out.
#[test]
fn a_boot_starts_all_that_is_enabled() {
    let (root, _units) = installed();
    let wants = root
        .path()
        .join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    for enabled in ["bulkhead.target", "bulkhead.service"] {
        let link = wants.join(enabled);
        symlink(Path::new("..").join(enabled), &link).unwrap();
        let output = analyze(&["verify"], &root, &["multi-user.target".into()]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!told.contains("ordering cycle"), "{enabled}: {told}");
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn systemd_finds_no_mistake_in_the_units() {
    let (root, units) = installed();
    // It tells of words that it does not know, and succeeds.
    let output = analyze(&["verify"], &root, &units);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(told, "");
    assert!(output.status.success());
}

#[test]
fn systemd_finds_a_word_that_it_does_not_know() {
    let (root, units) = installed();
    let unit = units.iter().find(|unit| unit.ends_with("bulkhead.target"));
    let unit = unit.unwrap().clone();
    let text = fs::read_to_string(&unit).unwrap();
    fs::write(&unit, text.replace("Description=", "Descripton=")).unwrap();
    let output = analyze(&["verify"], &root, &[unit]);
    assert_ne!(output.stderr, b"");
}

#[test]
fn no_service_is_more_exposed_than_it_has_to_be() {
    let (root, _) = installed();
    let of_processes = PROCESSES.iter().map(|row| match row.process {
        Process::Supervisor => ("bulkhead.service".to_owned(), exposure_max(row)),
        other => (service_name(other), exposure_max(row)),
    });
    let others = [
        ("bulkhead-prepare.service", EXPOSURE_OF_PREPARE_MAX),
        ("bulkhead-loopback.service", EXPOSURE_OF_LOOPBACK_MAX),
    ];
    let others = others.map(|(name, most)| (name.to_owned(), most));
    for (name, most) in of_processes.chain(others) {
        let threshold = format!("--threshold={most}");
        let words = ["security", "--offline=yes", "--no-pager", &threshold];
        let output = analyze(&words, &root, &[PathBuf::from(&name)]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name}: {told}");
        assert!(told.contains("Overall exposure level"), "{told}");
    }
}
