//! The request that creates a container.

use std::collections::BTreeMap;

use cri::v1::{ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig};
use pod::core::Container;
use pod::identity::check_container_name;
use pod::metadata::{
    CONTAINER_HASH_ANNOTATION, CONTAINER_NAME_LABEL, CONTAINER_PORTS_ANNOTATION,
    CONTAINER_PRE_STOP_ANNOTATION, CONTAINER_RESTART_COUNT_ANNOTATION,
    POD_DELETION_GRACE_PERIOD_ANNOTATION, POD_NAME_LABEL, POD_NAMESPACE_LABEL,
    POD_TERMINATION_GRACE_PERIOD_ANNOTATION, POD_UID_LABEL, TERMINATION_MESSAGE_PATH_ANNOTATION,
    TERMINATION_MESSAGE_POLICY_ANNOTATION,
};
use pod::{ContainerHash, Pod, PodExt, PodIdentity};

use crate::container_input::ContainerInput;
use crate::environment::too_large;
use crate::error::BuildError;
use crate::expansion::{Budget, TooLong};
use crate::mounts::mounts;
use crate::resources::container_resources;
use crate::security::{container_security, see_processes_of};
use crate::stop_signal::stop_signal;
use crate::user_namespace::map_owners;

/// A container's log file, relative to the log directory of its pod.
pub(crate) fn log_path(container_name: &str, attempt: u32) -> String {
    format!("{container_name}/{attempt}.log")
}

/// The configuration of a container.
pub fn container_config(input: &ContainerInput<'_>) -> Result<ContainerConfig, BuildError> {
    let container = input.container;
    PodIdentity::of(input.pod)?;
    check_container_name(&container.name)?;
    let field = input.field();
    let mut budget = Budget::new();
    let environment = input.environment(&mut budget)?;
    let mut expanded = |part: &str, texts: &Option<Vec<String>>| {
        let texts = texts.as_deref().unwrap_or_default().iter();
        let expanded = texts.map(|text| budget.expand(text, environment.values()));
        let expanded: Result<Vec<_>, _> = expanded.collect();
        expanded.map_err(|TooLong| too_large(&format!("{field}.{part}")))
    };
    let mut security = container_security(
        input.pod,
        container,
        input.image_user,
        (input.node, input.ids),
    )?;
    if let Some(id) = input.process_namespace_of {
        see_processes_of(id, &mut security);
    }
    let mut mounts = mounts(input, &field)?;
    let namespaces = security.namespace_options.as_ref();
    map_owners(
        namespaces.and_then(|own| own.userns_options.as_ref()),
        &mut mounts,
    );
    let command = expanded("command", &container.command)?;
    let args = expanded("args", &container.args)?;
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: container.name.clone(),
            attempt: input.attempt,
        }),
        image: Some(ImageSpec {
            image: input.image_id.to_owned(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: environment
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.to_owned(),
                value: value.into(),
            })
            .collect(),
        mounts,
        labels: labels(input.pod, container),
        annotations: annotations(input)?,
        log_path: log_path(&container.name, input.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(LinuxContainerConfig {
            resources: Some(container_resources(input.pod, container, input.node)),
            security_context: Some(security),
        }),
        stop_signal: stop_signal(input, &field)?,
        ..ContainerConfig::default()
    })
}

