//! What a pod's volumes are made from.

use std::collections::BTreeSet;

use local_objects::claimed;
use pod::core::{EmptyDirVolumeSource, HostPathVolumeSource, Volume as ApiVolume, VolumeMount};
use pod::huge_pages::page_size;
use pod::{Pod, PodExt, Quantity, ephemeral, huge_pages};

use crate::files::Files;
use crate::sources::{Content, OfPod, Unavailable, files};

/// What the media begin with that are huge pages.
const HUGE_PAGES: &str = "HugePages";

/// A volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// What it is made from.
    pub spec: VolumeSpec,
}

/// What a volume is made from, by its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSpec {
    /// A directory of the pod's own, which is empty at first.
    EmptyDir(EmptyDir),
    /// A path of the node.
    HostPath(HostPath),
    /// Files that are written for the pod, and written again when what they tell changes.
    Files(Files),
    /// It cannot be made now, for this reason: what it refers to is not there, or nobody
    /// knows. Or it never can: validation lets no such pod pass.
    Impossible(String),
}

impl VolumeSpec {
    /// Whether containers may only read it, whatever their mounts say.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self, VolumeSpec::Files(_))
    }
}

/// A directory of the pod's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmptyDir {
    /// Where it is kept.
    pub medium: Medium,
    /// The permission bits of the directory, where the pod chooses them.
    pub mode: Option<u32>,
}

/// Where an emptyDir is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// On the disk of the pod's directory.
    Disk,
    /// In memory.
    Memory {
        /// Most bytes in it, by its own limit and the pod's; absent: what the node has for
        /// pods.
        limit_bytes: Option<u64>,
    },
    /// In huge pages.
    HugePages {
        /// The size of a page.
        page_bytes: u64,
        /// Most bytes in it; absent: as many as the pod may have.
        limit_bytes: Option<u64>,
    },
}

/// A path of the node that a container mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPath {
    /// Which of the pod's volumes it is: the node policy judges it by that.
    pub index: usize,
    /// Where it is.
    pub path: String,
    /// What is to be there, in the API's words; empty: anything.
    pub path_type: String,
    /// Whether what some container mounts in it shows on the node (`Bidirectional`).
    pub passes_back: bool,
}

/// The volumes that a pod is to have, in the pod's order.
///
/// A hostPath that no container mounts is none of them: as in the kubelet, nobody looks
/// for it. Nor is an image: the runtime mounts it into each container.
#[must_use]
pub fn wanted(pod: &Pod, content: &Content<'_>) -> Vec<Volume> {
    let mut of_pod = OfPod::new();
    let volumes = pod.volumes().iter().enumerate();
    let volumes = volumes.filter_map(|(index, volume)| {
        Some(Volume {
            name: volume.name.clone(),
            spec: spec((pod, &mut of_pod), index, volume, content)?,
        })
    });
    volumes.collect()
}

/// The volumes of files that a pod is to have, in the pod's order: those that change while
/// it runs. One that cannot be made now is none of them.
#[must_use]
pub fn wanted_files(pod: &Pod, content: &Content<'_>) -> Vec<Volume> {
    let mut volumes = wanted(pod, content);
    volumes.retain(|volume| matches!(volume.spec, VolumeSpec::Files(_)));
    volumes
}

