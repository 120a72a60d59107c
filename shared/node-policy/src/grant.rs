//! A grant: which pods and images it is for, and what it gives them.

use std::fmt::Write as _;

use pod::PodSource;
use pod::capability::plain_name;
use pod::sysctl::dotted;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::demand::{Demand, SeLinuxOption};
use crate::path::NodePath;
use crate::protected::{Protected, Standing};
use crate::range::Range;
use crate::selector::{ImagePrefix, PodGlob};
use crate::subject::Subject;

/// One `[[grants]]` table of a policy. With both `pods` and `images`, both must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Grant {
    /// Which pods it is for; empty: all whose images match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodGlob>,
    /// Which images it is for; empty: all of the pods that match. What a container
    /// asks for needs a match of its own image, what a pod asks for one of each of
    /// its images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImagePrefix>,
    /// From which sources the pods come; empty: from any.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "sources")]
    pub sources: Vec<PodSource>,

    /// The node's network, and with it all its ports.
    #[serde(skip_serializing_if = "is_false")]
    pub host_network: bool,
    /// The node's processes.
    #[serde(rename = "hostPID", skip_serializing_if = "is_false")]
    pub host_pid: bool,
    /// The node's IPC.
    #[serde(rename = "hostIPC", skip_serializing_if = "is_false")]
    pub host_ipc: bool,
    /// Windows containers that are processes of the node.
    #[serde(skip_serializing_if = "is_false")]
    pub host_process: bool,
    /// Privileged containers.
    #[serde(skip_serializing_if = "is_false")]
    pub privileged: bool,
    /// Paths of the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_paths: Vec<HostPathGrant>,
    /// Capabilities that containers may add, without `CAP_`. `ALL` is the word for all
    /// and is not implied by naming some.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "capabilities"
    )]
    pub capabilities: Vec<String>,
    /// Containers need not drop all capabilities.
    #[serde(skip_serializing_if = "is_false")]
    pub default_capabilities: bool,
    /// Ports of the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<Range>,
    /// Device nodes, disks among them, each by its path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<NodePath>,
    /// Sysctls by name; one that ends with `.*` stands for all that begin so.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "sysctls")]
    pub sysctls: Vec<String>,
    /// Users that containers may run as. 0 also allows containers whose user is the
    /// image's choice. A user of the agent must be named by itself, not by a range.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<Range>,
    /// Groups, as users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Range>,
    /// `allowPrivilegeEscalation`.
    #[serde(skip_serializing_if = "is_false")]
    pub privilege_escalation: bool,
    /// No seccomp profile, chosen or by default.
    #[serde(skip_serializing_if = "is_false")]
    pub seccomp_unconfined: bool,
    /// No AppArmor profile.
    #[serde(skip_serializing_if = "is_false")]
    pub app_armor_unconfined: bool,
    /// SELinux types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub se_linux_types: Vec<String>,
    /// SELinux users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub se_linux_users: Vec<String>,
    /// SELinux roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub se_linux_roles: Vec<String>,
    /// `procMount: Unmasked`.
    #[serde(skip_serializing_if = "is_false")]
    pub unmasked_proc: bool,
    /// Kinds of volumes by the names of their fields in the pod: `nfs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_kinds: Vec<String>,
    /// Hosts that probes and hooks may be sent to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probe_hosts: Vec<String>,
    /// Commands of people in pods that are beyond `baseline`.
    #[serde(skip_serializing_if = "is_false")]
    pub exec: bool,
}

/// Paths of the node that a grant gives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostPathGrant {
    /// The path; all below it is given too.
    pub prefix: NodePath,
    /// Only to read.
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// Links below the prefix may be followed, wherever they lead but to what is
    /// protected.
    #[serde(default, skip_serializing_if = "is_false")]
    pub follow_links: bool,
    /// What is protected below the prefix is given too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub includes_protected: bool,
}

impl HostPathGrant {
    /// Whether it gives the path.
    pub(crate) fn covers(&self, path: &NodePath, read_only: bool, protected: &Protected) -> bool {
        path.is_within(&self.prefix)
            && (read_only || !self.read_only)
            && match protected.standing(path) {
                Standing::Apart => true,
                Standing::Within(known, _) => {
                    self.includes_protected || self.prefix.is_within(known)
                }
                Standing::Above(..) => self.includes_protected,
            }
    }
}

impl Grant {
    /// Whether it is for pods like this one; its images are not looked at.
    pub(crate) fn is_for_pod(&self, subject: &Subject) -> bool {
        let Subject {
            source,
            namespace,
            name,
            ..
        } = subject;
        let pods = &self.pods;
        (self.sources.is_empty() || self.sources.contains(source))
            && (pods.is_empty() || pods.iter().any(|glob| glob.matches(namespace, name)))
    }

    /// Whether it is for a container with this image, or without one for a pod with
    /// all of these.
    pub(crate) fn is_for_image(&self, image: Option<&str>, all: &[String]) -> bool {
        let matches = |image: &str| self.images.iter().any(|prefix| prefix.matches(image));
        match image {
            _ if self.images.is_empty() => true,
            Some(image) => matches(image),
            None => !all.is_empty() && all.iter().all(|image| matches(image)),
        }
    }

