//! The annotations by which older clients choose seccomp and AppArmor profiles, and the
//! fields that they mean.
//!
//! An API server makes fields of them when a pod is created: of those of seccomp until
//! 1.26 (later ones ignore them, which no pod's author wants), of those of AppArmor since
//! 1.30. The other way round none does any more.

use std::collections::BTreeMap;

use pod::core::{AppArmorProfile, SeccompProfile};
use pod::{Pod, PodExt as _};

/// The seccomp profile of a pod.
pub(crate) const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// That of a container, whose name follows.
pub(crate) const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The AppArmor profile of a container, whose name follows.
pub(crate) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

const RUNTIME_DEFAULT: &str = "runtime/default";
const DOCKER_DEFAULT: &str = "docker/default";
const UNCONFINED: &str = "unconfined";
const LOCALHOST: &str = "localhost/";

/// The profile that an annotation of seccomp means; `None` for a value that means none.
pub(crate) fn seccomp(value: &str) -> Option<SeccompProfile> {
    let (type_, localhost_profile) = match value {
        RUNTIME_DEFAULT | DOCKER_DEFAULT => ("RuntimeDefault", None),
        UNCONFINED => ("Unconfined", None),
        value => ("Localhost", Some(localhost(value)?)),
    };
    Some(SeccompProfile {
        type_: type_.to_owned(),
        localhost_profile,
    })
}

/// The profile that an annotation of AppArmor means; `None` for a value that means none.
pub(crate) fn app_armor(value: &str) -> Option<AppArmorProfile> {
    let (type_, localhost_profile) = match value {
        RUNTIME_DEFAULT => ("RuntimeDefault", None),
        UNCONFINED => ("Unconfined", None),
        value => ("Localhost", Some(localhost(value)?)),
    };
    Some(AppArmorProfile {
        type_: type_.to_owned(),
        localhost_profile,
    })
}

