//! The command of an exec probe as it is run.

use pod::core::Container;

use crate::error::BuildError;
use crate::expansion::{Budget, TooLong};

/// How many bytes references may add to the command. Every one that a pod has is made
/// whenever the pod is judged, and without a bound each could be a mebibyte.
const MAX_ADDED_BYTES: usize = 16 << 10;

/// The command of one of the container's exec probes as it is run: as in the kubelet with
/// the variables that have a value in the spec, which is not expanded itself. One that has
/// its value from elsewhere is empty here. (A hook by exec is run as it is written.)
pub fn probe_command(container: &Container, command: &[String]) -> Result<Vec<String>, BuildError> {
    let variables = container.env.iter().flatten().map(|variable| {
        let value = variable.value.clone().unwrap_or_default();
        (variable.name.clone(), value)
    });
    let variables = variables.collect();
    let written: usize = command.iter().map(String::len).sum();
    let limit = written + MAX_ADDED_BYTES;
    let mut budget = Budget::of(limit);
    let expanded = command.iter().map(|part| budget.expand(part, &variables));
    let expanded: Result<Vec<_>, _> = expanded.collect();
    expanded.map_err(|TooLong| BuildError::ExpansionTooLarge {
        field: "exec.command".to_owned(),
        limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str]) -> Result<Vec<String>, BuildError> {
        let container = serde_json::from_str(
            r#"{"name":"c","env":[{"name":"A","value":"0"},{"name":"A","value":"1"},
                {"name":"B","value":"$(A)"},{"name":"C"},
                {"name":"N","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
                "envFrom":[{"configMapRef":{"name":"c"}}]}"#,
        );
        let command: Vec<String> = command.iter().map(|&part| part.to_owned()).collect();
        probe_command(&container.unwrap(), &command)
    }

    #[test]
    fn only_values_of_the_spec_are_known_and_they_are_not_expanded() {
        let command = run(&["check", "$(A)", "$(B)", "<$(C)$(N)>", "$(NONE)", "$$(A)$$"]);
        let expected = ["check", "1", "$(A)", "<>", "$(NONE)", "$(A)$"];
        assert_eq!(command.unwrap(), expected);
    }

    #[test]
    fn a_command_may_be_long_and_grows_by_so_much_only() {
        let long = "x".repeat(1 << 20);
        assert_eq!(run(&[&long]).unwrap(), [long]);
        let variable = |length: usize| {
            let variable = pod::core::EnvVar {
                name: "A".to_owned(),
                value: Some("x".repeat(length)),
                ..Default::default()
            };
            let container = Container {
                env: Some(vec![variable]),
                ..Container::default()
            };
            probe_command(&container, &["$(A)".to_owned()])
        };
        assert!(variable(MAX_ADDED_BYTES).is_ok());
        let error = variable(MAX_ADDED_BYTES + 5).unwrap_err();
        let said = "exec.command: expands to more than 16388 bytes";
        assert_eq!(error.to_string(), said);
    }
}
