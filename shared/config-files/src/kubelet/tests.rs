//! Tables of settings, warnings and refusals.

use std::collections::BTreeSet;
use std::time::Duration;

use node_config::{
    ContainerRuntimeEndpoint, DirectoryLayout, EvictionSettings, HttpSource, NodeObjectSettings,
    UserNamespaceSettings,
};

use super::*;
use crate::document::DocumentError;

const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

const PATH: &str = "/etc/kubelet/config.yaml";

fn ranges(ids_per_pod: u32, pods: u32) -> UserNamespaceSettings {
    UserNamespaceSettings {
        first: ids_per_pod,
        ids_per_pod,
        pods,
    }
}

fn defaults() -> NodeConfig {
    let directories = DirectoryLayout {
        run_dir: "/r".into(),
        state_dir: "/s".into(),
        root_dir: "/k".into(),
        log_dir: "/l".into(),
        bin_dir: "/b".into(),
    };
    NodeConfig::with_defaults("node", directories)
}

/// What a configuration with these fields comes to, but for the node's own server, and what
/// is warned of.
pub(super) fn apply(body: &str) -> Result<(NodeConfig, Vec<Warning>), String> {
    let text = format!("{HEADER}{body}");
    let mut config = defaults();
    let parsed = KubeletConfig::parse(Path::new(PATH), &text);
    let warnings = parsed.and_then(|parsed| parsed.apply(&mut config, 4));
    config.node_server = None;
    match warnings {
        Ok(warnings) => Ok((config, warnings)),
        Err(error) => Err(error.to_string()),
    }
}

fn applied(body: &str) -> NodeConfig {
    let (config, warnings) = apply(body).unwrap();
    assert_eq!(warnings, [], "{body}");
    config
}

#[test]
fn the_nodes_own_server_shows_the_configuration_without_what_may_be_secret() {
    let text = format!(
        "{HEADER}port: 10260\nmaxPods: 7\nstaticPodURL: http://h\n\
         staticPodURLHeader: {{Authorization: [a]}}\n"
    );
    let mut config = defaults();
    let parsed = KubeletConfig::parse(Path::new(PATH), &text).unwrap();
    parsed.apply(&mut config, 4).unwrap();
    let server = config.node_server.unwrap();
    assert_eq!(server.address.port(), 10260);
    let shown: Vec<&str> = server.configuration.keys().map(|key| &**key).collect();
    assert_eq!(shown, ["maxPods", "port", "staticPodURL"]);
}

#[test]
fn periods_of_a_shutdown_arrive_as_groups_of_pods() {
    let groups = |text: &str| -> Vec<(i32, u64)> {
        let groups = applied(text).shutdown.into_iter();
        groups.map(|it| (it.priority, it.grace.as_secs())).collect()
    };
    let both = "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n";
    assert_eq!(groups(both), [(0, 20), (2_000_000_000, 10)]);
    let listed =
        "shutdownGracePeriodByPodPriority: [{priority: 7, shutdownGracePeriodSeconds: 9}]\n";
    assert_eq!(groups(listed), [(7, 9)]);
}