fn localhost(value: &str) -> Option<String> {
    let name = value.strip_prefix(LOCALHOST)?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Fills in the fields that annotations mean, where the pod leaves them out.
pub(crate) fn apply(pod: &mut Pod) {
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    if is_for_windows(pod) || !annotations.keys().any(|key| is_one(key)) {
        return;
    }
    let of = |key: &str| annotations.get(key).map(String::as_str);
    let spec = pod.spec.get_or_insert_default();
    let of_pod = spec.security_context.get_or_insert_default();
    if of_pod.seccomp_profile.is_none() {
        of_pod.seccomp_profile = of(SECCOMP_OF_POD).and_then(seccomp);
    }
    let app_armor_of_pod = of_pod.app_armor_profile.clone();
    let init = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(init) {
        let value = of(&format!("{SECCOMP_OF_CONTAINER}{}", container.name));
        let seccomp = value.and_then(seccomp);
        let value = of(&format!("{APP_ARMOR}{}", container.name));
        // What the pod says for all of them need not be said again.
        let app_armor = value.and_then(app_armor);
        let app_armor = app_armor.filter(|profile| Some(profile) != app_armor_of_pod.as_ref());
        if seccomp.is_none() && app_armor.is_none() {
            continue;
        }
        let context = container.security_context.get_or_insert_default();
        if context.seccomp_profile.is_none() {
            context.seccomp_profile = seccomp;
        }
        if context.app_armor_profile.is_none() {
            context.app_armor_profile = app_armor;
        }
    }
}

/// Whether an annotation is about profiles.
pub(crate) fn is_one(key: &str) -> bool {
    const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/";
    [SECCOMP, SECCOMP_OF_CONTAINER, APP_ARMOR]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

/// Annotations of a pod that are about profiles.
pub(crate) fn all(
    annotations: &BTreeMap<String, String>,
) -> impl Iterator<Item = (&String, &String)> {
    annotations.iter().filter(|(key, _)| is_one(key))
}

fn is_for_windows(pod: &Pod) -> bool {
    let system = pod.spec_or_default().os.as_ref();
    system.is_some_and(|system| system.name == "windows")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(annotations: &str, spec: &str) -> Pod {
        let text =
            format!(r#"{{"metadata":{{"name":"p","annotations":{annotations}}},"spec":{spec}}}"#);
        let mut pod = serde_json::from_str(&text).unwrap();
        apply(&mut pod);
        pod
    }

    /// Type and file of the profiles of pod and first container, seccomp first.
    fn profiles(annotations: &str, pod: &str, container: &str) -> [String; 3] {
        let spec = format!(
            r#"{{"securityContext":{pod},
                "containers":[{{"name":"c","securityContext":{container}}}]}}"#
        );
        let pod = filled(annotations, &spec);
        let spec = pod.spec.unwrap();
        let of_pod = spec.security_context.unwrap();
        let of_container = spec.containers[0].security_context.clone().unwrap();
        let seccomp = |profile: Option<SeccompProfile>| {
            profile.map_or(String::new(), |it| {
                it.type_ + &it.localhost_profile.unwrap_or_default()
            })
        };
        let app_armor = of_container.app_armor_profile.map_or(String::new(), |it| {
            it.type_ + &it.localhost_profile.unwrap_or_default()
        });
        [
            seccomp(of_pod.seccomp_profile),
            seccomp(of_container.seccomp_profile),
            app_armor,
        ]
    }

    #[test]
    fn an_annotation_fills_the_field_that_the_pod_leaves_out() {
        for (value, expected) in [
            ("runtime/default", "RuntimeDefault"),
            ("docker/default", "RuntimeDefault"),
            ("unconfined", "Unconfined"),
            ("localhost/a/b", "Localhosta/b"),
            ("localhost/", ""),
            ("other", ""),
            ("", ""),
        ] {
            let annotation = |key: &str| format!(r#"{{"{key}":"{value}"}}"#);
            let found = profiles(&annotation(SECCOMP_OF_POD), "{}", "{}");
            assert_eq!(found, [expected, "", ""], "{value}");
            let found = profiles(&annotation(&format!("{SECCOMP_OF_CONTAINER}c")), "{}", "{}");
            assert_eq!(found, ["", expected, ""], "{value}");
            let found = profiles(&annotation(&format!("{APP_ARMOR}c")), "{}", "{}");
            let expected = match value {
                "docker/default" => "",
                _ => expected,
            };
            assert_eq!(found, ["", "", expected], "{value}");
        }
    }

    #[test]
    fn a_field_stays_as_it_is() {
        let annotations = format!(
            r#"{{"{SECCOMP_OF_POD}":"unconfined","{SECCOMP_OF_CONTAINER}c":"unconfined",
                "{APP_ARMOR}c":"unconfined"}}"#
        );
        let seccomp = r#""seccompProfile":{"type":"RuntimeDefault"}"#;
        let both = format!(r#"{{{seccomp},"appArmorProfile":{{"type":"RuntimeDefault"}}}}"#);
        let found = profiles(&annotations, &format!("{{{seccomp}}}"), &both);
        assert_eq!(found, ["RuntimeDefault"; 3]);
    }

    #[test]
    fn what_the_pod_says_is_not_repeated_for_its_containers() {
        let annotations = format!(r#"{{"{APP_ARMOR}c":"runtime/default"}}"#);
        let of_pod = |kind: &str| format!(r#"{{"appArmorProfile":{{"type":"{kind}"}}}}"#);
        let found = profiles(&annotations, &of_pod("RuntimeDefault"), "{}");
        assert_eq!(found[2], "");
        let found = profiles(&annotations, &of_pod("Unconfined"), "{}");
        assert_eq!(found[2], "RuntimeDefault");
    }

    #[test]
    fn without_such_annotations_nothing_is_added() {
        let pod = filled(r#"{"a":"b"}"#, r#"{"containers":[{"name":"c"}]}"#);
        assert_eq!(pod.spec.unwrap().security_context, None);
        let windows = r#"{"os":{"name":"windows"},"containers":[{"name":"c"}]}"#;
        let annotations = format!(r#"{{"{SECCOMP_OF_POD}":"unconfined"}}"#);
        let pod = filled(&annotations, windows);
        assert_eq!(pod.spec.unwrap().security_context, None);
    }
}
