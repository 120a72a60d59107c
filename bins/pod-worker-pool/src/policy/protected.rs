//! What of this node no level of the policy gives, nor a grant of something above it:
//! by it a pod could become this process or the runtime.

use std::path::Path;

use node_config::NodeConfig;
use node_policy::Protected;
use topology::{Identities, PROCESSES};

/// The protected paths, users and groups of a node.
pub(super) fn of_node(config: &NodeConfig, identities: &Identities) -> Protected {
    let mut protected = Protected::default();
    let socket = &config.container_runtime.0;
    check(socket, protected.add_runtime_socket(&text(socket)));
    if let Some(manifests) = &config.static_pod_path {
        let what = "where static pods come from";
        check(manifests, protected.add_path(&text(manifests), what));
    }
    let directories = &config.directories;
    for (path, what) in [
        (directories.run_dir.as_path(), "Bulkhead's run directory"),
        (&directories.state_dir, "Bulkhead's state directory"),
        (&directories.process_logs(), "the logs of Bulkhead"),
        (&directories.bin_dir, "Bulkhead's programs"),
        (&directories.root_dir, "the directory of all pods"),
        (
            config.policy_path.parent().unwrap_or(&config.policy_path),
            "the directory of the node policy",
        ),
    ] {
        check(path, protected.add_path(&text(path), what));
    }
    for row in PROCESSES.iter().filter(|row| !row.root) {
        let what = format!("a user of Bulkhead ({})", row.process);
        protected.add_user(identities.uid(row.process), &what);
        let what = format!("a group of Bulkhead ({})", row.process);
        protected.add_group(identities.gid(row.process), &what);
    }
    protected
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A path of the configuration that is relative or has a `..` cannot be compared.
fn check<E: std::error::Error>(path: &Path, added: Result<(), E>) {
    if let Err(error) = added {
        tracing::error!(path = %path.display(), %error, "this path is not protected");
    }
}