#[test]
fn every_supported_field_arrives_where_it_belongs() {
    let config = applied(
        "staticPodPath: /m\nfileCheckFrequency: 5s\nhttpCheckFrequency: 7s\nsyncFrequency: 1m30s\n\
         staticPodURL: http://h/p\nstaticPodURLHeader: {Authorization: [a, b]}\n\
         maxPods: 50\npodPidsLimit: 100\nuserNamespaces: {idsPerPod: 131072}\ncgroupDriver: cgroupfs\ncgroupRoot: /sub\n\
         cgroupsPerQOS: false\ncpuCFSQuota: false\ncpuCFSQuotaPeriod: 10ms\n\
         systemReserved: {cpu: 100m, memory: 1Gi}\nkubeReserved: {cpu: \"1\"}\n\
         enforceNodeAllocatable: [pods]\nresolvConf: /run/resolv\nclusterDNS: [10.0.0.10]\n\
         clusterDomain: cluster.local\ncrashLoopBackOff: {maxContainerRestartPeriod: 2m}\n\
         podLogsDir: /l/pods\nrunOnce: false\n\
         containerRuntimeEndpoint: unix:///c.sock\nimageServiceEndpoint: unix:///c.sock\n\
         serializeImagePulls: false\nmaxParallelImagePulls: 3\nimageMinimumGCAge: 1m\nimageMaximumGCAge: 240h\n\
         registryPullQPS: 7\nregistryBurst: 20\n\
         imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 60\n\
         seccompDefault: true\nallowedUnsafeSysctls: [kernel.msg*, net/core/somaxconn]\n\
         evictionHard: {memory.available: 5%}\nevictionSoft: {nodefs.available: 1Gi}\n\
         evictionSoftGracePeriod: {nodefs.available: 90s}\nevictionMaxPodGracePeriod: 7\n\
         evictionMinimumReclaim: {memory.available: 1Mi}\nvolumeStatsAggPeriod: 10s\n\
         evictionPressureTransitionPeriod: 30s\nlocalStorageCapacityIsolation: false\n",
    );
    let mut expected = defaults();
    expected.static_pod_path = Some("/m".into());
    expected.file_check_frequency = Duration::from_secs(5);
    expected.sync_frequency = Duration::from_secs(90);
    expected.static_pod_url = Some(HttpSource {
        url: "http://h/p".to_owned(),
        headers: [(
            "Authorization".to_owned(),
            vec!["a".to_owned(), "b".to_owned()],
        )]
        .into(),
        check_frequency: Duration::from_secs(7),
    });
    expected.max_pods = 50;
    expected.pod_pids_limit = 100;
    expected.user_namespaces = ranges(131_072, 50);
    expected.cgroup_root = "/sub".to_owned();
    expected.cgroups_per_qos = false;
    expected.cpu_cfs_quota = false;
    expected.cpu_cfs_quota_period = Duration::from_millis(10);
    expected.reserved = [("cpu", "1100m"), ("memory", "1Gi")]
        .map(|(name, quantity)| (name.to_owned(), quantity.to_owned()))
        .into();
    expected.resolv_conf = Some("/run/resolv".into());
    expected.cluster_dns = vec!["10.0.0.10".parse().unwrap()];
    expected.cluster_domain = "cluster.local".to_owned();
    expected.max_container_restart_period = Duration::from_secs(120);
    expected.container_runtime = ContainerRuntimeEndpoint("/c.sock".into());
    expected.images.max_parallel_pulls = 3;
    expected.images.pulls_per_second = 7;
    expected.images.pull_burst = 20;
    expected.images.minimum_gc_age = Duration::from_secs(60);
    expected.images.maximum_gc_age = Duration::from_secs(240 * 3600);
    expected.images.gc_high_threshold_percent = 70;
    expected.images.gc_low_threshold_percent = 60;
    expected.seccomp_default = true;
    expected.allowed_unsafe_sysctls = vec!["kernel.msg*".into(), "net/core/somaxconn".into()];
    let texts = |signal: &str, text: &str| [(signal.to_owned(), text.to_owned())].into();
    let seconds = Duration::from_secs;
    expected.eviction = EvictionSettings {
        hard: texts("memory.available", "5%"),
        soft: texts("nodefs.available", "1Gi"),
        soft_grace: [("nodefs.available".to_owned(), seconds(90))].into(),
        minimum_reclaim: texts("memory.available", "1Mi"),
        pressure_transition_period: seconds(30),
        max_pod_grace: Some(seconds(7)),
        local_storage_limits: false,
        storage_look_period: Some(seconds(10)),
    };
    assert_eq!(config, expected);
}