fn spec(
    (pod, of_pod): (&Pod, &mut OfPod),
    index: usize,
    volume: &ApiVolume,
    content: &Content<'_>,
) -> Option<VolumeSpec> {
    if let Some(files) = files(pod, volume, content, of_pod) {
        let impossible = |Unavailable(reason)| VolumeSpec::Impossible(reason);
        return Some(files.map_or_else(impossible, VolumeSpec::Files));
    }
    if let Some(source) = &volume.empty_dir {
        let empty_dir = medium((pod, of_pod), source).map(|medium| EmptyDir {
            medium,
            mode: source.mode.and_then(|mode| u32::try_from(mode).ok()),
        });
        return Some(empty_dir.map_or_else(VolumeSpec::Impossible, VolumeSpec::EmptyDir));
    }
    if let Some(source) = &volume.host_path {
        let spec = || host_path(pod, index, volume, source);
        return is_mounted(pod, &volume.name).then(spec);
    }
    if let Some(source) = &volume.persistent_volume_claim {
        // Nothing is made of a pod with one that is known: it is a hostPath when the pod
        // is looked at next.
        let known = claimed(pod, &source.claim_name, content.objects);
        let reason = known.err().unwrap_or_else(|| {
            let claim = &source.claim_name;
            format!("the persistentvolume of the claim {claim:?} has just been found")
        });
        return is_mounted(pod, &volume.name).then_some(VolumeSpec::Impossible(reason));
    }
    if volume.image.is_some() {
        // The runtime mounts it.
        return None;
    }
    let reason = "this kind of volume is not supported".to_owned();
    Some(VolumeSpec::Impossible(reason))
}

fn host_path(
    pod: &Pod,
    index: usize,
    volume: &ApiVolume,
    source: &HostPathVolumeSource,
) -> VolumeSpec {
    VolumeSpec::HostPath(HostPath {
        index,
        path: source.path.clone(),
        path_type: source.type_.clone().unwrap_or_default(),
        passes_back: mounts_of(pod, &volume.name).any(passes_back),
    })
}

fn medium(
    (pod, of_pod): (&Pod, &mut OfPod),
    source: &EmptyDirVolumeSource,
) -> Result<Medium, String> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(Medium::Disk),
        "Memory" => {
            let own = size_limit(source)?;
            let limits = own.into_iter().chain(of_pod.memory_limit(pod));
            Ok(Medium::Memory {
                limit_bytes: limits.filter(|limit| *limit > 0).min(),
            })
        }
        medium => {
            let limit_bytes = size_limit(source)?.filter(|limit| *limit > 0);
            let page_bytes = medium_page_size(pod, medium)?;
            // The kernel would leave it no page at all.
            if limit_bytes.is_some_and(|limit| limit < page_bytes) {
                return Err(format!(
                    "sizeLimit is less than a page of {page_bytes} bytes"
                ));
            }
            Ok(Medium::HugePages {
                page_bytes,
                limit_bytes,
            })
        }
    }
}

fn size_limit(source: &EmptyDirVolumeSource) -> Result<Option<u64>, String> {
    let Some(limit) = &source.size_limit else {
        return Ok(None);
    };
    let limit = Quantity::from_api(limit).map_err(|error| format!("sizeLimit: {error}"))?;
    Ok(u64::try_from(limit.value()).ok())
}

/// The size of the huge pages of a medium `HugePages` or `HugePages-2Mi`: one of those that
/// the pod asks for, as a kubelet has it.
fn medium_page_size(pod: &Pod, medium: &str) -> Result<u64, String> {
    let chosen = match medium.strip_prefix(HUGE_PAGES) {
        Some("") => None,
        Some(size) => {
            let size = size.strip_prefix('-').unwrap_or_default();
            let size = huge_pages::bytes(size);
            Some(size.ok_or_else(|| format!("medium {medium:?} names no size of pages"))?)
        }
        None => return Err(format!("medium {medium:?} is not supported")),
    };
    let containers = pod.all_containers();
    let resources = containers.filter_map(|(_, spec)| spec.resources.as_ref());
    let of_pod = pod.spec.iter().filter_map(|spec| spec.resources.as_ref());
    let resources = resources.chain(of_pod);
    let names = resources.flat_map(|it| it.requests.iter().flat_map(|it| it.keys()));
    let sizes = names.filter_map(|name| page_size(name));
    let asked: BTreeSet<u64> = sizes.collect();
    let mut usable = asked
        .into_iter()
        .filter(|size| chosen.is_none_or(|chosen| chosen == *size));
    match (usable.next(), usable.next()) {
        (Some(size), None) => Ok(size),
        (None, _) => Err(format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for \
             huge pages"
        )),
        (Some(_), Some(_)) => Err(format!(
            "medium {medium} can't be used if container requests multiple huge page sizes"
        )),
    }
}

