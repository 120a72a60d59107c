//! From requests to demands: what is changed in one that asks for nothing, and what it
//! asks for then.

use cri::v1::{Int64Value, LinuxContainerResources, Mount, MountPropagation, PortMapping};

use super::*;
use crate::testing::{self, UID, identity, places, sandbox_security, security};

fn of_sandbox(change: impl Fn(&mut v1::PodSandboxConfig)) -> Result<Vec<Demand>, String> {
    let mut config = testing::sandbox();
    change(&mut config);
    let asked = sandbox(&identity(), &config, &places());
    asked
        .map(|(asked, _)| asked.into_iter().map(|asked| asked.demand).collect())
        .map_err(|denial| denial.to_string())
}

fn of_container(change: impl Fn(&mut v1::ContainerConfig)) -> Result<Vec<Demand>, String> {
    let mut config = testing::container("image");
    change(&mut config);
    let asked = container(&identity(), &config, (&testing::volumes(), None), &places());
    asked
        .map(|(asked, _)| asked.into_iter().map(|asked| asked.demand).collect())
        .map_err(|denial| denial.to_string())
}

fn mount(host_path: &str) -> Mount {
    Mount {
        container_path: "/x".to_owned(),
        host_path: host_path.to_owned(),
        ..Mount::default()
    }
}

const NODE: i32 = v1::NamespaceMode::Node as i32;

#[test]
fn what_asks_for_nothing_has_no_demands() {
    assert_eq!(of_sandbox(|_| {}), Ok(Vec::new()));
    assert_eq!(of_container(|_| {}), Ok(Vec::new()));
}