#[test]
fn hard_thresholds_replace_the_defaults_unless_they_are_merged() {
    let hard = |body: &str| {
        let hard = applied(body).eviction.hard;
        hard.into_iter()
            .map(|(signal, text)| format!("{signal}<{text}"))
            .collect::<Vec<_>>()
    };
    let defaults = [
        "imagefs.available<15%",
        "imagefs.inodesFree<5%",
        "memory.available<100Mi",
        "nodefs.available<10%",
        "nodefs.inodesFree<5%",
    ];
    assert_eq!(hard(""), defaults);
    assert_eq!(hard("mergeDefaultEvictionSettings: true\n"), defaults);
    assert!(hard("evictionHard: {}\n").is_empty());
    assert_eq!(
        hard("evictionHard: {pid.available: 10%}\n"),
        ["pid.available<10%"]
    );
    let mut merged = defaults.map(str::to_owned);
    merged[2] = "memory.available<1Gi".to_owned();
    let body = "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n";
    assert_eq!(hard(body), merged);
}

#[test]
fn eviction_settings_that_cannot_be_are_refused_by_field_and_signal() {
    for (body, expected) in [
        ("evictionHard: {x: 1%}\n", "evictionHard.x: unsupported"),
        (
            "evictionSoft: {memory.available: 1Gi}\n",
            "evictionSoft.memory.available: evictionSoftGracePeriod",
        ),
        (
            "evictionSoftGracePeriod: {memory.available: -5s}\n",
            "evictionSoftGracePeriod.memory.available: \"-5s\" is negative",
        ),
        (
            "volumeStatsAggPeriod: often\n",
            "volumeStatsAggPeriod: \"often\" is not",
        ),
    ] {
        let error = apply(body).unwrap_err();
        let expected = format!("{PATH}: {expected}");
        assert!(error.starts_with(&expected), "{error}");
    }
    let period = |text: &str| {
        let config = applied(&format!("volumeStatsAggPeriod: {text}\n"));
        config.eviction.storage_look_period
    };
    assert_eq!(period("0s"), Some(Duration::from_secs(60)));
    assert_eq!(period("-1s"), None);
}

#[test]
fn zero_values_of_tools_mean_the_defaults_and_warn_of_nothing() {
    let config = applied(
        "authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s}}\n\
         cpuManagerReconcilePeriod: 0s\nevictionPressureTransitionPeriod: 0s\n\
         fileCheckFrequency: 0s\nimageMinimumGCAge: 0s\nmaxPods: 0\nmemorySwap: {}\n\
         logging: {flushFrequency: 0, options: {json: {infoBufferSize: \"\"}}, verbosity: 0}\n\
         shutdownGracePeriod: 0s\nstaticPodPath: null\nclusterDNS: []\ncgroupDriver: \"\"\n\
         syncFrequency: 0s\nfailSwapOn: false\n",
    );
    assert_eq!(config, defaults());
    assert_eq!(applied(""), defaults());
}

