//! The ids of pods with user namespaces of their own: `userNamespaces`, and the node's
//! files of subordinate ids, where they give the user `kubelet` some. The ranges are those
//! that a kubelet with the same files has.

use node_config::{ID_RANGE_UNIT, NodeConfig, UserNamespaceSettings};
use serde::Deserialize;

use super::problem::{Applied, refused};

const IDS_PER_POD: &str = "userNamespaces.idsPerPod";

/// Whose subordinate ids a kubelet gives to pods.
const KUBELET_USER: &str = "kubelet";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Given {
    ids_per_pod: Option<i64>,
}

impl Given {
    /// After `maxPods` has been applied: each pod gets a range.
    pub(super) fn apply(&self, config: &mut NodeConfig) -> Applied {
        let given = self.ids_per_pod.unwrap_or(i64::from(ID_RANGE_UNIT));
        let ids_per_pod = match u32::try_from(given) {
            Ok(ids) if ids > 0 && ids.is_multiple_of(ID_RANGE_UNIT) => ids,
            _ => {
                let reason = format!("{given} is not a multiple of {ID_RANGE_UNIT}");
                return refused(IDS_PER_POD, reason);
            }
        };
        let settings = UserNamespaceSettings {
            first: ids_per_pod,
            ids_per_pod,
            pods: config.max_pods,
        };
        if !fits(&settings) {
            let reason = format!(
                "{given} for each of {} pods (maxPods) is more than there are ids",
                config.max_pods
            );
            return refused(IDS_PER_POD, reason);
        }
        config.user_namespaces = settings;
        Ok(())
    }
}

/// Whether all ranges are of ids that exist; the last one means "none".
fn fits(settings: &UserNamespaceSettings) -> bool {
    let ids = u64::from(settings.pods) * u64::from(settings.ids_per_pod);
    u64::from(settings.first) + ids <= u64::from(u32::MAX)
}

/// Why the subordinate ids of the user `kubelet` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the subordinate ids of the user kubelet in {file}: {reason}")]
pub struct SubordinateIdError {
    /// `/etc/subuid`, or both files.
    pub file: &'static str,
    /// What is wrong.
    pub reason: String,
}

/// What the node's files of subordinate ids say; empty for one that is not there.
#[derive(Clone, Copy, Debug)]
pub struct SubordinateIdFiles<'a> {
    /// `/etc/subuid`.
    pub users: &'a str,
    /// `/etc/subgid`.
    pub groups: &'a str,
}

impl SubordinateIdFiles<'_> {
    /// Gives pods the ids that the files give the user `kubelet`. Files that do not name
    /// it leave everything as it is.
    ///
    /// # Errors
    /// When the files differ or what they give is not enough for all pods.
    pub fn apply(&self, config: &mut NodeConfig) -> Result<(), SubordinateIdError> {
        const BOTH: &str = "/etc/subuid and /etc/subgid";
        let failed = |file, reason: String| Err(SubordinateIdError { file, reason });
        let users = entries(self.users);
        if users != entries(self.groups) {
            return failed(BOTH, "the two files must give the same ids".to_owned());
        }
        let [entry] = users.as_slice() else {
            return match users.len() {
                0 => Ok(()),
                many => failed(BOTH, format!("there are {many} ranges: give one")),
            };
        };
        let ids_per_pod = config.user_namespaces.ids_per_pod;
        let numbers = entry.split_once(':').and_then(|(first, count)| {
            let numbers = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
            numbers.0.checked_add(numbers.1).map(|_| numbers)
        });
        let Some((first, count)) = numbers else {
            return failed(BOTH, format!("{entry:?} is not FIRST:COUNT"));
        };
        if first == 0 || !first.is_multiple_of(ids_per_pod) || !count.is_multiple_of(ids_per_pod) {
            let reason = format!(
                "first and count in {entry:?} must be multiples of {ids_per_pod} ({IDS_PER_POD}), \
                 the first not 0"
            );
            return failed(BOTH, reason);
        }
        let pods = count / ids_per_pod;
        if pods < config.max_pods {
            let reason = format!(
                "{entry:?} is enough for {pods} pods: maxPods is {}",
                config.max_pods
            );
            return failed(BOTH, reason);
        }
        config.user_namespaces = UserNamespaceSettings {
            first,
            ids_per_pod,
            pods,
        };
        Ok(())
    }
}

