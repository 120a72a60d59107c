//! How the path of a hostPath volume may be opened: where links may be followed, and
//! what must still be checked once it is open. A decision about a path's text is not
//! enough, since a link below it may lead elsewhere.

use std::fmt;
use std::sync::Arc;

use pod::Pod;

use crate::demand::Demand;
use crate::path::NodePath;
use crate::permit::{Permit, Refusal};
use crate::pod_demands::demands_of;
use crate::protected::Standing;

/// How a path may be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathAccess {
    /// The path's beginning that the owner of the node named: links in it are followed.
    pub trusted: NodePath,
    /// Whether links below it are followed too.
    pub follow_links: bool,
    /// Whether the pod can only read it, so that nothing may be made there.
    pub read_only: bool,
}

/// Is told each refusal.
type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// What the policy says of opening the hostPath volumes of one pod.
#[derive(Clone)]
pub struct HostPathRules {
    permit: Arc<Permit>,
    only_audits: bool,
    report: Option<Report>,
}

impl fmt::Debug for HostPathRules {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostPathRules {
            permit,
            only_audits,
            report: _,
        } = self;
        formatter
            .debug_struct("HostPathRules")
            .field("permit", permit)
            .field("only_audits", only_audits)
            .finish_non_exhaustive()
    }
}

impl HostPathRules {
    /// Those of a permit. With `only_audits` a refusal is to be reported, and what was
    /// asked for is given all the same.
    #[must_use]
    pub fn new(permit: Arc<Permit>, only_audits: bool) -> HostPathRules {
        HostPathRules {
            permit,
            only_audits,
            report: None,
        }
    }

    /// Whether refusals are reported only.
    #[must_use]
    pub fn only_audits(&self) -> bool {
        self.only_audits
    }

    /// The same, and `report` is told what is refused, or would be, at the moment when it
    /// is opened.
    #[must_use]
    pub fn reported_to(self, report: impl Fn(&str) + Send + Sync + 'static) -> HostPathRules {
        HostPathRules {
            report: Some(Arc::new(report)),
            ..self
        }
    }

    /// Something that was to be opened is refused for this reason. Reports it; whether it
    /// must not be opened, which it may be where the policy only audits.
    #[must_use]
    pub fn refuses(&self, reason: &str) -> bool {
        if let Some(report) = &self.report {
            report(reason);
        }
        !self.only_audits
    }

    /// As [`volume_access`].
    ///
    /// # Errors
    /// When a container that mounts the volume may not have it.
    pub fn access(&self, pod: &Pod, index: usize) -> Result<Option<PathAccess>, Box<Refusal>> {
        volume_access(&self.permit, pod, index)
    }

    /// As [`check_opened_volume`].
    ///
    /// # Errors
    /// When a container that mounts the volume may not have it.
    pub fn check_opened(
        &self,
        pod: &Pod,
        index: usize,
        real: &str,
        is_disk: bool,
    ) -> Result<(), Box<Refusal>> {
        check_opened_volume(&self.permit, pod, index, real, is_disk)
    }
}

impl PathAccess {
    /// Any path, by whatever links.
    #[must_use]
    pub fn unrestricted() -> PathAccess {
        PathAccess {
            trusted: NodePath::root(),
            follow_links: true,
            read_only: false,
        }
    }

    /// Whether a link may be followed that is the component of this number of the path,
    /// counted from 0.
    #[must_use]
    pub fn follows_link_at(&self, component: usize) -> bool {
        self.follow_links || component < self.trusted.components().count()
    }

    /// Whether a component of the path, counted from 0, is above what the owner of the node
    /// named.
    #[must_use]
    pub fn is_above_trusted(&self, component: usize) -> bool {
        component + 1 < self.trusted.components().count()
    }
}