#[test]
fn the_node_is_registered_and_reported_as_the_file_says() {
    let config = applied(
        "registerNode: false\nproviderID: p://1\nnodeLeaseDurationSeconds: 80\n\
         nodeStatusUpdateFrequency: 20s\nnodeStatusMaxImages: -1\n\
         registerWithTaints: [{key: a, value: b, effect: NoSchedule, timeAdded: null}]\n",
    );
    let expected = NodeObjectSettings {
        register: false,
        taints: vec!["a=b:NoSchedule".parse().unwrap()],
        provider_id: "p://1".to_owned(),
        status_update_frequency: Duration::from_secs(20),
        status_report_frequency: Duration::from_secs(20),
        lease_seconds: 80,
        max_images: None,
    };
    assert_eq!(config.node_object, expected);
    for (text, field) in [
        (
            "registerWithTaints: [{key: a, effect: Never}]\n",
            "registerWithTaints[0]",
        ),
        ("nodeLeaseDurationSeconds: -1\n", "nodeLeaseDurationSeconds"),
        ("nodeStatusMaxImages: -2\n", "nodeStatusMaxImages"),
    ] {
        let error = apply(text).unwrap_err();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn an_empty_list_enforces_nothing_and_an_absent_one_the_default() {
    for (list, expected) in [
        ("null", true),
        ("[pods]", true),
        ("[]", false),
        ("[none]", false),
    ] {
        let config = applied(&format!("enforceNodeAllocatable: {list}\n"));
        assert_eq!(config.enforce_allocatable, expected, "{list}");
    }
    assert!(applied("").enforce_allocatable);
    for list in ["['']", "[none, pods]"] {
        let error = apply(&format!("enforceNodeAllocatable: {list}\n")).unwrap_err();
        assert!(error.contains("enforceNodeAllocatable"), "{error}");
    }
}

#[test]
fn an_unsupported_field_is_named_in_a_warning() {
    for field in FIELDS {
        let Support::Ignored(text) = field.support else {
            continue;
        };
        let (config, warnings) = apply(&format!("{}: 1\n", field.name)).unwrap();
        let expected = Warning {
            field: field.name.to_owned(),
            text,
        };
        assert_eq!(warnings, [expected]);
        assert_eq!(config, defaults());
    }
    let (_, warnings) = apply("enforceNodeAllocatable: [pods, kube-reserved]\n").unwrap();
    assert_eq!(warnings[0].field, "enforceNodeAllocatable");
    let (config, warnings) = apply("clusterDNS: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]\n").unwrap();
    assert_eq!(warnings[0].field, "clusterDNS");
    assert_eq!(config.cluster_dns.len(), 3);
}

#[test]
fn the_table_names_each_field_once() {
    let names: BTreeSet<&str> = FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(names.len(), FIELDS.len());
    // A field that the table calls applied and the settings do not know would
    // be refused here as unknown.
    for field in FIELDS
        .iter()
        .filter(|field| field.support == Support::Applied)
    {
        let error = match apply(&format!("{}: [[]]\n", field.name)) {
            Ok(_) => panic!("{} takes anything", field.name),
            Err(error) => error,
        };
        assert!(!error.contains("unknown field"), "{error}");
        assert!(error.contains(field.name), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_name_of_its_field() {
    for (body, named) in [
        ("maxPod: 5", "maxPod"),
        ("MaxPods: 5", "MaxPods"),
        ("maxPods: -1", "maxPods"),
        ("maxPods: many", "maxPods"),
        ("podsPerCore: -1", "podsPerCore"),
        ("podPidsLimit: -2", "podPidsLimit"),
        ("syncFrequency: 60", "syncFrequency"),
        ("syncFrequency: 1 minute", "syncFrequency"),
        ("fileCheckFrequency: -1s", "fileCheckFrequency"),
        ("cgroupDriver: cgroup", "cgroupDriver"),
        ("cgroupRoot: sub", "cgroupRoot"),
        ("cgroupRoot: /a/../b", "cgroupRoot"),
        ("cpuCFSQuotaPeriod: 2s", "cpuCFSQuotaPeriod"),
        ("systemReserved: {gpu: 1}", "systemReserved.gpu"),
        ("kubeReserved: {cpu: lots}", "kubeReserved.cpu"),
        ("kubeReserved: {cpu: \"-1\"}", "kubeReserved.cpu"),
        ("kubeReserved: {cpu: 1}", "kubeReserved.cpu"),
        ("enforceNodeAllocatable: [all]", "enforceNodeAllocatable"),
        ("clusterDNS: [10.0.0.10, dns]", "clusterDNS[1]"),
        (
            "clusterDNS: [1.1.1.1, 1.1.1.2, 1.1.1.3, x]",
            "clusterDNS[3]",
        ),
        (
            "crashLoopBackOff: {maxContainerRestartPeriod: 301s}",
            "crashLoopBackOff.maxContainerRestartPeriod",
        ),
        ("crashLoopBackOff: {max: 1s}", "crashLoopBackOff"),
        ("podLogsDir: /elsewhere", "podLogsDir"),
        ("runOnce: true", "runOnce"),
        (
            "containerRuntimeEndpoint: tcp://h:1",
            "containerRuntimeEndpoint",
        ),
        (
            "imageServiceEndpoint: unix:///other",
            "imageServiceEndpoint",
        ),
        ("maxParallelImagePulls: 0", "maxParallelImagePulls"),
        ("registryPullQPS: -1", "registryPullQPS"),
        ("registryBurst: -1", "registryBurst"),
        (
            "serializeImagePulls: true\nmaxParallelImagePulls: 2",
            "maxParallelImagePulls",
        ),
        (
            "imageGCHighThresholdPercent: 101",
            "imageGCHighThresholdPercent",
        ),
        (
            "imageGCHighThresholdPercent: 80",
            "imageGCLowThresholdPercent",
        ),
        ("staticPodURL: ftp://h", "staticPodURL"),
        ("staticPodURL: httpss://h", "staticPodURL"),
        ("staticPodURL: h", "staticPodURL"),
        ("staticPodURLHeader: {A: [b]}", "staticPodURLHeader"),
    ] {
        let error = apply(body).unwrap_err();
        assert!(error.contains(named), "{body}: {error}");
    }
}

#[test]
fn logs_that_cannot_be_kept_so_are_refused_with_the_name_of_their_field() {
    for (body, named) in [
        ("containerLogMaxSize: huge", "containerLogMaxSize"),
        ("containerLogMaxSize: 0", "containerLogMaxSize"),
        ("containerLogMaxSize: \"0.5\"", "containerLogMaxSize"),
        ("containerLogMaxSize: \"-100m\"", "containerLogMaxSize"),
        ("containerLogMaxFiles: 1", "containerLogMaxFiles"),
        ("containerLogMaxWorkers: 0", "containerLogMaxWorkers"),
        (
            "containerLogMonitorInterval: 2s",
            "containerLogMonitorInterval",
        ),
    ] {
        let error = apply(body).unwrap_err();
        assert!(error.contains(named), "{body}: {error}");
    }
}

#[test]
fn a_sysctl_that_the_whole_machine_shares_cannot_be_allowed() {
    for (list, index) in [
        ("[kernel.msg*, vm.swappiness]", 1),
        ("['*']", 0),
        ("['net.*.x']", 0),
        ("['']", 0),
    ] {
        let error = apply(&format!("allowedUnsafeSysctls: {list}\n")).unwrap_err();
        let named = format!("allowedUnsafeSysctls[{index}]");
        assert!(error.contains(&named), "{list}: {error}");
    }
}

#[test]
fn both_schemes_of_the_url_are_taken() {
    for url in ["http://h/p", "https://h:8443/p", "HTTPS://h"] {
        let (config, _) = apply(&format!("staticPodURL: {url}")).unwrap();
        assert_eq!(config.static_pod_url.unwrap().url, url);
    }
}

#[test]
fn pulls_at_once_follow_both_fields() {
    for (body, pulls) in [
        ("", 5),
        ("serializeImagePulls: true", 1),
        ("serializeImagePulls: false", 64),
        ("maxParallelImagePulls: 7", 7),
        ("serializeImagePulls: true\nmaxParallelImagePulls: 1", 1),
        ("serializeImagePulls: false\nmaxParallelImagePulls: 9", 9),
    ] {
        assert_eq!(applied(body).images.max_parallel_pulls, pulls, "{body}");
    }
}

#[test]
fn the_rate_of_pulls_can_be_changed_and_lifted() {
    for (body, rate) in [
        ("", (5, 10)),
        ("registryPullQPS: 0", (0, 10)),
        ("registryPullQPS: 1", (1, 10)),
        ("registryBurst: 1", (5, 1)),
        ("registryBurst: 0", (5, 10)),
    ] {
        let images = applied(body).images;
        assert_eq!((images.pulls_per_second, images.pull_burst), rate, "{body}");
    }
}

#[test]
fn log_rotation_is_as_it_is_configured() {
    let config = applied(
        "containerLogMaxSize: 1Ki\ncontainerLogMaxFiles: 3\ncontainerLogMaxWorkers: 2\n\
         containerLogMonitorInterval: 5s\n",
    );
    let mut expected = defaults();
    expected.logs.max_size = Some(1024);
    expected.logs.max_files = 3;
    expected.logs.max_workers = 2;
    expected.logs.monitor_interval = Duration::from_secs(5);
    assert_eq!(config, expected);
}

#[test]
fn a_negative_size_switches_log_rotation_off_and_none_rotates_always() {
    assert_eq!(applied("containerLogMaxSize: \"0\"").logs.max_size, Some(0));
    assert_eq!(applied("containerLogMaxSize: \"-1\"").logs.max_size, None);
    assert_eq!(
        applied("containerLogMaxSize: \"\"\ncontainerLogMonitorInterval: 0s").logs,
        defaults().logs
    );
}

#[test]
fn pods_per_core_lowers_the_number_of_pods() {
    assert_eq!(applied("podsPerCore: 10").max_pods, 40);
    assert_eq!(applied("podsPerCore: 1000").max_pods, 110);
    assert_eq!(applied("podsPerCore: 10\nmaxPods: 20").max_pods, 20);
}

#[test]
fn paths_are_relative_to_their_file_and_an_empty_resolv_conf_means_none() {
    let config = applied("staticPodPath: manifests\nresolvConf: \"\"\n");
    assert_eq!(
        config.static_pod_path,
        Some("/etc/kubelet/manifests".into())
    );
    assert_eq!(config.resolv_conf, None);
}

#[test]
fn json_is_read_too_and_another_kind_is_not() {
    let json = r#"{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","maxPods":5}"#;
    let path = Path::new("/c.json");
    let mut config = defaults();
    let parsed = KubeletConfig::parse(path, json).unwrap();
    parsed.apply(&mut config, 1).unwrap();
    assert_eq!(config.max_pods, 5);
    for text in [
        "",
        "maxPods: 5",
        "apiVersion: v1\nkind: Pod\n",
        "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n",
        "- a list",
        "{",
    ] {
        let error = KubeletConfig::parse(path, text).unwrap_err();
        assert!(matches!(error, KubeletConfigError::Document(_)), "{text}");
    }
}

#[test]
fn drop_ins_are_merged_in_the_order_of_their_paths() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, body: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{HEADER}{body}")).unwrap();
    };
    write("20.conf", "maxPods: 20\nsystemReserved: {memory: 1Gi}\n");
    write(
        "10.conf",
        "maxPods: 10\nclusterDomain: top\nclusterDNS: [1.1.1.1]\nsystemReserved: {cpu: \"1\"}\n",
    );
    write("30.yaml", "maxPods: 30\n");
    // Directories are walked, but not what links to one lead to.
    write("15/sub/10.conf", "maxPods: 15\nclusterDomain: sub\n");
    let elsewhere = tempfile::tempdir().unwrap();
    let other = elsewhere.path().join("90.conf");
    std::fs::write(&other, format!("{HEADER}maxPods: 90\n")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), directory.path().join("90")).unwrap();
    let main = directory.path().join("config");
    std::fs::write(
        &main,
        format!("{HEADER}maxPods: 5\nclusterDNS: [2.2.2.2]\n"),
    )
    .unwrap();

    let parsed = KubeletConfig::read(Some(&main), Some(directory.path())).unwrap();
    assert_eq!(parsed.files().len(), 4);
    let mut config = defaults();
    parsed.apply(&mut config, 1).unwrap();
    assert_eq!(config.max_pods, 20);
    assert_eq!(config.cluster_domain, "sub");
    assert_eq!(config.cluster_dns.len(), 1);
    assert_eq!(config.reserved.len(), 2);

    write("40.conf", "maxPodz: 1\n");
    let error = KubeletConfig::read(Some(&main), Some(directory.path())).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("40.conf") && text.contains("maxPodz"),
        "{text}"
    );
}

#[test]
fn more_than_256_drop_ins_or_directories_of_them_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: String| directory.path().join(name);
    for number in 0..256 {
        std::fs::write(at(format!("{number}.conf")), HEADER).unwrap();
    }
    // The directory itself is one.
    for number in 1..256 {
        std::fs::create_dir(at(number.to_string())).unwrap();
    }
    assert_eq!(drop_ins(directory.path()).unwrap().len(), 256);
    let refused = || drop_ins(directory.path()).unwrap_err().to_string();
    let expected = "it holds more than 256 drop-in files, or directories of them";

    let one_more = at("1/256.conf".to_owned());
    std::fs::write(&one_more, HEADER).unwrap();
    assert_eq!(refused(), expected);
    std::fs::remove_file(one_more).unwrap();
    drop_ins(directory.path()).unwrap();
    std::fs::create_dir(at("1/256".to_owned())).unwrap();
    assert_eq!(refused(), expected);
}

