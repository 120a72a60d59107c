//! Which parts of volumes a container mounts: `subPath` as it stands, `subPathExpr` with the
//! container's variables. Opening and binding them is `node-host`'s work.

use std::path::{Component, Path};

use pod::PodExt;
use pod::core::VolumeMount;
use pod_volumes::{SubPath, passes_back};

use crate::container_input::ContainerInput;
use crate::environment::{Environment, too_large};
use crate::error::BuildError;
use crate::expansion::{Budget, TooLong, references};
use crate::image_volumes::is_image;

/// A container's variables, made once for all of its mounts, and what may still be expanded.
pub(crate) type Variables = (Environment, Budget);

/// The parts of volumes that a container mounts, in the order of its mounts. Nothing has to
/// be prepared of them in `input`.
///
/// # Errors
/// When a variable has no value, a path would leave its volume, or the volume is not set up.
pub fn sub_paths(input: &ContainerInput<'_>) -> Result<Vec<SubPath>, BuildError> {
    let field = input.field();
    let mut variables = None;
    let mut found = Vec::new();
    for (index, mount) in input.container.volume_mounts.iter().flatten().enumerate() {
        if is_image(input.pod, &mount.name) {
            // The runtime's.
            continue;
        }
        let field = format!("{field}.volumeMounts[{index}]");
        let Some(path) = path_in_volume(input, &mut variables, mount, &field)? else {
            continue;
        };
        let volume = input.volumes.get(&mount.name);
        let volume = volume.ok_or_else(|| BuildError::VolumeMissing {
            volume: mount.name.clone(),
            container: input.container.name.clone(),
        })?;
        found.push(SubPath {
            index,
            volume: mount.name.clone(),
            volume_path: volume.host_path.clone(),
            path,
            makes_missing: !only_reads_the_node(input, mount),
            passes_back: passes_back(mount),
        });
    }
    Ok(found)
}

/// The path below the volume that a mount names; `None` for the volume itself. The variables
/// are made when they are first needed.
pub(crate) fn path_in_volume(
    input: &ContainerInput<'_>,
    variables: &mut Option<Variables>,
    mount: &VolumeMount,
    field: &str,
) -> Result<Option<String>, BuildError> {
    let stated = |path: &Option<String>| path.clone().filter(|path| !path.is_empty());
    // What a variable holds may be a Secret's, so errors show what is written.
    let (path, written, field) = if let Some(expression) = stated(&mount.sub_path_expr) {
        let field = format!("{field}.subPathExpr");
        let path = expanded(input, variables, &expression, &field)?;
        (path, expression, field)
    } else if let Some(path) = stated(&mount.sub_path) {
        (path.clone(), path, format!("{field}.subPath"))
    } else {
        return Ok(None);
    };
    let stays = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(&path).components().all(stays) {
        let reason = format!("{written:?} must be relative and must not contain '..'");
        return Err(BuildError::invalid(field, reason));
    }
    Ok(Some(path).filter(|path| !path.is_empty()))
}

/// Unlike in a command, a variable that has no value is an error: the path would be
/// another one.
fn expanded(
    input: &ContainerInput<'_>,
    variables: &mut Option<Variables>,
    expression: &str,
    field: &str,
) -> Result<String, BuildError> {
    let (environment, budget) = match variables {
        Some(made) => made,
        none => {
            let mut budget = Budget::new();
            let environment = input.environment(&mut budget)?;
            none.insert((environment, budget))
        }
    };
    let values = environment.values();
    let mut missing: Vec<&str> = references(expression)
        .into_iter()
        .filter(|name| values.get(*name).is_none_or(String::is_empty))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        let reason = format!("missing value for {}", missing.join(", "));
        return Err(BuildError::invalid(field, reason));
    }
    let expanded = budget.expand(expression, values);
    expanded.map_err(|TooLong| too_large(field))
}

