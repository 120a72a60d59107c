//! What the sources of a volume of files come to: ConfigMaps, Secrets and the downward API,
//! alone or projected into one volume.

use std::collections::BTreeMap;

use local_objects::{LocalObject, Lookup, ObjectBytes, ObjectKind, Objects};
use pod::core::{
    DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource, ResourceFieldSelector,
    Volume as ApiVolume, VolumeProjection,
};
use pod::downward::{metadata_field, resource_value};
use pod::resources::pod_cgroup_resources;
use pod::{Pod, PodExt, Quantity};

use crate::files::{Files, FilesKind, MAX_BYTES, VolumeFile};

/// Permissions of a file that states none, as the API server sets them.
const DEFAULT_MODE: i32 = 0o644;

/// The permissions among the bits of a mode.
const PERMISSIONS: i32 = 0o777;

/// What a file's owner and the pod's group may do with it, when there is such a group.
const READABLE: u32 = 0o440;

/// What volumes of files are made from beside the pod.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// What is known of the objects that the pod refers to.
    pub objects: &'a Objects,
    /// What pods may use of the node in all: limits that are not stated read as this.
    pub allocatable: &'a BTreeMap<String, Quantity>,
}

/// What the volumes of one pod share while their files are gathered, one volume after the
/// other.
#[derive(Debug)]
pub(crate) struct OfPod {
    /// How many bytes further files may take.
    left: usize,
    /// Fields of the pod's metadata that were made into text, by their paths: a thousand
    /// files with all annotations of the pod have one text.
    fields: BTreeMap<String, ObjectBytes>,
    /// The pod's limit of memory, once it was computed: of all its containers.
    memory_limit: Option<Option<u64>>,
}

impl OfPod {
    /// Before the first volume.
    pub(crate) fn new() -> OfPod {
        OfPod {
            left: MAX_BYTES,
            fields: BTreeMap::new(),
            memory_limit: None,
        }
    }

    /// The pod's limit of memory in bytes, if it has one.
    pub(crate) fn memory_limit(&mut self, pod: &Pod) -> Option<u64> {
        *self.memory_limit.get_or_insert_with(|| {
            let limit = pod_cgroup_resources(pod).memory_limit_bytes;
            limit.and_then(|limit| u64::try_from(limit).ok())
        })
    }

    fn field(&mut self, pod: &Pod, path: &str) -> Result<ObjectBytes, Unavailable> {
        if let Some(made) = self.fields.get(path) {
            return Ok(made.clone());
        }
        let value = metadata_field(pod, path);
        let value = value.ok_or_else(|| Unavailable(format!("unsupported fieldPath: {path}")))?;
        let made = ObjectBytes::from(value.into_bytes());
        self.fields.insert(path.to_owned(), made.clone());
        Ok(made)
    }
}

/// Why the files of a volume cannot be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unavailable(pub(crate) String);

/// The files of a volume; `None` if it is not made of files.
pub(crate) fn files(
    pod: &Pod,
    volume: &ApiVolume,
    content: &Content<'_>,
    of_pod: &mut OfPod,
) -> Option<Result<Files, Unavailable>> {
    let left = of_pod.left;
    let mut gathered = Gathered::new(pod, content, of_pod);
    let (kind, done) = if let Some(source) = &volume.config_map {
        let object = (ObjectKind::ConfigMap, source.name.as_str());
        gathered.sets_defaults(source.default_mode, source.default_user);
        let done = gathered.object(object, source.items.as_deref(), source.optional);
        (FilesKind::ConfigMap, done)
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let object = (ObjectKind::Secret, name);
        gathered.sets_defaults(source.default_mode, source.default_user);
        let done = gathered.object(object, source.items.as_deref(), source.optional);
        (FilesKind::Secret, done)
    } else if let Some(source) = &volume.downward_api {
        gathered.sets_defaults(source.default_mode, source.default_user);
        let done = gathered.downward(source.items.as_deref());
        (FilesKind::DownwardApi, done)
    } else if let Some(source) = &volume.projected {
        (FilesKind::Projected, gathered.projected(source))
    } else {
        return None;
    };
    let files = gathered.files;
    if done.is_err() {
        of_pod.left = left;
    }
    Some(done.map(|()| Files { kind, files }))
}