#[test]
fn a_wrong_value_is_told_with_the_file_that_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str, body: &str| {
        std::fs::write(path(name), format!("{HEADER}{body}")).unwrap();
    };
    write("main", "maxPods: 5\n");
    write("30.conf", "clusterDomain: d\n");
    for (first, second, file, field) in [
        ("maxPods: 1", "maxPods: -1", "20.conf", "maxPods"),
        ("maxPods: many", "maxPods: null", "10.conf", "maxPods"),
        (
            "evictionHard: {memory.available: 1OOMi}",
            "evictionHard: {nodefs.available: 5%}",
            "10.conf",
            "evictionHard.memory.available",
        ),
        (
            "evictionHard: {memory.available: 1OOMi}",
            "evictionHard: {memory.available: 1O%}",
            "20.conf",
            "evictionHard.memory.available",
        ),
        (
            "kubeReserved: {cpu: 1}",
            "kubeReserved: {memory: 1Gi}",
            "10.conf",
            "kubeReserved.cpu",
        ),
        (
            "clusterDNS: [1.1.1.1]",
            "clusterDNS: [1.1.1.1, dns]",
            "20.conf",
            "clusterDNS[1]",
        ),
        // What is wrong beside another that nobody has given.
        (
            "",
            "imageGCHighThresholdPercent: 80",
            "main and 3 more",
            "imageGCLowThresholdPercent",
        ),
    ] {
        write("10.conf", first);
        write("20.conf", second);
        let parsed = KubeletConfig::read(Some(&path("main")), Some(directory.path())).unwrap();
        let error = parsed.apply(&mut defaults(), 1).unwrap_err().to_string();
        let expected = format!("{}: {field}: ", path(file).display());
        assert!(error.starts_with(&expected), "{error} is not {expected}");
    }
}

