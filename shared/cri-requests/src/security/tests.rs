//! Security contexts by what pod and container state.

use super::*;
use crate::test_pods::{node, pod};

fn of(pod_context: &str, own: &str) -> (Pod, Container) {
    let pod = pod(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u"}},
            "spec":{{"securityContext":{pod_context},
            "containers":[{{"name":"c","securityContext":{own}}}]}}}}"#
    ));
    let container = pod.containers()[0].clone();
    (pod, container)
}

fn security(
    pod_context: &str,
    own: &str,
    user: &ImageUser,
) -> Result<LinuxContainerSecurityContext, BuildError> {
    let (pod, container) = of(pod_context, own);
    container_security(&pod, &container, user, (&node(), None))
}

const ROOT: ImageUser = ImageUser::Uid(0);

#[test]
fn the_container_overrides_the_pod() {
    let of_pod = r#"{"runAsUser":1,"runAsGroup":2,"fsGroup":3,"supplementalGroups":[4,5],
        "seLinuxOptions":{"level":"s0"},"seccompProfile":{"type":"RuntimeDefault"}}"#;
    let context = security(of_pod, "{}", &ROOT).unwrap();
    assert_eq!(context.run_as_user, Some(int64(1)));
    assert_eq!(context.run_as_group, Some(int64(2)));
    assert_eq!(context.supplemental_groups, [3, 4, 5]);
    assert_eq!(context.selinux_options.unwrap().level, "s0");
    assert_eq!(
        context.seccomp.unwrap().profile_type(),
        ProfileType::RuntimeDefault
    );

    let own = r#"{"runAsUser":10,"runAsGroup":20,"seLinuxOptions":{"level":"s1"},
        "seccompProfile":{"type":"Unconfined"}}"#;
    let context = security(of_pod, own, &ROOT).unwrap();
    assert_eq!(context.run_as_user, Some(int64(10)));
    assert_eq!(context.run_as_group, Some(int64(20)));
    assert_eq!(context.selinux_options.unwrap().level, "s1");
    assert_eq!(
        context.seccomp.unwrap().profile_type(),
        ProfileType::Unconfined
    );
    assert_eq!(context.seccomp_profile_path, "unconfined");
}

