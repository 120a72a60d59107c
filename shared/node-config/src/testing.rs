//! A configuration for the tests of this crate.

use crate::credential_providers::CredentialProviders;
use crate::resolved::{DirectoryLayout, NodeConfig};

pub(crate) fn node() -> NodeConfig {
    let directories = DirectoryLayout {
        run_dir: "/run/bulkhead".into(),
        state_dir: "/var/lib/bulkhead".into(),
        root_dir: "/var/lib/kubelet".into(),
        log_dir: "/var/log".into(),
        bin_dir: "/usr/libexec/bulkhead".into(),
    };
    let mut node = NodeConfig::with_defaults("n", directories);
    node.static_pod_path = Some("/srv/manifests".into());
    node.pull_credentials_path = "/srv/credentials.json".into();
    node.local_objects_path = Some("/srv/objects".into());
    node.credential_providers = Some(CredentialProviders {
        bin_dir: "/srv/credential-programs".into(),
        providers: Vec::new(),
    });
    node
}
