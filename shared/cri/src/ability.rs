//! What of the newer parts of the interface a runtime has. Some of it no runtime tells
//! about: it would ignore the field that it does not know. So there it is known by the
//! runtime's name and version.

use crate::v1;

/// A part of the interface that runtimes before some version ignore without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// `ContainerConfig.stop_signal`.
    StopSignal,
    /// `Mount.image`.
    ImageVolumes,
    /// `Mount.image_sub_path`.
    ImageSubPaths,
}

/// Which of the known runtimes have it, and since when.
const fn since(ability: Ability) -> &'static [(&'static str, u32, u32)] {
    match ability {
        Ability::StopSignal => &[("containerd", 2, 3), ("cri-o", 1, 34)],
        Ability::ImageVolumes => &[("containerd", 2, 1), ("cri-o", 1, 31)],
        Ability::ImageSubPaths => &[("containerd", 2, 2), ("cri-o", 1, 33)],
    }
}

impl Ability {
    /// Whether the runtime that gives this answer has it. One that is not known has not.
    #[must_use]
    pub fn is_of(self, runtime: &v1::VersionResponse) -> bool {
        let version = &runtime.runtime_version;
        let since = since(self).iter();
        let mut since = since.filter(|(name, ..)| *name == runtime.runtime_name);
        since.any(|(_, major, minor)| match minor_version(version) {
            // What comes before a release may not have all of it.
            Some(found) if is_before_release(version) => found > (*major, *minor),
            Some(found) => found >= (*major, *minor),
            None => false,
        })
    }

    /// That this runtime has it not, and which ones have it.
    #[must_use]
    pub fn lacking(self, runtime: &v1::VersionResponse) -> String {
        let since = since(self).iter();
        let since: Vec<String> = since
            .map(|(name, major, minor)| format!("{name} {major}.{minor}"))
            .collect();
        let (name, version) = (&runtime.runtime_name, &runtime.runtime_version);
        let since = since.join(" or ");
        format!("it is not supported by the runtime, {name} {version}: it needs {since}")
    }
}

/// The first two numbers of a version like `v2.1.3` or `1.6.20~ds1`.
fn minor_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let end = minor.find(|it: char| !it.is_ascii_digit());
    let minor = minor[..end.unwrap_or(minor.len())].parse().ok()?;
    Some((major, minor))
}

fn is_before_release(version: &str) -> bool {
    let marks = ["alpha", "beta", "rc", "dev"];
    marks.iter().any(|mark| version.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(name: &str, version: &str) -> v1::VersionResponse {
        v1::VersionResponse {
            runtime_name: name.to_owned(),
            runtime_version: version.to_owned(),
            ..v1::VersionResponse::default()
        }
    }

    #[test]
    fn a_runtime_has_what_came_with_its_version_or_before() {
        for (name, version, has) in [
            ("containerd", "1.6.20~ds1", false),
            ("containerd", "v1.7.24", false),
            ("containerd", "v2.2.9", false),
            ("containerd", "v2.3.0-rc.1-18-g8237c496", false),
            ("containerd", "2.3.0~rc.0~ds1", false),
            ("containerd", "v2.3.0", true),
            ("containerd", "2.3.1~ds1", true),
            ("containerd", "v2.4.0-beta.0", true),
            ("containerd", "v2.10.0", true),
            ("containerd", "v3.0.1", true),
            ("containerd", "2.3", true),
            ("cri-o", "1.33.2", false),
            ("cri-o", "1.34.0", true),
            ("docker", "99.0.0", false),
            ("containerd", "", false),
            ("containerd", "main", false),
            ("containerd", "v2.x", false),
            ("containerd", "v99999999999.1.0", false),
        ] {
            let runtime = runtime(name, version);
            let found = Ability::StopSignal.is_of(&runtime);
            assert_eq!(found, has, "{name} {version}");
        }
    }

    #[test]
    fn image_volumes_came_before_their_sub_paths() {
        for (version, volumes, sub_paths) in [
            ("2.0.6", false, false),
            ("v2.1.4", true, false),
            ("v2.2.0", true, true),
        ] {
            let runtime = runtime("containerd", version);
            let found = (Ability::ImageVolumes, Ability::ImageSubPaths);
            let found = (found.0.is_of(&runtime), found.1.is_of(&runtime));
            assert_eq!(found, (volumes, sub_paths), "{version}");
        }
    }

    #[test]
    fn what_is_lacking_is_told_with_the_runtimes_that_have_it() {
        assert_eq!(
            Ability::StopSignal.lacking(&runtime("containerd", "v1.7.24")),
            "it is not supported by the runtime, containerd v1.7.24: it needs containerd 2.3 or \
             cri-o 1.34"
        );
    }
}
