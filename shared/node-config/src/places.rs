//! Where the places are that the rows of the topology name. What a process may open is
//! data there; this says which paths that are on this node.

use std::path::{Path, PathBuf};

use topology::{Access, Place, Process};

use crate::resolved::NodeConfig;

/// Where distributions keep the certificates of authorities, and what links there lead to.
const AUTHORITIES: &[&str] = &[
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];

/// Files and libraries of getaddrinfo(3) and nss(5).
const NAME_RESOLUTION: &[&str] = &[
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// What every process reads before it is sealed: libraries, and which numbers users have.
/// The last two are those of distributions that keep all programs in one directory.
pub const STARTING: &[&str] = &[
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/nix/store",
    "/gnu/store",
];

/// Where the message bus of the system listens, by which systemd and logind are asked.
pub const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// Where logind's configuration is added to (logind.conf(5)).
pub const LOGIN_MANAGER: &str = "/etc/systemd/logind.conf.d";

/// The hosts file that pods on the node's network get.
const HOSTS: &str = "/etc/hosts";

/// The paths of a place of `process`; each stands for everything below it too.
///
/// Empty where the configuration does not tell it: files that the supervisor's command
/// line names, authorities of `SSL_CERT_FILE` and `SSL_CERT_DIR` (they come on top of the
/// usual ones), and what volumes of pods name.
#[must_use]
pub fn paths(config: &NodeConfig, process: Process, place: Place) -> Vec<PathBuf> {
    let directories = &config.directories;
    let fixed = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
    match place {
        Place::RunDirectory => vec![directories.run_dir.clone()],
        Place::OwnState => vec![directories.state(process)],
        Place::Programs => vec![directories.bin_dir.clone()],
        Place::Manifests => config.static_pod_path.iter().cloned().collect(),
        Place::LocalObjects => config.local_objects_path.iter().cloned().collect(),
        Place::Authorities => fixed(AUTHORITIES),
        Place::NameResolution => fixed(NAME_RESOLUTION),
        Place::NodePolicy => vec![config.policy_path.clone()],
        Place::PullCredentials => vec![config.pull_credentials_path.clone()],
        Place::CredentialPrograms => {
            let configured = config.credential_providers.iter();
            configured.map(|it| it.bin_dir.clone()).collect()
        }
        Place::RuntimeSocket => vec![config.container_runtime.0.clone()],
        Place::PodDirectories => vec![directories.root_dir.clone()],
        Place::PodLogs => vec![directories.pod_logs(), directories.container_log_links()],
        Place::Cgroups => fixed(&["/sys/fs/cgroup"]),
        Place::SystemBus => fixed(&[SYSTEM_BUS]),
        Place::LoginManager => fixed(&[LOGIN_MANAGER]),
        Place::Kernel => fixed(&["/proc", "/sys"]),
        Place::NodeNames => {
            let resolver = config.resolv_conf.iter().cloned();
            resolver.chain([PathBuf::from(HOSTS)]).collect()
        }
        Place::ConfigurationFiles | Place::HostPaths => Vec::new(),
    }
}

/// Whether the row of `process` lists what it would take to open `path` for `access`.
#[must_use]
pub fn may_open(config: &NodeConfig, process: Process, path: &Path, access: Access) -> bool {
    let rows = topology::row(process).opens.iter();
    rows.filter(|row| row.access >= access)
        .flat_map(|row| paths(config, process, row.place))
        .any(|listed| path.starts_with(listed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    #[test]
    fn a_process_may_open_what_its_row_lists_and_nothing_beside() {
        let config = node();
        let (state, root) = (&config.directories.state_dir, &config.directories.root_dir);
        let policy = &config.policy_path;
        for (process, path, access, expected) in [
            (Process::Prober, state.join("prober/a"), Access::Write, true),
            (Process::Prober, state.join("pleg/a"), Access::Read, false),
            (Process::Prober, state.clone(), Access::Read, false),
            (Process::Prober, "/etc/hosts".into(), Access::Read, true),
            (Process::Prober, "/etc/hosts".into(), Access::Write, false),
            (Process::Prober, "/etc/shadow".into(), Access::Read, false),
            (Process::PodWorkerPool, policy.clone(), Access::Read, true),
            (Process::PodWorkerPool, policy.clone(), Access::Write, false),
            (Process::PodWorkerPool, root.join("x"), Access::Write, true),
            (Process::SyncLoop, root.join("x"), Access::Read, false),
            (Process::SyncLoop, policy.clone(), Access::Read, false),
        ] {
            let found = may_open(&config, process, &path, access);
            assert_eq!(found, expected, "{process} {path:?} {access:?}");
        }
    }

    #[test]
    fn every_place_but_those_of_others_has_a_path() {
        let config = node();
        for row in topology::PROCESSES {
            for opened in row.opens {
                let unknown = [Place::ConfigurationFiles, Place::HostPaths];
                let found = paths(&config, row.process, opened.place);
                assert_eq!(
                    found.is_empty(),
                    unknown.contains(&opened.place),
                    "{} {:?}",
                    row.process,
                    opened.place
                );
                assert!(found.iter().all(|path| path.is_absolute()), "{found:?}");
            }
        }
    }
}
