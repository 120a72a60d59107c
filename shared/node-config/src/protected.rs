//! What of this node the node policy protects: by it a pod could become a process of
//! Bulkhead or the container runtime. pod-worker-pool decides with it, and the command
//! line tells with it beforehand how the pool will decide.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use node_policy::{NodePathError, Protected};
use topology::{Identities, PROCESSES};

use crate::resolved::NodeConfig;

/// A path of the configuration that cannot be compared with those of pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be protected")]
pub struct UnprotectedPath {
    /// What it is.
    pub what: &'static str,
    /// Why.
    pub source: NodePathError,
}

/// The protected paths of the node with this configuration, and with `identities` its
/// protected users and groups; and what should be protected and cannot.
#[must_use]
pub fn protected(
    config: &NodeConfig,
    identities: Option<&Identities>,
) -> (Protected, Vec<UnprotectedPath>) {
    let mut protected = Protected::default();
    let mut problems = Vec::new();
    let mut note = |what, added: Result<(), NodePathError>| {
        problems.extend(added.err().map(|source| UnprotectedPath { what, source }));
    };
    for socket in names(&config.container_runtime.0) {
        let added = protected.add_runtime_socket(&socket);
        note("the container runtime's socket", added);
    }
    let directories = &config.directories;
    let logs = [directories.pod_logs(), directories.container_log_links()];
    let policy_directory = config.policy_path.parent().unwrap_or(&config.policy_path);
    let paths = [
        (directories.run_dir.as_path(), "Bulkhead's run directory"),
        (&directories.state_dir, "Bulkhead's state directory"),
        (&directories.bin_dir, "Bulkhead's programs"),
        (&directories.root_dir, "the directory of all pods"),
        (&logs[0], "the logs of all pods"),
        (&logs[1], "the logs of all containers"),
        (policy_directory, "the directory of the node policy"),
        (
            &config.pull_credentials_path,
            "the credentials of registries",
        ),
    ];
    let manifests = config.static_pod_path.as_deref();
    let manifests = manifests.map(|path| (path, "where static pods come from"));
    let objects = config.local_objects_path.as_deref();
    let objects = objects.map(|path| (path, "the ConfigMaps and Secrets of static pods"));
    let programs = config.credential_providers.as_ref();
    let programs = programs.map(|it| (it.bin_dir.as_path(), "the programs that give credentials"));
    let optional = manifests.into_iter().chain(objects).chain(programs);
    for (path, what) in paths.into_iter().chain(optional) {
        for path in names(path) {
            let added = protected.add_path(&path, what);
            note(what, added);
        }
    }
    if let Some(identities) = identities {
        add_users(&mut protected, identities);
    }
    (protected, problems)
}

fn add_users(protected: &mut Protected, identities: &Identities) {
    for row in PROCESSES.iter().filter(|row| !row.root) {
        let user = format!("the user of Bulkhead's {}", row.process);
        protected.add_user(identities.uid(row.process), &user);
        let group = format!("the group of Bulkhead's {}", row.process);
        protected.add_group(identities.gid(row.process), &group);
    }
}

/// A path as it is configured, and without the links on the way to it: a pod may name either.
fn names(path: &Path) -> BTreeSet<String> {
    let all = [path.to_owned(), without_links(path)];
    all.map(|path| path.display().to_string()).into()
}

/// What is not there yet has no links.
fn without_links(path: &Path) -> PathBuf {
    let mut above = path.ancestors();
    let found = above.find_map(|it| Some((it, it.canonicalize().ok()?)));
    let (there, real) = found.unwrap_or((path, path.to_owned()));
    match path.strip_prefix(there) {
        Ok(rest) if rest != Path::new("") => real.join(rest),
        _ => real,
    }
}

#[cfg(test)]
mod tests {

    use node_policy::{Demand, Policy, Subject};
    use pod::PodSource;
    use topology::Process;

    use super::*;
    use crate::testing::node;

    #[test]
    fn not_even_privileged_pods_have_the_agents_own_paths_and_users() {
        let identities = Identities::from_base(60_000).unwrap();
        let (protected, problems) = protected(&node(), Some(&identities));
        assert_eq!(problems, []);
        let policy = Policy::parse("[sources]\nfile = \"privileged\"", protected).unwrap();
        let permit = policy.permit_for(&Subject::new(PodSource::File, "a", "b", "n", Vec::new()));
        for path in [
            "/run/containerd/containerd.sock",
            "/run/bulkhead/pod-worker-pool.sock",
            "/var/lib/bulkhead",
            "/var/lib/kubelet/pods",
            "/var/log/pods/x",
            "/var/log",
            "/usr/libexec/bulkhead/supervisor",
            "/usr/libexec",
            "/etc/bulkhead/policy.toml",
            "/srv/credentials.json",
            "/srv/manifests",
            "/srv/credential-programs/ecr",
        ] {
            let path = path.to_owned();
            let demand = Demand::HostPath {
                path,
                read_only: true,
            };
            assert!(permit.check(&demand, None).is_err(), "{demand}");
        }
        for process in Process::ALL {
            let uid = identities.uid(process);
            let allowed = permit.check(&Demand::User(uid.into()), None).is_ok();
            assert_eq!(allowed, uid == 0, "{process}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_compared_is_told() {
        let mut node = node();
        node.policy_path = "/etc/../x/policy.toml".into();
        let (_, problems) = protected(&node, None);
        let told: Vec<_> = problems.iter().map(|problem| problem.what).collect();
        assert_eq!(told, ["the directory of the node policy"]);
    }

    /// A node keeps its pods on another disk, behind a link.
    #[test]
    fn what_a_configured_path_leads_to_is_protected_too() {
        let disk = tempfile::tempdir().unwrap();
        let disk = disk.path().canonicalize().unwrap();
        let (link, data) = (disk.join("link"), disk.join("data"));
        std::fs::create_dir(&data).unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        let mut config = node();
        // The last directory is made later.
        config.directories.root_dir = link.join("kubelet");
        let (protected, problems) = protected(&config, None);
        assert_eq!(problems, []);
        let policy = Policy::parse("[sources]\nfile = \"privileged\"", protected).unwrap();
        let permit = policy.permit_for(&Subject::new(PodSource::File, "a", "b", "n", Vec::new()));
        for (path, is_refused) in [
            (link.join("kubelet"), true),
            (data.join("kubelet/pods"), true),
            (data.clone(), true),
            (disk.join("other"), false),
        ] {
            let path = path.display().to_string();
            let demand = Demand::HostPath {
                path: path.clone(),
                read_only: true,
            };
            let refused = permit.check(&demand, None).is_err();
            assert_eq!(refused, is_refused, "{path}");
        }
    }
}