/// What follows the user's name in each line that is for it.
fn entries(text: &str) -> Vec<&str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let own = lines.filter(|(user, _)| *user == KUBELET_USER);
    own.map(|(_, ids)| ids.trim_end()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use node_config::DirectoryLayout;

    use super::*;
    use crate::kubelet::KubeletConfig;

    fn configured(body: &str) -> Result<NodeConfig, String> {
        let directories = DirectoryLayout {
            run_dir: "/r".into(),
            state_dir: "/s".into(),
            root_dir: "/k".into(),
            log_dir: "/l".into(),
            bin_dir: "/b".into(),
        };
        let mut config = NodeConfig::with_defaults("n", directories);
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let parsed = KubeletConfig::parse(Path::new("/c.yaml"), &format!("{head}{body}"));
        let applied = parsed.and_then(|parsed| parsed.apply(&mut config, 1));
        let applied = applied.map_err(|error| error.to_string());
        applied.map(|_| config)
    }

    fn settings(first: u32, ids_per_pod: u32, pods: u32) -> UserNamespaceSettings {
        UserNamespaceSettings {
            first,
            ids_per_pod,
            pods,
        }
    }

    #[test]
    fn each_pod_that_may_run_has_a_range() {
        for (body, expected) in [
            ("", settings(65_536, 65_536, 110)),
            ("maxPods: 3", settings(65_536, 65_536, 3)),
            ("userNamespaces: {}", settings(65_536, 65_536, 110)),
            (
                "userNamespaces: {idsPerPod: 131072}\nmaxPods: 20",
                settings(131_072, 131_072, 20),
            ),
            ("maxPods: 65534", settings(65_536, 65_536, 65_534)),
        ] {
            assert_eq!(
                configured(body).unwrap().user_namespaces,
                expected,
                "{body}"
            );
        }
    }

    #[test]
    fn a_range_is_a_whole_number_of_units_and_all_ranges_fit() {
        for body in [
            "userNamespaces: {idsPerPod: 0}",
            "userNamespaces: {idsPerPod: -65536}",
            "userNamespaces: {idsPerPod: 65537}",
            "userNamespaces: {idsPerPod: 4294967296}",
            "userNamespaces: {idsPerPod: 65536}\nmaxPods: 65535",
        ] {
            let error = configured(body).unwrap_err();
            assert!(error.contains(IDS_PER_POD), "{body}: {error}");
        }
    }

    #[test]
    fn subordinate_ids_of_the_user_kubelet_are_those_of_pods() {
        let others = "root:100000:65536\nkubelet2:65536:65536\n";
        for (users, groups, expected) in [
            ("", "", settings(65_536, 65_536, 3)),
            (others, "", settings(65_536, 65_536, 3)),
            (
                "root:100000:65536\nkubelet:131072:196608\n",
                "kubelet:131072:196608",
                settings(131_072, 65_536, 3),
            ),
            (
                "kubelet:655360:655360",
                "kubelet:655360:655360",
                settings(655_360, 65_536, 10),
            ),
        ] {
            let mut config = configured("maxPods: 3").unwrap();
            let files = SubordinateIdFiles { users, groups };
            files.apply(&mut config).unwrap();
            assert_eq!(config.user_namespaces, expected, "{users:?}");
        }
    }

    #[test]
    fn subordinate_ids_that_are_no_ranges_for_all_pods_are_refused() {
        for (users, groups, words) in [
            ("kubelet:65536:196608", "", "the same ids"),
            (
                "kubelet:65536:196608",
                "kubelet:131072:196608",
                "the same ids",
            ),
            (
                "kubelet:65536:196608\nkubelet:655360:196608",
                "kubelet:65536:196608\nkubelet:655360:196608",
                "2 ranges",
            ),
            ("kubelet:65536", "kubelet:65536", "FIRST:COUNT"),
            ("kubelet:a:65536", "kubelet:a:65536", "FIRST:COUNT"),
            (
                "kubelet:4294901760:131072",
                "kubelet:4294901760:131072",
                "FIRST:COUNT",
            ),
            ("kubelet:0:196608", "kubelet:0:196608", "not 0"),
            ("kubelet:65537:196608", "kubelet:65537:196608", "multiples"),
            ("kubelet:65536:196609", "kubelet:65536:196609", "multiples"),
            (
                "kubelet:65536:131072",
                "kubelet:65536:131072",
                "2 pods: maxPods is 3",
            ),
        ] {
            let mut config = configured("maxPods: 3").unwrap();
            let files = SubordinateIdFiles { users, groups };
            let error = files.apply(&mut config).unwrap_err().to_string();
            assert!(error.contains(words), "{users:?}: {error}");
        }
    }
}
