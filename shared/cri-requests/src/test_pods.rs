//! The node, pods and container inputs that the tests of the builders share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use cri::v1::VersionResponse;
use local_objects::Objects;
use node_config::CgroupDriver;
use node_layout::{CgroupNaming, IdRange, paths};
use pod::runtime_class::RuntimeClass;
use pod::{Pod, PodExt, PodIdentity};

use pod_volumes::MountedVolume;

use crate::{ContainerInput, EnvFiles, ImageUser, NodeFacts, TerminationLog};

/// A pod from its JSON.
pub(crate) fn pod(json: &str) -> Pod {
    serde_json::from_str(json).unwrap()
}

/// The node that the recorded kubelet ran on.
pub(crate) fn node() -> NodeFacts {
    let amount = |text: &str| text.parse().unwrap();
    NodeFacts {
        node_ips: vec!["10.123.0.1".parse().unwrap()],
        root_dir: "/var/lib/kubelet".into(),
        pod_logs_dir: "/var/log/pods".into(),
        cluster_dns: vec!["10.96.0.10".parse().unwrap()],
        cluster_domain: "cluster.local".into(),
        cpu_cfs_quota: true,
        cpu_cfs_quota_period_micros: 100_000,
        cgroups: CgroupNaming {
            driver: CgroupDriver::Cgroupfs,
            root: "/".into(),
            per_qos: true,
        },
        memory_capacity_bytes: 25_279_000_576,
        allocatable: [
            ("cpu", "2"),
            ("memory", "25279000576"),
            ("ephemeral-storage", "1000"),
        ]
        .map(|(name, text)| (name.to_owned(), amount(text)))
        .into(),
        seccomp_default: false,
        selinux: false,
        memory_qos: None,
        pod_memory_bytes: 25_279_000_576,
        page_bytes: 4096,
        oom_kills_all: false,
        runtime_classes: [(
            "vm".to_owned(),
            RuntimeClass {
                handler: "kata".to_owned(),
                ..RuntimeClass::default()
            },
        )]
        .into(),
        huge_page_sizes: vec![2 << 20, 1 << 30],
    }
}

/// Owns what a [`ContainerInput`] borrows; the first container of the pod, unless
/// another is named.
pub(crate) struct ContainerCase {
    pub(crate) pod: Pod,
    pub(crate) container: String,
    pub(crate) attempt: u32,
    pub(crate) image_id: String,
    pub(crate) image_user: ImageUser,
    pub(crate) node: NodeFacts,
    pub(crate) ids: Option<IdRange>,
    pub(crate) pod_ips: Vec<IpAddr>,
    pub(crate) volumes: BTreeMap<String, MountedVolume>,
    pub(crate) volume_images: BTreeMap<String, String>,
    pub(crate) sub_paths: BTreeMap<usize, PathBuf>,
    pub(crate) recursive_read_only: bool,
    pub(crate) runtime: Option<VersionResponse>,
    pub(crate) env_files: EnvFiles,
    pub(crate) service_variables: BTreeMap<String, String>,
    pub(crate) objects: Objects,
}

impl ContainerCase {
    pub(crate) fn new(pod: Pod) -> ContainerCase {
        ContainerCase {
            container: pod.containers()[0].name.clone(),
            pod,
            attempt: 0,
            image_id: "sha256:1".to_owned(),
            image_user: ImageUser::Uid(0),
            node: node(),
            ids: None,
            pod_ips: vec!["10.85.3.2".parse().unwrap()],
            volumes: BTreeMap::new(),
            volume_images: BTreeMap::new(),
            sub_paths: BTreeMap::new(),
            recursive_read_only: false,
            runtime: None,
            env_files: EnvFiles::new(),
            service_variables: BTreeMap::new(),
            objects: Objects::default(),
        }
    }

    pub(crate) fn input(&self) -> ContainerInput<'_> {
        let (_, container) = self.pod.container(&self.container).unwrap();
        let root_dir = &self.node.root_dir;
        let path = container.termination_message_path.as_deref();
        let directory = root_dir
            .join("pods")
            .join(self.pod.uid())
            .join("containers");
        ContainerInput {
            process_namespace_of: None,
            pod: &self.pod,
            container,
            attempt: self.attempt,
            image_id: &self.image_id,
            image_user: &self.image_user,
            node: &self.node,
            ids: self.ids,
            pod_ips: &self.pod_ips,
            volumes: &self.volumes,
            volume_images: &self.volume_images,
            sub_paths: &self.sub_paths,
            recursive_read_only: self.recursive_read_only,
            runtime: self.runtime.as_ref(),
            env_files: &self.env_files,
            service_variables: &self.service_variables,
            objects: &self.objects,
            hosts_file: match PodIdentity::of(&self.pod) {
                Ok(identity) => paths::hosts_file(root_dir, identity.uid()),
                Err(_) => PathBuf::new(),
            },
            termination_log: Some(TerminationLog {
                host_path: directory.join(&self.container).join("0badcafe"),
                container_path: path.unwrap_or("/dev/termination-log").to_owned(),
            }),
        }
    }
}
