//! Whom the runtime has a container run as: the user, and the groups that the image's
//! own files (`/etc/passwd`, `/etc/group`) add, which no request says.

use std::collections::BTreeMap;

use cri::v1;
use node_policy::Demand;
use serde::Deserialize;

use crate::request::Asked;

/// The part of the OCI specification that says whom a container runs as, within what
/// containerd and CRI-O tell of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    runtime_spec: RuntimeSpec,
}

#[derive(Deserialize)]
struct RuntimeSpec {
    process: Process,
    #[serde(default)]
    linux: Linux,
}

#[derive(Default, Deserialize)]
struct Linux {
    #[serde(default)]
    namespaces: Vec<Namespace>,
}

#[derive(Deserialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Process {
    user: ProcessUser,
}

/// User and groups of a container's first process.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessUser {
    uid: u32,
    /// Left out where it is 0.
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    additional_gids: Vec<u32>,
    /// Whether it is one of the users of a namespace of its own.
    #[serde(skip)]
    is_of_pod: bool,
}

impl ProcessUser {
    /// From what the runtime tells of a container; `None` where it tells nothing.
    pub(crate) fn told(info: &BTreeMap<String, String>) -> Option<ProcessUser> {
        let info: Info = serde_json::from_str(info.get("info")?).ok()?;
        let RuntimeSpec { process, linux } = info.runtime_spec;
        let mut namespaces = linux.namespaces.iter();
        Some(ProcessUser {
            is_of_pod: namespaces.any(|namespace| namespace.kind == "user"),
            ..process.user
        })
    }

    /// What it is asked for.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let user = Asked::new("the container's user", Demand::User(i64::from(self.uid)));
        let user = (self.uid != 0 || !self.is_of_pod).then_some(user);
        let groups = [self.gid].into_iter().chain(self.additional_gids.clone());
        let groups = groups.map(|group| {
            let demand = Demand::Group(i64::from(group));
            Asked::new("the container's groups", demand)
        });
        user.into_iter().chain(groups).collect()
    }
}

/// Whether an image is asked for by the digest of all that is in it. containerd takes
/// one that is cut short, as `sha256:0123`, for a name with a tag.
fn is_digest(image: &str) -> bool {
    let digits = image.strip_prefix("sha256:");
    digits.is_some_and(|it| it.len() == 64 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// All that decides whom a container runs as: the image with its files, and what the
/// request says of users and groups. `None` where the image is asked for by a name, which
/// may be another image's by now.
pub(crate) fn key(config: &v1::ContainerConfig, has_own_users: bool) -> Option<String> {
    let image = config.image.as_ref()?.image.as_str();
    let security = config.linux.as_ref()?.security_context.clone();
    let v1::LinuxContainerSecurityContext {
        run_as_user,
        run_as_group,
        run_as_username,
        supplemental_groups,
        supplemental_groups_policy,
        ..
    } = security.unwrap_or_default();
    let user = (run_as_user, run_as_username, run_as_group);
    let groups = (supplemental_groups, supplemental_groups_policy);
    is_digest(image).then(|| format!("{image} {user:?} {groups:?} {has_own_users}"))
}

#[cfg(test)]
mod tests {
    use cri::v1::Int64Value;

    use super::*;

    #[test]
    fn who_a_container_runs_as_follows_from_its_image_and_what_is_said_of_users_and_groups() {
        let of = |image: &str, security: v1::LinuxContainerSecurityContext| v1::ContainerConfig {
            image: Some(v1::ImageSpec {
                image: image.to_owned(),
                ..v1::ImageSpec::default()
            }),
            linux: Some(v1::LinuxContainerConfig {
                security_context: Some(security),
                ..v1::LinuxContainerConfig::default()
            }),
            ..v1::ContainerConfig::default()
        };
        let (one, other) = (format!("sha256:{:064}", 1), format!("sha256:{:064}", 2));
        let number = |value| Some(Int64Value { value });
        let nothing = v1::LinuxContainerSecurityContext::default;
        let different = [
            key(&of(&one, nothing()), false),
            key(&of(&one, nothing()), true),
            key(&of(&other, nothing()), false),
        ]
        .into_iter()
        .chain(
            [
                v1::LinuxContainerSecurityContext {
                    run_as_user: number(1),
                    ..nothing()
                },
                v1::LinuxContainerSecurityContext {
                    run_as_group: number(1),
                    ..nothing()
                },
                v1::LinuxContainerSecurityContext {
                    run_as_username: "1".to_owned(),
                    ..nothing()
                },
                v1::LinuxContainerSecurityContext {
                    supplemental_groups: vec![1],
                    ..nothing()
                },
                v1::LinuxContainerSecurityContext {
                    supplemental_groups_policy: 1,
                    ..nothing()
                },
            ]
            .map(|security| key(&of(&one, security), false)),
        );
        let different: Vec<_> = different.collect::<Option<_>>().unwrap();
        let distinct: std::collections::BTreeSet<_> = different.iter().collect();
        assert_eq!(distinct.len(), different.len(), "{different:?}");
        let same = v1::LinuxContainerSecurityContext {
            readonly_rootfs: true,
            ..nothing()
        };
        assert_eq!(key(&of(&one, same), false).as_ref(), different.first());
        let names = ["registry/app:1", "sha256:0123", &one.replace('0', "g")];
        for name in names {
            assert_eq!(key(&of(name, nothing()), false), None, "{name}");
        }
        assert_eq!(key(&v1::ContainerConfig::default(), false), None);
    }

    #[test]
    fn user_and_all_groups_are_read_from_the_oci_specification() {
        let told = |text: &str| {
            let info = [("info".to_owned(), text.to_owned())].into();
            ProcessUser::told(&info).map(|user| (user.uid, user.gid, user.additional_gids))
        };
        let of =
            |user: &str| format!(r#"{{"pid":1,"runtimeSpec":{{"process":{{"user":{user}}}}}}}"#);
        for (user, expected) in [
            (
                r#"{"uid":1,"gid":2,"additionalGids":[2,3]}"#,
                Some((1, 2, vec![2, 3])),
            ),
            (r#"{"uid":0,"gid":0}"#, Some((0, 0, vec![]))),
            (r#"{"uid":7}"#, Some((7, 0, vec![]))),
            (r#"{"username":"x"}"#, None),
        ] {
            assert_eq!(told(&of(user)), expected, "{user}");
        }
        assert_eq!(told("no JSON"), None);
        assert_eq!(ProcessUser::told(&BTreeMap::new()), None);
    }

    #[test]
    fn root_of_a_user_namespace_is_not_asked_for_and_its_groups_are() {
        for (kind, expected) in [("user", 2), ("network", 3)] {
            let told = format!(
                r#"{{"runtimeSpec":{{"process":{{"user":{{"uid":0,"gid":5,"additionalGids":[7]}}}},
                    "linux":{{"namespaces":[{{"type":"pid"}},{{"type":"{kind}","path":"/x"}}]}}}}}}"#
            );
            let info = [("info".to_owned(), told)].into();
            let user = ProcessUser::told(&info).unwrap();
            assert_eq!(user.asked().len(), expected, "{kind}");
        }
    }
}