/// Longest path of a file in bytes, and most names in it: each is a directory that is open
/// while the file is written.
const MAX_PATH_BYTES: usize = 4096;
const MAX_PATH_NAMES: usize = 64;

/// The files so far.
struct Gathered<'a> {
    pod: &'a Pod,
    content: &'a Content<'a>,
    of_pod: &'a mut OfPod,
    mode: i32,
    user: Option<i64>,
    files: BTreeMap<String, VolumeFile>,
}

impl<'a> Gathered<'a> {
    fn new(pod: &'a Pod, content: &'a Content<'a>, of_pod: &'a mut OfPod) -> Gathered<'a> {
        Gathered {
            pod,
            content,
            of_pod,
            mode: DEFAULT_MODE,
            user: None,
            files: BTreeMap::new(),
        }
    }

    fn sets_defaults(&mut self, mode: Option<i32>, user: Option<i64>) {
        self.mode = mode.unwrap_or(DEFAULT_MODE);
        self.user = user;
    }

    /// A path that two sources have is that of the later one.
    fn projected(&mut self, volume: &ProjectedVolumeSource) -> Result<(), Unavailable> {
        self.sets_defaults(volume.default_mode, volume.default_user);
        for source in volume.sources.iter().flatten() {
            self.projection(source)?;
        }
        Ok(())
    }

    fn projection(&mut self, source: &VolumeProjection) -> Result<(), Unavailable> {
        let VolumeProjection {
            cluster_trust_bundle,
            config_map,
            downward_api,
            pod_certificate,
            secret,
            service_account_token,
        } = source;
        if let Some(source) = config_map {
            let object = (ObjectKind::ConfigMap, source.name.as_str());
            self.object(object, source.items.as_deref(), source.optional)?;
        }
        if let Some(source) = secret {
            let object = (ObjectKind::Secret, source.name.as_str());
            self.object(object, source.items.as_deref(), source.optional)?;
        }
        if let Some(source) = downward_api {
            self.downward(source.items.as_deref())?;
        }
        let others = [
            ("clusterTrustBundle", cluster_trust_bundle.is_some()),
            ("podCertificate", pod_certificate.is_some()),
            ("serviceAccountToken", service_account_token.is_some()),
        ];
        match others.into_iter().find(|(_, stated)| *stated) {
            Some((name, _)) => Err(Unavailable(format!("{name} is not supported"))),
            None => Ok(()),
        }
    }

    fn object(
        &mut self,
        (kind, name): (ObjectKind, &str),
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<(), Unavailable> {
        let optional = optional == Some(true);
        let object = match self.content.objects.get(kind, self.pod.namespace(), name) {
            Lookup::Found(object) => object,
            Lookup::Missing if optional => return Ok(()),
            Lookup::Missing => {
                let resource = kind.resource();
                return Err(Unavailable(format!("{resource} {name:?} not found")));
            }
            Lookup::Unknown(why) => return Err(Unavailable(why)),
        };
        match items {
            Some(items) if !items.is_empty() => self.keys(&object, items, optional),
            _ => {
                for key in object.data.keys() {
                    self.add(&object, key, key, None, None)?;
                }
                Ok(())
            }
        }
    }

    fn keys(
        &mut self,
        object: &LocalObject,
        items: &[KeyToPath],
        optional: bool,
    ) -> Result<(), Unavailable> {
        for item in items {
            let KeyToPath {
                key,
                mode,
                path,
                user,
            } = item;
            if object.data.contains_key(key) {
                self.add(object, key, path, *mode, *user)?;
            } else if !optional {
                let kind = match object.reference.kind {
                    ObjectKind::ConfigMap => "config",
                    ObjectKind::Secret => "secret",
                    ObjectKind::PersistentVolume => "volume",
                };
                let message = format!("references non-existent {kind} key: {key}");
                return Err(Unavailable(message));
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        object: &LocalObject,
        key: &str,
        path: &str,
        mode: Option<i32>,
        user: Option<i64>,
    ) -> Result<(), Unavailable> {
        let content = object.data.get(key).cloned();
        let content = content.unwrap_or_else(|| Vec::new().into());
        let file = VolumeFile {
            content,
            mode: self.permissions(mode),
            user: self.owner(user)?,
            group: self.group()?,
        };
        self.insert(path, file)
    }

    fn downward(&mut self, items: Option<&[DownwardAPIVolumeFile]>) -> Result<(), Unavailable> {
        for item in items.unwrap_or_default() {
            let DownwardAPIVolumeFile {
                field_ref,
                mode,
                path,
                resource_field_ref,
                user,
            } = item;
            let content = if let Some(field) = field_ref {
                self.of_pod.field(self.pod, &field.field_path)?
            } else if let Some(selector) = resource_field_ref {
                self.resource(selector)?.into_bytes().into()
            } else {
                return Err(Unavailable(format!("{path} has no source")));
            };
            let file = VolumeFile {
                content,
                mode: self.permissions(*mode),
                user: self.owner(*user)?,
                group: self.group()?,
            };
            self.insert(path, file)?;
        }
        Ok(())
    }

    fn resource(&self, selector: &ResourceFieldSelector) -> Result<String, Unavailable> {
        let name = selector.container_name.as_deref().unwrap_or_default();
        let container = self.pod.container(name);
        let (_, container) =
            container.ok_or_else(|| Unavailable(format!("container {name} not found")))?;
        let value = resource_value((self.pod, container), selector, self.content.allocatable);
        value.map_err(|error| Unavailable(error.to_string()))
    }

    /// Only the permissions count of a mode, as with a kubelet.
    fn permissions(&self, mode: Option<i32>) -> u32 {
        let mode = (mode.unwrap_or(self.mode) & PERMISSIONS).unsigned_abs();
        match self.fs_group() {
            Some(_) => mode | READABLE,
            None => mode,
        }
    }

    fn fs_group(&self) -> Option<i64> {
        let context = self.pod.spec.as_ref()?.security_context.as_ref()?;
        context.fs_group
    }

    fn group(&self) -> Result<Option<u32>, Unavailable> {
        let group = self.fs_group().map(u32::try_from).transpose();
        group.map_err(|_| Unavailable("fsGroup is out of range".to_owned()))
    }

    fn owner(&self, user: Option<i64>) -> Result<Option<u32>, Unavailable> {
        let user = user.or(self.user).map(u32::try_from).transpose();
        user.map_err(|_| Unavailable("a user id is out of range".to_owned()))
    }

    /// The path is one below the volume, and none where another file or directory is:
    /// validation says so too, but not of keys that nobody knew then.
    fn insert(&mut self, path: &str, file: VolumeFile) -> Result<(), Unavailable> {
        if path.len() > MAX_PATH_BYTES || path.split('/').count() > MAX_PATH_NAMES {
            let message = "the path of a file is too long, or has too many parts";
            return Err(Unavailable(message.to_owned()));
        }
        let is_plain = |part: &str| !part.is_empty() && !matches!(part, "." | "..");
        if path.starts_with("..") || !path.split('/').all(is_plain) || path.contains('\0') {
            return Err(Unavailable(format!("invalid path {path:?}")));
        }
        let inside = format!("{path}/");
        let next = self.files.range(inside.clone()..).next();
        let below = next.filter(|(it, _)| it.starts_with(&inside));
        let below = below.map(|(it, _)| it.as_str());
        let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let above = || above.find(|it| self.files.contains_key(*it));
        if let Some(other) = below.or_else(above) {
            let message = format!("{path:?} and {other:?} cannot both be files");
            return Err(Unavailable(message));
        }
        let size = file.size();
        if let Some(earlier) = self.files.insert(path.to_owned(), file) {
            self.of_pod.left += earlier.size();
        }
        let left = self.of_pod.left.checked_sub(size);
        self.of_pod.left = left.ok_or_else(|| {
            let most = MAX_BYTES >> 20;
            Unavailable(format!("the files of the pod take more than {most} MiB"))
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
