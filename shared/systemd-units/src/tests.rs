//! What is shipped is what this crate makes.

use std::fs;
use std::path::Path;

use super::*;

fn directory() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd/bundle")
}

fn names_below(directory: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => names_below(&entry.path(), &format!("{name}/"), found),
            false => found.push(name),
        }
    }
}

#[test]
fn the_bundle_that_is_shipped_is_that_of_the_topology() {
    let mut names = Vec::new();
    names_below(&directory(), "", &mut names);
    names.sort();
    let made = bundle();
    let expected: Vec<&str> = made.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, expected, "run `cargo xtask units`");
    for file in made {
        let shipped = fs::read_to_string(directory().join(&file.name)).unwrap();
        assert_eq!(shipped, file.text, "{}: run `cargo xtask units`", file.name);
    }
}

#[test]
fn the_preset_that_is_shipped_enables_nothing_and_names_what_can_be_enabled() {
    let presets = directory().join("../system-preset");
    let mut names = Vec::new();
    names_below(&presets, "", &mut names);
    let made = preset();
    assert_eq!(names, [made.name.as_str()], "run `cargo xtask units`");
    let shipped = fs::read_to_string(presets.join(&made.name)).unwrap();
    assert_eq!(shipped, made.text, "run `cargo xtask units`");
    let lines = shipped.lines().filter(|line| !line.starts_with('#'));
    let disabled: Vec<&str> = lines
        .map(|it| it.strip_prefix("disable ").unwrap())
        .collect();
    let supervisor = fs::read_to_string(directory().join("../bulkhead.service")).unwrap();
    let mut units = bundle();
    units.push(UnitFile {
        name: SUPERVISOR.to_owned(),
        text: supervisor,
    });
    for unit in units {
        let can_be_enabled = unit.text.contains("\n[Install]\n");
        let is_disabled = disabled.contains(&unit.name.as_str());
        assert_eq!(is_disabled, can_be_enabled, "{}", unit.name);
    }
}

/// Settings that give a unit mounts of its own: exec_needs_mount_namespace() of systemd.
const MOUNTS_OF_ITS_OWN: [&str; 20] = [
    "PrivateIPC",
    "PrivateTmp",
    "PrivateDevices",
    "PrivateMounts",
    "ProtectSystem",
    "ProtectHome",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectControlGroups",
    "ProtectProc",
    "ProcSubset",
    "ReadWritePaths",
    "ReadOnlyPaths",
    "InaccessiblePaths",
    "NoExecPaths",
    "ExecPaths",
    "BindPaths",
    "TemporaryFileSystem",
    "RootDirectory",
];

#[test]
fn the_container_runtime_sees_what_a_process_mounts() {
    let mut mounting = PROCESSES
        .iter()
        .filter(|row| row.needs(topology::Need::Mounts))
        .peekable();
    assert!(mounting.peek().is_some());
    for row in mounting {
        let text = service::service(row);
        for (name, _value) in text.lines().filter_map(|line| line.split_once('=')) {
            assert!(
                !MOUNTS_OF_ITS_OWN.contains(&name),
                "{}: {name}",
                row.process
            );
        }
    }
}

/// The values of a setting in a unit, in their order.
fn values<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    let values = lines.filter(|(found, _)| *found == name);
    values.map(|(_, value)| value).collect()
}

#[test]
fn nobody_has_more_room_beside_its_state_than_its_row_says() {
    let text = service::service(topology::row(Process::CredentialProvider));
    assert_eq!(values(&text, "PrivateTmp"), [""; 0], "it has no bound");
    let mounted = values(&text, "TemporaryFileSystem");
    let options = |size| format!("mode=1777,size={size}M,nr_inodes=4096,nosuid,nodev,noexec");
    let expected = [
        format!("/dev/shm:{}", options(16)),
        format!("/tmp:{}", options(32)),
        format!("/var/tmp:{}", options(16)),
        "/run:ro".to_owned(),
    ];
    assert_eq!(mounted, expected);
    let others = supervised().filter(|row| row.is_held_to_its_files());
    for row in others {
        let text = service::service(row);
        let none = "/tmp /var/tmp -/dev/shm";
        assert_eq!(
            values(&text, "InaccessiblePaths"),
            [none],
            "{}",
            row.process
        );
        assert_eq!(values(&text, "TemporaryFileSystem"), ["/run:ro"]);
    }
}

#[test]
fn where_a_process_may_write_it_runs_nothing() {
    for row in supervised().filter(|row| !row.needs(topology::Need::Mounts)) {
        let text = service::service(row);
        let own = format!("/var/lib/bulkhead/{}", row.process);
        assert_eq!(values(&text, "ReadWritePaths"), [&own]);
        assert_eq!(values(&text, "NoExecPaths"), [&own]);
    }
}

#[test]
fn units_refuse_from_outside_what_nobody_connects_to() {
    let refused = hardening::refused_networks();
    assert!(refused.contains("169.254.0.0/16"), "{refused}");
    for row in PROCESSES {
        let supervisor = fs::read_to_string(directory().join("../bulkhead.service")).unwrap();
        let text = match row.process {
            Process::Supervisor => supervisor,
            _ => service::service(row),
        };
        let expected = match row.process {
            // Its programs may ask for credentials where clouds have them.
            Process::CredentialProvider => vec![],
            _ if row.needs(topology::Need::Internet) => vec![&*refused],
            _ => vec!["any"],
        };
        assert_eq!(values(&text, "IPAddressDeny"), expected, "{}", row.process);
    }
}

#[test]
fn a_process_is_started_again_soon_however_often_it_ends() {
    for row in supervised() {
        let text = service::service(row);
        assert_eq!(values(&text, "Restart"), ["always"]);
        assert_eq!(values(&text, "RestartSec"), ["100ms"]);
        assert_eq!(values(&text, "StartLimitIntervalSec"), ["0"]);
    }
}

#[test]
fn an_upgrade_restarts_each_process_once_and_the_pool_last() {
    let order = order_of_upgrade();
    assert_eq!(order.last(), Some(&Process::PodWorkerPool.name()));
    let mut names: Vec<&str> = supervised().map(|row| row.process.name()).collect();
    let mut sorted = order.clone();
    names.sort_unstable();
    sorted.sort_unstable();
    assert_eq!(sorted, names);
}