/// Whether a mount only reads a path of the node: then nothing is made there for it.
fn only_reads_the_node(input: &ContainerInput<'_>, mount: &VolumeMount) -> bool {
    let mut volumes = input.pod.volumes().iter();
    let volume = volumes.find(|volume| volume.name == mount.name);
    let is_of_node = volume.is_some_and(|volume| volume.host_path.is_some());
    is_of_node && mount.read_only == Some(true)
}

#[cfg(test)]
mod tests {
    use pod_volumes::MountedVolume;

    use super::*;
    use crate::test_pods::{ContainerCase, pod};

    fn of(mounts: &str) -> Result<Vec<SubPath>, BuildError> {
        let pod = pod(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u"}},"spec":{{
            "volumes":[{{"name":"v","emptyDir":{{}}}},{{"name":"h","hostPath":{{"path":"/h"}}}}],
            "containers":[{{"name":"c","image":"i","volumeMounts":{mounts},"env":[
            {{"name":"A","value":"a/b"}},{{"name":"UP","value":".."}},{{"name":"EMPTY"}}]}}]}}}}"#
        ));
        let mut case = ContainerCase::new(pod);
        for name in ["v", "h"] {
            let mounted = MountedVolume {
                host_path: format!("/vol/{name}").into(),
                read_only: false,
            };
            case.volumes.insert(name.into(), mounted);
        }
        sub_paths(&case.input())
    }

    fn wanted(index: usize, volume: &str, path: &str) -> SubPath {
        SubPath {
            index,
            volume: volume.to_owned(),
            volume_path: format!("/vol/{volume}").into(),
            path: path.to_owned(),
            makes_missing: true,
            passes_back: false,
        }
    }

    #[test]
    fn paths_are_those_of_the_mounts_with_variables_in_expressions_only() {
        let found = of(r#"[{"name":"v","mountPath":"/0"},
            {"name":"v","mountPath":"/1","subPath":"x/$(A)"},
            {"name":"h","mountPath":"/2","subPathExpr":"x/$(A)/$$(A)",
             "mountPropagation":"Bidirectional"},
            {"name":"v","mountPath":"/3","subPath":""}]"#)
        .unwrap();
        let back = SubPath {
            passes_back: true,
            ..wanted(2, "h", "x/a/b/$(A)")
        };
        assert_eq!(found, [wanted(1, "v", "x/$(A)"), back]);
    }

    #[test]
    fn nothing_is_made_on_the_node_for_who_only_reads_it() {
        let found = of(
            r#"[{"name":"v","mountPath":"/0","subPath":"x","readOnly":true},
            {"name":"h","mountPath":"/1","subPath":"x","readOnly":true}]"#,
        )
        .unwrap();
        let reads = SubPath {
            makes_missing: false,
            ..wanted(1, "h", "x")
        };
        assert_eq!(found, [wanted(0, "v", "x"), reads]);
    }

    #[test]
    fn a_path_that_is_not_known_or_leaves_the_volume_is_an_error() {
        let mount = "spec.containers[0].volumeMounts[0]";
        for (path, expected) in [
            (
                r#""subPathExpr":"$(NONE)/$(EMPTY)/$(NONE)""#,
                "subPathExpr: missing value for EMPTY, NONE",
            ),
            (
                r#""subPathExpr":"$(UP)/x""#,
                r#"subPathExpr: "$(UP)/x" must be relative and must not contain '..'"#,
            ),
            (
                r#""subPathExpr":"/$(A)""#,
                r#"subPathExpr: "/$(A)" must be relative and must not contain '..'"#,
            ),
            (
                r#""subPath":"a/../..""#,
                r#"subPath: "a/../.." must be relative and must not contain '..'"#,
            ),
        ] {
            let error = of(&format!(r#"[{{"name":"v","mountPath":"/v",{path}}}]"#));
            assert_eq!(
                error.unwrap_err().to_string(),
                format!("{mount}.{expected}")
            );
        }
        let error = of(r#"[{"name":"x","mountPath":"/v","subPath":"a"}]"#).unwrap_err();
        let expected = r#"cannot find volume "x" to mount into container "c""#;
        assert_eq!(error.to_string(), expected);
    }
}