/// How a container with this image may open a path of the node.
fn path_access(
    permit: &Permit,
    path: &str,
    read_only: bool,
    image: Option<&str>,
) -> Result<PathAccess, Refusal> {
    let demand = Demand::HostPath {
        path: path.to_owned(),
        read_only,
    };
    permit.check(&demand, image)?;
    let refused = |error| Refusal::of_path(&demand, error);
    let whole = NodePath::parse(path).map_err(refused)?;
    let is_apart = permit.protected.standing(&whole) == Standing::Apart;
    if is_apart && permit.level.allows(&demand) {
        // Any other path may be had by its name too.
        return Ok(PathAccess {
            trusted: NodePath::root(),
            follow_links: true,
            read_only,
        });
    }
    let mut access = PathAccess {
        trusted: NodePath::root(),
        follow_links: false,
        read_only,
    };
    let grants = permit.grants.iter();
    let grants = grants.filter(|grant| grant.is_for_image(image, &permit.subject.images));
    for given in grants.flat_map(|grant| &grant.host_paths) {
        if !given.covers(&whole, read_only, &permit.protected) {
            continue;
        }
        access.follow_links |= given.follow_links;
        if let Some(trusted) = whole.ancestor(&given.prefix)
            && trusted.is_within(&access.trusted)
        {
            access.trusted = trusted;
        }
    }
    Ok(access)
}

/// Whether what was opened may be had. `real` is its path without links, and
/// `asked` the path that the pod names.
fn check_opened(
    permit: &Permit,
    asked: &str,
    real: &str,
    is_disk: bool,
    read_only: bool,
    image: Option<&str>,
) -> Result<(), Refusal> {
    let demand = Demand::HostPath {
        path: real.to_owned(),
        read_only,
    };
    let path = NodePath::parse(real).map_err(|error| Refusal::of_path(&demand, error))?;
    if permit.protected.standing(&path) != Standing::Apart {
        permit.check(&demand, image)?;
    }
    let disk = |path: &str| Demand::Device {
        path: path.to_owned(),
        block: true,
    };
    if is_disk && permit.check(&disk(asked), image).is_err() {
        permit.check(&disk(real), image)?;
    }
    Ok(())
}

/// How the hostPath volume of this index may be opened for all containers that mount
/// it; `None` when there is no such volume.
///
/// # Errors
/// When one of them may not have it.
pub fn volume_access(
    permit: &Permit,
    pod: &Pod,
    index: usize,
) -> Result<Option<PathAccess>, Box<Refusal>> {
    let mut common: Option<PathAccess> = None;
    for (image, path, read_only) in users(pod, index) {
        let access = path_access(permit, &path, read_only, image.as_deref());
        let access = access.map_err(Box::new)?;
        common = Some(match common {
            None => access,
            Some(before) => PathAccess {
                trusted: before.trusted.min(access.trusted),
                follow_links: before.follow_links && access.follow_links,
                read_only: before.read_only && access.read_only,
            },
        });
    }
    Ok(common)
}

/// Checks what was opened as the hostPath volume of this index, for all containers that
/// mount it.
///
/// # Errors
/// When one of them may not have it.
pub fn check_opened_volume(
    permit: &Permit,
    pod: &Pod,
    index: usize,
    real: &str,
    is_disk: bool,
) -> Result<(), Box<Refusal>> {
    for (image, path, read_only) in users(pod, index) {
        let checked = check_opened(permit, &path, real, is_disk, read_only, image.as_deref());
        checked.map_err(Box::new)?;
    }
    Ok(())
}

/// Image, path and whether they only read it, of those who ask for a hostPath volume.
fn users(pod: &Pod, index: usize) -> impl Iterator<Item = (Option<String>, String, bool)> {
    let field = format!("spec.volumes[{index}].hostPath.path");
    let demands = demands_of(pod)
        .into_iter()
        .filter(move |asked| asked.field == field);
    demands.filter_map(|asked| match asked.demand {
        Demand::HostPath { path, read_only } => {
            Some((asked.container.map(|(_, image)| image), path, read_only))
        }
        _ => None,
    })
}