fn labels(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    [
        (POD_NAME_LABEL, pod.name()),
        (POD_NAMESPACE_LABEL, pod.namespace()),
        (POD_UID_LABEL, pod.uid()),
        (CONTAINER_NAME_LABEL, &container.name),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// What has to be known of a container when its pod is gone from the sources: how to
/// stop it, where it writes, and what it was made from.
fn annotations(input: &ContainerInput<'_>) -> Result<BTreeMap<String, String>, BuildError> {
    let (pod, container) = (input.pod, input.container);
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut annotations: BTreeMap<String, String> = [
        (
            CONTAINER_HASH_ANNOTATION,
            ContainerHash::of(container).to_string(),
        ),
        (
            CONTAINER_RESTART_COUNT_ANNOTATION,
            input.attempt.to_string(),
        ),
        (
            TERMINATION_MESSAGE_PATH_ANNOTATION,
            text(&container.termination_message_path),
        ),
        (
            TERMINATION_MESSAGE_POLICY_ANNOTATION,
            text(&container.termination_message_policy),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let mut add = |key: &str, value: Option<String>| {
        annotations.extend(value.map(|value| (key.to_owned(), value)));
    };
    let grace = pod.metadata.deletion_grace_period_seconds;
    add(
        POD_DELETION_GRACE_PERIOD_ANNOTATION,
        grace.map(|grace| grace.to_string()),
    );
    let grace = pod.spec_or_default().termination_grace_period_seconds;
    add(
        POD_TERMINATION_GRACE_PERIOD_ANNOTATION,
        grace.map(|grace| grace.to_string()),
    );
    let pre_stop = container
        .lifecycle
        .as_ref()
        .and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    add(
        CONTAINER_PRE_STOP_ANNOTATION,
        pre_stop.map(|hook| json(hook, "preStop")).transpose()?,
    );
    let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
    add(
        CONTAINER_PORTS_ANNOTATION,
        ports.map(|ports| json(ports, "ports")).transpose()?,
    );
    Ok(annotations)
}

fn json(value: &impl serde::Serialize, field: &str) -> Result<String, BuildError> {
    serde_json::to_string(value).map_err(|error| BuildError::invalid(field, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods::{ContainerCase, pod};

    fn of(container: &str) -> Result<ContainerConfig, BuildError> {
        let pod = pod(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u",
                "deletionGracePeriodSeconds":7}},
                "spec":{{"containers":[{{"image":"i",{container}}}]}}}}"#
        ));
        container_config(&ContainerCase::new(pod).input())
    }

    #[test]
    fn commands_and_arguments_see_the_environment() {
        let config = of(
            r#""name":"c","command":["$(A)","$$(A)"],"args":["$(NONE)","x$(B)"],
            "env":[{"name":"A","value":"1"},{"name":"B","value":"2$(A)"}]"#,
        )
        .unwrap();
        assert_eq!(config.command, ["1", "$(A)"]);
        assert_eq!(config.args, ["$(NONE)", "x21"]);
        let envs: Vec<_> = config
            .envs
            .iter()
            .map(|env| (env.key.as_str(), env.value.as_slice()))
            .collect();
        assert_eq!(envs, [("A", b"1".as_slice()), ("B", b"21")]);
    }

    /// The runtime may judge signatures by the name; what runs is what was pulled.
    #[test]
    fn the_runtime_hears_the_image_and_what_the_pod_calls_it() {
        let image = of(r#""name":"c""#).unwrap().image.unwrap();
        let heard = (image.image.as_str(), image.user_specified_image.as_str());
        assert_eq!(heard, ("sha256:1", "i"));
    }

    #[test]
    fn a_command_beyond_the_bound_is_an_error_with_its_field() {
        let error = of(&format!(
            r#""name":"c","args":[{}"$(A)"],"env":[{{"name":"A","value":"{}"}}]"#,
            r#""$(A)","#.repeat(1100),
            "x".repeat(1000)
        ))
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.containers[0].args: expands to more than 1048576 bytes"
        );
    }

    #[test]
    fn a_name_that_could_be_a_path_is_refused() {
        assert!(of(r#""name":"../c""#).is_err());
    }

    #[test]
    fn annotations_say_how_to_stop_it_without_its_pod() {
        let config = of(r#""name":"c","terminationMessagePolicy":"File",
            "lifecycle":{"preStop":{"exec":{"command":["x"]}}},"ports":[]"#)
        .unwrap();
        let annotation = |key: &str| config.annotations.get(key).map(String::as_str);
        assert_eq!(annotation(POD_DELETION_GRACE_PERIOD_ANNOTATION), Some("7"));
        assert_eq!(annotation(POD_TERMINATION_GRACE_PERIOD_ANNOTATION), None);
        assert_eq!(annotation(CONTAINER_PORTS_ANNOTATION), None);
        assert_eq!(
            annotation(CONTAINER_PRE_STOP_ANNOTATION),
            Some(r#"{"exec":{"command":["x"]}}"#)
        );
        let restart_count = annotation(CONTAINER_RESTART_COUNT_ANNOTATION);
        assert_eq!(restart_count, Some("0"));
    }
}