#[test]
fn the_policy_of_groups_goes_to_sandbox_and_container() {
    for (field, expected) in [
        ("{}", SupplementalGroupsPolicy::Merge),
        (
            r#"{"supplementalGroupsPolicy":"Merge"}"#,
            SupplementalGroupsPolicy::Merge,
        ),
        (
            r#"{"supplementalGroupsPolicy":"Strict"}"#,
            SupplementalGroupsPolicy::Strict,
        ),
    ] {
        let context = security(field, "{}", &ROOT).unwrap();
        assert_eq!(context.supplemental_groups_policy(), expected);
        let (pod, _) = of(field, "{}");
        let context = sandbox_security(&pod, None).unwrap();
        assert_eq!(context.supplemental_groups_policy(), expected);
    }
    assert!(security(r#"{"supplementalGroupsPolicy":"x"}"#, "{}", &ROOT).is_err());
}

#[test]
fn the_image_decides_the_user_when_the_pod_does_not() {
    let context = security("{}", "{}", &ImageUser::Uid(7)).unwrap();
    assert_eq!(context.run_as_user, Some(int64(7)));
    let context = security("{}", "{}", &ImageUser::Name("www".into())).unwrap();
    assert_eq!(
        (context.run_as_user, context.run_as_username.as_str()),
        (None, "www")
    );
    let context = security("{}", r#"{"runAsUser":3}"#, &ImageUser::Name("www".into())).unwrap();
    assert_eq!(
        (context.run_as_user, context.run_as_username.as_str()),
        (Some(int64(3)), "")
    );
}

#[test]
fn an_image_that_says_nothing_is_root() {
    let image = |uid: Option<i64>, username: &str| {
        let username = username.to_owned();
        ImageUser::of(&cri::v1::Image {
            uid: uid.map(int64),
            username,
            ..Default::default()
        })
    };
    assert_eq!(image(None, ""), ROOT);
    assert_eq!(image(Some(5), "x"), ImageUser::Uid(5));
    assert_eq!(image(None, "x"), ImageUser::Name("x".into()));
}

#[test]
fn who_must_not_be_root_is_not() {
    let named = ImageUser::Name("www".into());
    let root =
        "container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: c)";
    let breaks = "container's runAsUser breaks non-root policy (pod: \"p_ns(u)\", container: c)";
    let unknown = "container has runAsNonRoot and image has non-numeric user (www), cannot verify \
                   user is non-root (pod: \"p_ns(u)\", container: c)";
    let strict = r#"{"runAsNonRoot":true}"#;
    for (of_pod, own, user, expected) in [
        (strict, "{}", &ROOT, Err(root)),
        (strict, "{}", &ImageUser::Uid(1), Ok(())),
        (strict, "{}", &named, Err(unknown)),
        (
            strict,
            r#"{"runAsUser":0}"#,
            &ImageUser::Uid(1),
            Err(breaks),
        ),
        (strict, r#"{"runAsUser":1}"#, &ROOT, Ok(())),
        (strict, r#"{"runAsNonRoot":false}"#, &ROOT, Ok(())),
        ("{}", strict, &ROOT, Err(root)),
        (
            r#"{"runAsUser":0}"#,
            strict,
            &ImageUser::Uid(1),
            Err(breaks),
        ),
        ("{}", "{}", &named, Ok(())),
    ] {
        let outcome = security(of_pod, own, user)
            .map(drop)
            .map_err(|error| error.to_string());
        assert_eq!(
            outcome,
            expected.map_err(str::to_owned),
            "{of_pod} {own} {user:?}"
        );
    }
}

#[test]
fn seccomp_is_unconfined_unless_asked_for() {
    let profile = |own: &str| {
        let context = security("{}", own, &ROOT).unwrap();
        let seccomp = context.seccomp.unwrap();
        (
            seccomp.profile_type(),
            seccomp.localhost_ref,
            context.seccomp_profile_path,
        )
    };
    let none = String::new;
    assert_eq!(profile("{}"), (ProfileType::Unconfined, none(), none()));
    assert_eq!(
        profile(r#"{"seccompProfile":{"type":"RuntimeDefault"}}"#),
        (
            ProfileType::RuntimeDefault,
            none(),
            "runtime/default".to_owned()
        )
    );
    let file = "/var/lib/kubelet/seccomp/p/a.json";
    assert_eq!(
        profile(r#"{"seccompProfile":{"type":"Localhost","localhostProfile":"p/a.json"}}"#),
        (
            ProfileType::Localhost,
            file.to_owned(),
            format!("localhost/{file}")
        )
    );
}

#[test]
fn who_chooses_no_seccomp_profile_gets_the_nodes_default() {
    let profile = |own: &str| {
        let (pod, container) = of("{}", own);
        let mut node = node();
        node.seccomp_default = true;
        let context = container_security(&pod, &container, &ROOT, (&node, None)).unwrap();
        let kind = context.seccomp.unwrap().profile_type();
        (kind, context.seccomp_profile_path)
    };
    let chosen = r#"{"seccompProfile":{"type":"Unconfined"}}"#;
    for (own, kind, path) in [
        ("{}", ProfileType::RuntimeDefault, "runtime/default"),
        (chosen, ProfileType::Unconfined, "unconfined"),
    ] {
        assert_eq!(profile(own), (kind, path.to_owned()), "{own}");
    }
}

#[test]
fn a_seccomp_profile_that_nobody_knows_is_never_taken_for_none() {
    for profile in [
        r#"{"type":"Localhost"}"#,
        r#"{"type":"other"}"#,
        r#"{"type":""}"#,
    ] {
        let own = format!(r#"{{"seccompProfile":{profile}}}"#);
        assert!(security("{}", &own, &ROOT).is_err(), "{profile}");
    }
}

#[test]
fn a_seccomp_profile_cannot_lead_out_of_its_directory() {
    for name in ["", "/etc/passwd", "../x", "a/../../x", "."] {
        let own =
            format!(r#"{{"seccompProfile":{{"type":"Localhost","localhostProfile":"{name}"}}}}"#);
        assert!(security("{}", &own, &ROOT).is_err(), "{name}");
    }
}

#[test]
fn apparmor_comes_from_the_field_or_the_annotation() {
    let own = r#"{"appArmorProfile":{"type":"Localhost","localhostProfile":"mine"}}"#;
    let context = security("{}", own, &ROOT).unwrap();
    assert_eq!(context.apparmor_profile, "localhost/mine");
    assert_eq!(context.apparmor.unwrap().localhost_ref, "mine");
    let context = security(r#"{"appArmorProfile":{"type":"Unconfined"}}"#, "{}", &ROOT).unwrap();
    assert_eq!(
        context.apparmor.unwrap().profile_type(),
        ProfileType::Unconfined
    );

    let (mut pod, container) = of("{}", "{}");
    let key = format!("{APPARMOR_ANNOTATION_PREFIX}c");
    pod.metadata.annotations = Some([(key, "runtime/default".to_owned())].into());
    let context = container_security(&pod, &container, &ROOT, (&node(), None)).unwrap();
    assert_eq!(context.apparmor_profile, "runtime/default");
    let context = security("{}", "{}", &ROOT).unwrap();
    assert_eq!(
        (context.apparmor, context.apparmor_profile.as_str()),
        (None, "")
    );
}

#[test]
fn proc_is_masked_unless_asked_otherwise() {
    let context = security("{}", "{}", &ROOT).unwrap();
    assert_eq!(
        (context.masked_paths.len(), context.readonly_paths.len()),
        (12, 6)
    );
    let context = security("{}", r#"{"procMount":"Unmasked"}"#, &ROOT).unwrap();
    assert_eq!(
        (context.masked_paths.len(), context.readonly_paths.len()),
        (0, 0)
    );
}

#[test]
fn one_privileged_container_makes_the_sandbox_privileged() {
    let (pod, _) = of("{}", r#"{"privileged":true}"#);
    assert!(sandbox_security(&pod, None).unwrap().privileged);
    let (pod, _) = of("{}", r#"{"privileged":false}"#);
    assert!(!sandbox_security(&pod, None).unwrap().privileged);
}

#[test]
fn an_ephemeral_container_sees_the_processes_of_its_target_unless_it_sees_them_anyway() {
    for (fields, mode, target) in [
        ("", NamespaceMode::Target, "id"),
        (r#","shareProcessNamespace":true"#, NamespaceMode::Pod, ""),
        (r#","hostPID":true"#, NamespaceMode::Node, ""),
    ] {
        let pod = pod(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u"}},
                "spec":{{"containers":[{{"name":"c"}}]{fields}}}}}"#
        ));
        let container = &pod.containers()[0];
        let mut context = container_security(&pod, container, &ROOT, (&node(), None)).unwrap();
        see_processes_of("id", &mut context);
        let namespaces = context.namespace_options.unwrap();
        assert_eq!((namespaces.pid(), &*namespaces.target_id), (mode, target));
    }
}

#[test]
fn a_sandbox_is_privileged_for_an_ephemeral_container_too() {
    let sandbox = |own: &str| {
        let pod = pod(&format!(
            r#"{{"spec":{{"containers":[{{"name":"c"}}],
                "ephemeralContainers":[{{"name":"e","securityContext":{own}}}]}}}}"#
        ));
        sandbox_security(&pod, None)
    };
    assert!(!sandbox("{}").unwrap().privileged);
    assert!(sandbox(r#"{"privileged":true}"#).unwrap().privileged);
}

#[test]
fn a_capability_goes_to_the_runtime_by_its_plain_name_or_not_at_all() {
    let requested = |field: &str, names: &str| {
        let own = format!(r#"{{"capabilities":{{"{field}":["KILL",{names}]}}}}"#);
        let context = security("{}", &own, &ROOT).map_err(|error| error.to_string())?;
        let Capability {
            add_capabilities,
            drop_capabilities,
            add_ambient_capabilities,
        } = context.capabilities.unwrap();
        assert_eq!(add_ambient_capabilities, [""; 0]);
        let (asked, other) = match field {
            "add" => (add_capabilities, drop_capabilities),
            _ => (drop_capabilities, add_capabilities),
        };
        assert_eq!(other, [""; 0]);
        Ok::<_, String>(asked[1..].join(","))
    };
    for field in ["add", "drop"] {
        for (names, expected) in [
            (r#""NET_RAW""#, "NET_RAW"),
            (r#""CAP_NET_RAW","net_raw""#, "NET_RAW,NET_RAW"),
            (r#""cap_net_bind_service""#, "NET_BIND_SERVICE"),
            (r#""ALL""#, "ALL"),
            (r#""CAP_ALL""#, "ALL"),
            (r#""all""#, "ALL"),
        ] {
            assert_eq!(requested(field, names), Ok(expected.into()), "{names}");
        }
        for name in ["NET_ROW", "CAP_CAP_NET_RAW", ""] {
            let expected = format!(
                "container \"c\": securityContext.capabilities.{field}[1]: {name:?} is not a \
                 capability of Linux"
            );
            assert_eq!(requested(field, &format!("{name:?}")), Err(expected));
        }
    }
    assert_eq!(security("{}", "{}", &ROOT).unwrap().capabilities, None);
}