    /// Whether it gives what is demanded.
    pub(crate) fn covers(&self, demand: &Demand, protected: &Protected) -> bool {
        match demand {
            Demand::HostNetwork => self.host_network,
            Demand::HostPid => self.host_pid,
            Demand::HostIpc => self.host_ipc,
            Demand::WindowsHostProcess => self.host_process,
            Demand::Privileged => self.privileged,
            Demand::Capability(name) => self.capabilities.contains(name),
            Demand::DefaultCapabilities => self.default_capabilities,
            Demand::HostPath { path, read_only } => {
                let mut grants = self.host_paths.iter();
                NodePath::parse(path).is_ok_and(|path| {
                    grants.any(|grant| grant.covers(&path, *read_only, protected))
                })
            }
            Demand::HostPort(port) => contains(&self.host_ports, i64::from(*port)),
            Demand::Device { path, .. } => {
                NodePath::parse(path).is_ok_and(|path| self.devices.contains(&path))
            }
            Demand::Sysctl(name) => {
                self.sysctls
                    .iter()
                    .any(|granted| match granted.strip_suffix('*') {
                        Some(beginning) => name.starts_with(beginning),
                        None => granted == name,
                    })
            }
            Demand::User(user) => covers_id(&self.users, *user, protected.user(*user).is_some()),
            Demand::Group(id) => covers_id(&self.groups, *id, protected.group(*id).is_some()),
            Demand::MayRunAsRoot => contains(&self.users, 0),
            Demand::PrivilegeEscalation => self.privilege_escalation,
            Demand::SeccompUnconfined | Demand::SeccompUnset => self.seccomp_unconfined,
            Demand::AppArmorUnconfined => self.app_armor_unconfined,
            Demand::SeLinux(option, value) => self.se_linux(*option).contains(value),
            Demand::UnmaskedProc | Demand::UnmaskedProcOfOwnUsers => self.unmasked_proc,
            Demand::VolumeKind(kind) => self.volume_kinds.contains(kind),
            Demand::ProbeHost(host) => self.probe_hosts.contains(host),
            Demand::Exec => self.exec,
        }
    }

    fn se_linux(&self, option: SeLinuxOption) -> &Vec<String> {
        match option {
            SeLinuxOption::Type => &self.se_linux_types,
            SeLinuxOption::User => &self.se_linux_users,
            SeLinuxOption::Role => &self.se_linux_roles,
        }
    }

    /// Whether it gives nothing at all: a mistake in a policy.
    pub(crate) fn gives_nothing(&self) -> bool {
        let selectors = Grant {
            pods: self.pods.clone(),
            images: self.images.clone(),
            sources: self.sources.clone(),
            ..Grant::default()
        };
        *self == selectors
    }

    /// Whether it gives something protected by its name.
    #[must_use]
    pub fn names_protected(&self, protected: &Protected) -> bool {
        let is_named = |ids: &[Range], id: u32| ids.iter().any(|range| range.is_exactly(id));
        let paths = self.host_paths.iter().map(|path| &path.prefix);
        paths
            .chain(&self.devices)
            .any(|path| matches!(protected.standing(path), Standing::Within(..)))
            || protected
                .users()
                .any(|(user, _)| is_named(&self.users, user))
            || protected
                .groups()
                .any(|group| is_named(&self.groups, group))
    }

    /// As a `[[grants]]` table that can be appended to a policy.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = "[[grants]]\n".to_owned();
        for (key, value) in self.entries() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{key} = {value}");
        }
        text
    }

    /// As an inline table, for messages of one line.
    #[must_use]
    pub fn to_inline_toml(&self) -> String {
        let entries = self.entries().into_iter();
        let entries: Vec<String> = entries
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        format!("{{ {} }}", entries.join(", "))
    }

    /// Keys and values in TOML: whom it is for first.
    fn entries(&self) -> Vec<(String, toml::Value)> {
        const SELECTORS: [&str; 3] = ["pods", "images", "sources"];
        // No field of a grant is anything that TOML cannot hold.
        let mut table = toml::Table::try_from(self).unwrap_or_default();
        let selectors = SELECTORS
            .into_iter()
            .filter_map(|key| table.remove_entry(key));
        let mut entries: Vec<_> = selectors.collect();
        entries.extend(table);
        entries
    }
}

fn contains(ranges: &[Range], number: i64) -> bool {
    u32::try_from(number).is_ok_and(|number| ranges.iter().any(|range| range.contains(number)))
}

/// A protected number must be named by itself.
fn covers_id(ranges: &[Range], id: i64, is_protected: bool) -> bool {
    if !is_protected {
        return contains(ranges, id);
    }
    u32::try_from(id).is_ok_and(|id| ranges.iter().any(|range| range.is_exactly(id)))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

fn capabilities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let names = names.into_iter().map(|name| {
        let plain = plain_name(&name);
        if plain.is_empty() {
            let reason = "a capability has a name like NET_ADMIN";
            return Err(de::Error::custom(reason));
        }
        Ok(plain)
    });
    names.collect()
}

fn sysctls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let names = names.into_iter().map(|name| {
        let plain = dotted(&name);
        let beginning = plain.strip_suffix(".*").unwrap_or(&plain);
        if beginning.is_empty() || beginning.contains('*') {
            let reason = format!("{name:?} is not a sysctl like kernel.msgmax, or net.core.*");
            return Err(de::Error::custom(reason));
        }
        Ok(plain)
    });
    names.collect()
}

/// Sources by their words.
mod sources {
    use super::{Deserialize as _, Deserializer, PodSource, Serializer, de};

    #[expect(clippy::ptr_arg, reason = "serde passes a reference to the field")]
    pub(super) fn serialize<S: Serializer>(
        sources: &Vec<PodSource>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(sources.iter().map(|source| source.as_str()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PodSource>, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        let sources = words.iter().map(|word| {
            PodSource::parse(word).ok_or_else(|| {
                de::Error::custom(format!("{word:?} is not a source: file, http or api"))
            })
        });
        sources.collect()
    }
}