fn is_mounted(pod: &Pod, volume: &str) -> bool {
    mounts_of(pod, volume).next().is_some()
}

/// The mounts of a volume, of all containers.
fn mounts_of<'a>(pod: &'a Pod, volume: &'a str) -> impl Iterator<Item = &'a VolumeMount> {
    let containers = pod.all_containers();
    let mounts = containers.flat_map(|(_, spec)| spec.volume_mounts.iter().flatten());
    let listed = ephemeral::listed(pod).iter();
    let of_ephemeral = listed.flat_map(|it| it.volume_mounts.iter().flatten());
    mounts
        .chain(of_ephemeral)
        .filter(move |mount| mount.name == volume)
}

/// Whether what the container mounts in it is to show on the node.
#[must_use]
pub fn passes_back(mount: &VolumeMount) -> bool {
    mount.mount_propagation.as_deref() == Some("Bidirectional")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use std::collections::BTreeMap;

    use local_objects::Objects;

    use super::*;

    fn wanted_of(volume: Value, mounts: Value, memory: Option<&str>) -> Vec<VolumeSpec> {
        let mut value = test_pods::manifest("a", "u");
        value["spec"]["volumes"] = json!([volume]);
        value["spec"]["containers"][0]["volumeMounts"] = mounts;
        if let Some(memory) = memory {
            value["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": memory}});
        }
        let (objects, allocatable) = (Objects::default(), BTreeMap::new());
        let content = Content {
            objects: &objects,
            allocatable: &allocatable,
        };
        let volumes = wanted(&test_pods::pod(value), &content).into_iter();
        volumes.map(|volume| volume.spec).collect()
    }

    #[test]
    fn a_volume_in_memory_is_as_large_as_the_smallest_limit() {
        for (size, memory, bytes) in [
            (None, None, None),
            (Some("1Mi"), None, Some(1 << 20)),
            (None, Some("2Mi"), Some(2 << 20)),
            (Some("1Mi"), Some("2Mi"), Some(1 << 20)),
            (Some("3Mi"), Some("2Mi"), Some(2 << 20)),
            (Some("0"), Some("2Mi"), Some(2 << 20)),
            (Some("0"), None, None),
        ] {
            let mut source = json!({"medium": "Memory"});
            if let Some(size) = size {
                source["sizeLimit"] = json!(size);
            }
            let found = wanted_of(json!({"name": "v", "emptyDir": source}), json!([]), memory);
            let medium = Medium::Memory { limit_bytes: bytes };
            let spec = VolumeSpec::EmptyDir(EmptyDir { medium, mode: None });
            assert_eq!(found, [spec], "{size:?} {memory:?}");
        }
    }

    /// The medium of an emptyDir in a pod that requests these resources.
    fn medium_of(medium: &str, limit: Option<&str>, asked: &[&str]) -> Result<Medium, String> {
        let mut value = test_pods::manifest("a", "u");
        let mut source = json!({"medium": medium});
        if let Some(limit) = limit {
            source["sizeLimit"] = json!(limit);
        }
        value["spec"]["volumes"] = json!([{"name": "v", "emptyDir": source}]);
        for name in asked {
            value["spec"]["containers"][0]["resources"]["requests"][name] = json!("0");
        }
        let pod = test_pods::pod(value);
        let source = pod.volumes()[0].empty_dir.clone().unwrap();
        super::medium((&pod, &mut OfPod::new()), &source)
    }

    #[test]
    fn huge_pages_are_of_a_size_that_the_pod_asks_for() {
        let none = "hugePages storage requested, but there is no resource request for huge pages";
        let several = "can't be used if container requests multiple huge page sizes";
        let two = (2 << 20, None);
        for (medium, limit, asked, expected) in [
            ("HugePages", None, &["hugepages-2Mi"][..], Ok(two)),
            ("HugePages-2Mi", None, &["hugepages-2Mi"], Ok(two)),
            ("HugePages-2048Ki", None, &["hugepages-2Mi"], Ok(two)),
            (
                "HugePages",
                Some("4Mi"),
                &["hugepages-2Mi"],
                Ok((2 << 20, Some(4 << 20))),
            ),
            ("HugePages", Some("0"), &["hugepages-2Mi"], Ok(two)),
            (
                "HugePages",
                Some("1Mi"),
                &["hugepages-2Mi"],
                Err("less than a page of 2097152 bytes"),
            ),
            (
                "HugePages-2Mi",
                None,
                &["hugepages-1Gi", "hugepages-2Mi"],
                Ok(two),
            ),
            (
                "HugePages",
                None,
                &["hugepages-1Gi", "hugepages-2Mi"],
                Err(several),
            ),
            ("HugePages", None, &[], Err(none)),
            ("HugePages-1Gi", None, &["hugepages-2Mi"], Err(none)),
            (
                "HugePages-x",
                None,
                &["hugepages-2Mi"],
                Err("names no size of pages"),
            ),
            (
                "HugePages-",
                None,
                &["hugepages-2Mi"],
                Err("names no size of pages"),
            ),
            (
                "HugePages2Mi",
                None,
                &["hugepages-2Mi"],
                Err("names no size of pages"),
            ),
            ("Disk", None, &["hugepages-2Mi"], Err("is not supported")),
        ] {
            let found = medium_of(medium, limit, asked);
            match expected {
                Ok((page_bytes, limit_bytes)) => {
                    let expected = Medium::HugePages {
                        page_bytes,
                        limit_bytes,
                    };
                    assert_eq!(found, Ok(expected), "{medium} {limit:?} {asked:?}");
                }
                Err(words) => {
                    let error = found.unwrap_err();
                    assert!(error.contains(words), "{medium} {asked:?}: {error}");
                }
            }
        }
    }

    #[test]
    fn each_kind_has_its_spec_and_what_is_not_known_is_impossible() {
        let mounts = json!([{"name": "v", "mountPath": "/v"}]);
        let of = |source: Value, mounts: &Value| {
            let mut volume = json!({"name": "v"});
            volume
                .as_object_mut()
                .unwrap()
                .extend(source.as_object().unwrap().clone());
            wanted_of(volume, mounts.clone(), None)
        };
        let disk = |mode| {
            let medium = Medium::Disk;
            VolumeSpec::EmptyDir(EmptyDir { medium, mode })
        };
        assert_eq!(of(json!({"emptyDir": {}}), &json!([])), [disk(None)]);
        let with_mode = of(json!({"emptyDir": {"mode": 0o1770}}), &json!([]));
        assert_eq!(with_mode, [disk(Some(0o1770))]);
        let host_path = json!({"hostPath": {"path": "/srv", "type": "Directory"}});
        let spec = VolumeSpec::HostPath(HostPath {
            index: 0,
            path: "/srv".to_owned(),
            path_type: "Directory".to_owned(),
            passes_back: false,
        });
        assert_eq!(of(host_path.clone(), &mounts), [spec]);
        let mut back = json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/w"}]);
        back[1]["mountPropagation"] = json!("Bidirectional");
        let found = of(host_path.clone(), &back);
        let is_so = matches!(&found[..], [VolumeSpec::HostPath(found)] if found.passes_back);
        assert!(is_so, "{found:?}");
        assert_eq!(of(host_path, &json!([])), [], "nobody mounts it");
        for impossible in [
            json!({"nfs": {"server": "s", "path": "/"}}),
            json!({"emptyDir": {"medium": "Tape"}}),
            json!({"emptyDir": {"medium": "Memory", "sizeLimit": "x"}}),
        ] {
            let found = of(impossible.clone(), &mounts);
            let is_so = matches!(&found[..], [VolumeSpec::Impossible(_)]);
            assert!(is_so, "{impossible}: {found:?}");
        }
    }
}