#[test]
fn what_a_sandbox_asks_for_is_demanded() {
    type Change = fn(&mut v1::PodSandboxConfig);
    let namespaces = |config: &mut v1::PodSandboxConfig| {
        let options = sandbox_security(config)
            .namespace_options
            .get_or_insert_default();
        (options.network, options.pid, options.ipc) = (NODE, NODE, NODE);
    };
    let all = vec![Demand::HostNetwork, Demand::HostPid, Demand::HostIpc];
    assert_eq!(of_sandbox(namespaces), Ok(all));
    let port = |host_port| PortMapping {
        host_port,
        ..PortMapping::default()
    };
    let with_ports = move |config: &mut v1::PodSandboxConfig| {
        config.port_mappings = vec![port(0), port(80)];
    };
    assert_eq!(of_sandbox(with_ports), Ok(vec![Demand::HostPort(80)]));
    let cases: [(Change, Demand); 5] = [
        (
            |config| sandbox_security(config).privileged = true,
            Demand::Privileged,
        ),
        (
            |config| {
                let linux = config.linux.as_mut().unwrap();
                linux.sysctls.insert("kernel/msgmax".into(), "1".into());
            },
            Demand::Sysctl("kernel.msgmax".to_owned()),
        ),
        (
            |config| sandbox_security(config).run_as_user = Some(Int64Value { value: 7 }),
            Demand::User(7),
        ),
        (
            |config| sandbox_security(config).supplemental_groups = vec![9],
            Demand::Group(9),
        ),
        (
            |config| {
                let seccomp = sandbox_security(config).seccomp.as_mut().unwrap();
                seccomp.profile_type = ProfileType::Unconfined.into();
            },
            Demand::SeccompUnset,
        ),
    ];
    for (change, demand) in cases {
        assert_eq!(of_sandbox(change), Ok(vec![demand]));
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn what_a_container_asks_for_is_demanded() {
    type Change = fn(&mut v1::ContainerConfig);
    let cases: [(Change, Demand); 17] = [
        (|it| security(it).privileged = true, Demand::Privileged),
        (
            |it| security(it).namespace_options.as_mut().unwrap().network = NODE,
            Demand::HostNetwork,
        ),
        (
            |it| security(it).namespace_options.as_mut().unwrap().pid = NODE,
            Demand::HostPid,
        ),
        (
            |it| {
                let capabilities = security(it).capabilities.as_mut().unwrap();
                capabilities.add_capabilities = vec!["cap_sys_admin".to_owned()];
            },
            Demand::Capability("SYS_ADMIN".to_owned()),
        ),
        (
            |it| {
                let capabilities = security(it).capabilities.as_mut().unwrap();
                capabilities.add_ambient_capabilities = vec!["NET_RAW".to_owned()];
            },
            Demand::Capability("NET_RAW".to_owned()),
        ),
        (
            |it| security(it).capabilities = None,
            Demand::DefaultCapabilities,
        ),
        (
            |it| security(it).no_new_privs = false,
            Demand::PrivilegeEscalation,
        ),
        (
            |it| security(it).run_as_group = Some(Int64Value { value: 8 }),
            Demand::Group(8),
        ),
        (
            |it| security(it).supplemental_groups = vec![9],
            Demand::Group(9),
        ),
        (
            |it| drop(security(it).masked_paths.pop()),
            Demand::UnmaskedProc,
        ),
        (
            |it| drop(security(it).readonly_paths.pop()),
            Demand::UnmaskedProc,
        ),
        (
            |it| security(it).seccomp_profile_path = "unconfined".to_owned(),
            Demand::SeccompUnconfined,
        ),
        (
            |it| {
                security(it).seccomp = None;
                security(it).seccomp_profile_path = String::new();
            },
            Demand::SeccompUnset,
        ),
        (
            |it| security(it).apparmor_profile = "unconfined".to_owned(),
            Demand::AppArmorUnconfined,
        ),
        (
            |it| {
                security(it).selinux_options = Some(v1::SeLinuxOption {
                    r#type: "spc_t".to_owned(),
                    level: "s0".to_owned(),
                    ..v1::SeLinuxOption::default()
                });
            },
            Demand::SeLinux(SeLinuxOption::Type, "spc_t".to_owned()),
        ),
        (
            |it| {
                it.devices.push(v1::Device {
                    host_path: "/dev/sda".to_owned(),
                    ..v1::Device::default()
                });
            },
            Demand::Device {
                path: "/dev/sda".to_owned(),
                block: true,
            },
        ),
        (
            |it| {
                let mut shared = it.mounts[0].clone();
                shared.propagation = MountPropagation::PropagationBidirectional.into();
                it.mounts.push(shared);
            },
            Demand::Privileged,
        ),
    ];
    for (change, demand) in cases {
        assert_eq!(of_container(change), Ok(vec![demand]));
    }
}

#[test]
fn a_mount_is_the_pods_own_or_bound_of_a_path_that_is_demanded_again() {
    let own = |below: &str| format!("/var/lib/kubelet/pods/{UID}/{below}");
    let asks = |path: &str, read_only| {
        let path = path.to_owned();
        of_container(move |config| {
            let mut mount = mount(&path);
            mount.readonly = read_only;
            config.mounts.push(mount);
        })
    };
    for (place, read_only, path) in [
        (testing::host_path_mount("root"), false, "/"),
        (testing::host_path_mount("etc"), true, "/etc"),
        (own("volume-subpaths/etc/c/0"), true, "/etc"),
    ] {
        let demand = Demand::HostPath {
            path: path.to_owned(),
            read_only,
        };
        assert_eq!(asks(&place, read_only), Ok(vec![demand]));
    }
    let empty_dir = own("volumes/kubernetes.io~empty-dir/v");
    for place in [&empty_dir, &own("volume-subpaths/v/c/0")] {
        assert_eq!(asks(place, false), Ok(Vec::new()));
    }
    for place in [
        "/",
        "/etc",
        "/run/containerd/containerd.sock",
        "/var/lib/kubelet/pods/other/volumes/kubernetes.io~empty-dir/v",
        // No hostPath volume.
        &testing::host_path_mount("v"),
        "",
        "etc",
        "/etc/../root",
        &format!("{empty_dir}/../../../../other/x"),
    ] {
        let refused = asks(place, true).unwrap_err();
        assert!(refused.contains("not the pod's own"), "{place}: {refused}");
    }
    for place in [
        testing::host_path_mount("other"),
        own("volume-subpaths/other/c/0"),
    ] {
        let refused = asks(&place, true).unwrap_err();
        assert!(refused.contains("of the volume \"other\""), "{refused}");
    }
}

#[test]
fn who_a_container_runs_as_is_told_by_number_or_name_or_left_to_the_image() {
    for (user, name, expected) in [
        (Some(7), "", Some(RunsAs::Uid(7))),
        // As the runtime reads it.
        (Some(7), "app", Some(RunsAs::Uid(7))),
        (None, "app", Some(RunsAs::Name("app".to_owned()))),
        (None, "", None),
    ] {
        let mut config = testing::container("image");
        security(&mut config).run_as_user = user.map(|value| Int64Value { value });
        security(&mut config).run_as_username = name.to_owned();
        let (_, runs_as) =
            container(&identity(), &config, (&testing::volumes(), None), &places()).unwrap();
        assert_eq!(runs_as, expected);
    }
}

#[test]
fn a_sandbox_of_another_pod_is_refused() {
    type Change = fn(&mut v1::PodSandboxConfig);
    let cases: [(Change, &str); 12] = [
        (
            |it| it.metadata.as_mut().unwrap().uid = "other".to_owned(),
            "metadata.uid",
        ),
        (
            |it| it.metadata.as_mut().unwrap().name = "other".to_owned(),
            "metadata.name",
        ),
        (
            |it| it.metadata.as_mut().unwrap().namespace = "other".to_owned(),
            "metadata.namespace",
        ),
        (
            |it| {
                drop(
                    it.labels
                        .insert("io.kubernetes.pod.uid".into(), "other".into()),
                )
            },
            "labels.io.kubernetes.pod.uid",
        ),
        (
            |it| drop(it.labels.remove("io.kubernetes.pod.name")),
            "labels.io.kubernetes.pod.name",
        ),
        (|it| it.log_directory = "/etc".to_owned(), "log_directory"),
        (
            |it| it.linux.as_mut().unwrap().cgroup_parent = "/".to_owned(),
            "linux.cgroup_parent",
        ),
        (
            |it| {
                let linux = it.linux.as_mut().unwrap();
                linux.resources = Some(LinuxContainerResources {
                    unified: [("../x".to_owned(), "1".to_owned())].into(),
                    ..LinuxContainerResources::default()
                });
            },
            "linux.resources.unified",
        ),
        (
            |it| {
                let options = &mut sandbox_security(it).namespace_options;
                options.as_mut().unwrap().target_id = "other".to_owned();
            },
            "target_id",
        ),
        (
            |it| sandbox_security(it).namespace_options.as_mut().unwrap().pid = 3,
            "namespace_options.pid",
        ),
        (
            |it| sandbox_security(it).namespace_options.as_mut().unwrap().ipc = 99,
            "namespace_options.ipc",
        ),
        (
            |it| sandbox_security(it).seccomp_profile_path = "localhost//etc/x".to_owned(),
            "seccomp",
        ),
    ];
    for (change, field) in cases {
        let denial = of_sandbox(change).unwrap_err();
        assert!(
            denial.starts_with(field) || denial.contains(field),
            "{denial}"
        );
    }
}

#[test]
fn a_container_of_another_pod_is_refused() {
    type Change = fn(&mut v1::ContainerConfig);
    let cases: [(Change, &str); 5] = [
        (
            |it| {
                drop(
                    it.labels
                        .insert("io.kubernetes.pod.uid".into(), "other".into()),
                )
            },
            "labels.io.kubernetes.pod.uid",
        ),
        (
            |it| it.metadata.as_mut().unwrap().name = "other".to_owned(),
            "labels.io.kubernetes.container.name",
        ),
        (|it| it.log_path = "../x".to_owned(), "log_path"),
        (
            |it| {
                let linux = it.linux.as_mut().unwrap();
                linux.resources = Some(LinuxContainerResources {
                    oom_score_adj: -1000,
                    ..LinuxContainerResources::default()
                });
            },
            "linux.resources.oom_score_adj",
        ),
        (
            |it| {
                let mut mount = mount(&testing::host_path_mount("etc"));
                mount.selinux_relabel = true;
                it.mounts.push(mount);
            },
            "mounts.selinux_relabel",
        ),
    ];
    for (change, field) in cases {
        let denial = of_container(change).unwrap_err();
        assert!(denial.starts_with(field), "{denial}");
    }
}

#[test]
fn a_container_is_stopped_with_a_signal_of_the_interface() {
    for (signal, is_known) in [(0, true), (29, true), (65, true), (66, false), (-1, false)] {
        let found = of_container(|it| it.stop_signal = signal);
        assert_eq!(found.is_ok(), is_known, "{signal}: {found:?}");
    }
}

#[test]
fn an_image_is_mounted_read_only_and_in_place_of_a_path() {
    let image = || Mount {
        container_path: "/i".to_owned(),
        readonly: true,
        image: Some(v1::ImageSpec {
            image: "sha256:a".to_owned(),
            ..v1::ImageSpec::default()
        }),
        image_sub_path: "etc/x".to_owned(),
        ..Mount::default()
    };
    type Change = fn(&mut Mount);
    let found = |change: Change| {
        let mut mount = image();
        change(&mut mount);
        of_container(|it| it.mounts = vec![mount.clone()])
    };
    let fine: [Change; 2] = [|_| {}, |it| it.image_sub_path.clear()];
    for change in fine {
        assert_eq!(found(change), Ok(Vec::new()));
    }
    let denied: [(Change, &str); 8] = [
        (|it| it.readonly = false, "mounts.readonly"),
        (|it| it.selinux_relabel = true, "mounts.selinux_relabel"),
        (|it| it.host_path = "/etc".to_owned(), "mounts.host_path"),
        (
            |it| it.image = Some(v1::ImageSpec::default()),
            "mounts.image.image",
        ),
        (
            |it| it.image_sub_path = "../x".to_owned(),
            "mounts.image_sub_path",
        ),
        (
            |it| it.image_sub_path = "/x".to_owned(),
            "mounts.image_sub_path",
        ),
        (
            |it| it.set_propagation(MountPropagation::PropagationBidirectional),
            "mounts.propagation",
        ),
        (|it| it.image = None, "mounts.image_sub_path"),
    ];
    for (change, field) in denied {
        let error = found(change).unwrap_err();
        assert!(error.contains(field), "{field}: {error}");
    }
}