#[test]
fn a_flag_in_the_place_of_a_field_is_named_with_it() {
    let mut parsed = KubeletConfig::parse(Path::new(PATH), HEADER).unwrap();
    parsed.set_container_runtime("tcp://h:1");
    let error = parsed.apply(&mut defaults(), 1).unwrap_err().to_string();
    assert!(
        error.starts_with("--container-runtime-endpoint: "),
        "{error}"
    );
}

#[test]
fn what_is_no_regular_file_or_too_large_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let large = directory.path().join("large");
    std::fs::write(&large, " ".repeat((1 << 20) + 1)).unwrap();
    for path in [
        &large,
        directory.path(),
        Path::new("/dev/zero"),
        Path::new("/absent"),
    ] {
        let error = KubeletConfig::read(Some(path), None).unwrap_err();
        let document = matches!(
            error,
            KubeletConfigError::Document(DocumentError::Io { .. })
        );
        assert!(document, "{}", path.display());
    }
}

#[test]
fn images_go_by_age_after_their_minimum_only() {
    let error = apply("imageMaximumGCAge: 2m").unwrap_err();
    assert!(error.contains("imageMaximumGCAge"), "{error}");
    let (config, _) = apply("imageMaximumGCAge: 2m\nimageMinimumGCAge: 1m").unwrap();
    assert_eq!(config.images.maximum_gc_age, Duration::from_secs(120));
}
