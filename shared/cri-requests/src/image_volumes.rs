//! Volumes that are images (KEP-4639): the runtime mounts them, always read-only.

use cri::Ability;
use cri::v1::{ImageSpec, Mount};
use pod::core::{Container, ImageVolumeSource, VolumeMount};
use pod::{Pod, PodExt};

use crate::container_input::ContainerInput;
use crate::error::BuildError;

/// A volume of a pod that is an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImageVolume<'a> {
    /// Its name in the pod.
    pub name: &'a str,
    /// Which image, and when it is pulled.
    pub source: &'a ImageVolumeSource,
}

/// The volumes that a container mounts and that are images, each once, in the pod's order.
#[must_use]
pub fn of_container<'a>(pod: &'a Pod, container: &Container) -> Vec<ImageVolume<'a>> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let volumes = pod.volumes().iter();
    let mounted = volumes.filter(|volume| mounts.iter().any(|mount| mount.name == volume.name));
    mounted
        .filter_map(|volume| {
            let source = volume.image.as_ref()?;
            let name = &volume.name;
            Some(ImageVolume { name, source })
        })
        .collect()
}

/// The source of a volume of a pod that is an image.
fn source<'a>(pod: &'a Pod, volume: &str) -> Option<&'a ImageVolumeSource> {
    let mut volumes = pod.volumes().iter();
    volumes.find(|found| found.name == volume)?.image.as_ref()
}

/// Whether a volume of a pod is an image.
pub(crate) fn is_image(pod: &Pod, volume: &str) -> bool {
    source(pod, volume).is_some()
}

/// Makes of a mount without source one of the image of its volume, or of `sub_path` in it.
pub(crate) fn of_image(
    input: &ContainerInput<'_>,
    stated: &VolumeMount,
    sub_path: Option<String>,
    mount: Mount,
    field: &str,
) -> Result<Mount, BuildError> {
    input.require(Ability::ImageVolumes, field)?;
    if sub_path.is_some() {
        input.require(Ability::ImageSubPaths, &format!("{field}.subPath"))?;
    }
    if !matches!(stated.mount_propagation.as_deref(), None | Some("None")) {
        let field = format!("{field}.mountPropagation");
        return Err(BuildError::invalid(field, "an image has no mounts in it"));
    }
    let image = input.volume_images.get(&stated.name);
    let image = image.ok_or_else(|| BuildError::VolumeMissing {
        volume: stated.name.clone(),
        container: input.container.name.clone(),
    })?;
    let reference = source(input.pod, &stated.name).and_then(|source| source.reference.clone());
    Ok(Mount {
        readonly: true,
        image: Some(ImageSpec {
            image: image.clone(),
            user_specified_image: reference.unwrap_or_default(),
            ..ImageSpec::default()
        }),
        image_sub_path: sub_path.unwrap_or_default(),
        ..mount
    })
}

#[cfg(test)]
mod tests {
    use cri::v1::{MountPropagation, VersionResponse};

    use super::*;
    use crate::test_pods::{ContainerCase, pod};
    use crate::{container_config, sub_paths};

    fn case(mounts: &str, version: &str) -> ContainerCase {
        let mut case = ContainerCase::new(pod(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u"}},"spec":{{
                "volumes":[{{"name":"i","image":{{"reference":"a:1"}}}},
                           {{"name":"other","image":{{"reference":"b:1"}}}}],
                "containers":[{{"name":"c","image":"i","env":[{{"name":"A","value":"x"}}],
                    "volumeMounts":{mounts}}}]}}}}"#
        )));
        case.volume_images.insert("i".into(), "sha256:a".into());
        case.runtime = Some(VersionResponse {
            runtime_name: "containerd".to_owned(),
            runtime_version: version.to_owned(),
            ..VersionResponse::default()
        });
        case
    }

    fn asked(mounts: &str, version: &str) -> Result<Mount, String> {
        let case = case(mounts, version);
        // Nothing has to be bound for it.
        assert_eq!(sub_paths(&case.input()), Ok(Vec::new()));
        let config = container_config(&case.input());
        let config = config.map_err(|error| error.to_string())?;
        Ok(config.mounts[0].clone())
    }

    #[test]
    fn an_image_is_mounted_read_only_whatever_the_mount_says() {
        for read_only in ["", r#","readOnly":false"#, r#","readOnly":true"#] {
            let mount = format!(r#"[{{"name":"i","mountPath":"/i"{read_only}}}]"#);
            let expected = Mount {
                container_path: "/i".to_owned(),
                readonly: true,
                propagation: MountPropagation::PropagationPrivate.into(),
                image: Some(ImageSpec {
                    image: "sha256:a".to_owned(),
                    user_specified_image: "a:1".to_owned(),
                    ..ImageSpec::default()
                }),
                ..Mount::default()
            };
            assert_eq!(asked(&mount, "v2.1.0"), Ok(expected), "{read_only}");
        }
    }

    #[test]
    fn a_part_of_an_image_is_left_to_the_runtime() {
        for (path, expected) in [
            (r#""subPath":"etc/x""#, Ok("etc/x")),
            (r#""subPathExpr":"$(A)/y""#, Ok("x/y")),
            (r#""subPath":"""#, Ok("")),
            (r#""subPath":"../x""#, Err("must not contain")),
            (r#""subPathExpr":"$(NONE)""#, Err("missing value")),
        ] {
            let mount = format!(r#"[{{"name":"i","mountPath":"/i",{path}}}]"#);
            let case = case(&mount, "v2.2.0");
            let config = container_config(&case.input());
            let found = config.map(|config| config.mounts[0].image_sub_path.clone());
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{path}"),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().contains(words), "{path}: {error}");
                }
                (found, _) => panic!("{path}: {found:?}"),
            }
        }
    }

    #[test]
    fn an_image_is_refused_where_it_would_be_mounted_otherwise_than_the_pod_says() {
        let plain = r#"[{"name":"i","mountPath":"/i"}]"#;
        let part = r#"[{"name":"i","mountPath":"/i","subPath":"x"}]"#;
        let passing = r#"[{"name":"i","mountPath":"/i","mountPropagation":"HostToContainer"}]"#;
        let missing = r#"[{"name":"other","mountPath":"/i"}]"#;
        for (mounts, version, words) in [
            (
                plain,
                "1.7.24~ds1",
                "spec.containers[0].volumeMounts[0]: it is not supported by the runtime, \
                 containerd 1.7.24~ds1: it needs containerd 2.1 or cri-o 1.31",
            ),
            (
                part,
                "v2.1.4",
                "spec.containers[0].volumeMounts[0].subPath: it is not supported by the runtime, \
                 containerd v2.1.4: it needs containerd 2.2 or cri-o 1.33",
            ),
            (
                passing,
                "v2.2.0",
                "spec.containers[0].volumeMounts[0].mountPropagation: an image has no mounts in it",
            ),
            (
                missing,
                "v2.2.0",
                "cannot find volume \"other\" to mount into container \"c\"",
            ),
        ] {
            assert_eq!(asked(mounts, version).unwrap_err(), words);
        }
    }
}
