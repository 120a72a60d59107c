//! The signal that a container is stopped with, where its pod chooses it.

use cri::Ability;
use pod::core::Container;
use pod::stop_signal;

use crate::container_input::ContainerInput;
use crate::error::BuildError;

pub(crate) fn stated(container: &Container) -> Option<&str> {
    container.lifecycle.as_ref()?.stop_signal.as_deref()
}

/// Its number in the request; 0 leaves it to the image.
pub(crate) fn stop_signal(input: &ContainerInput<'_>, field: &str) -> Result<i32, BuildError> {
    let Some(name) = stated(input.container) else {
        return Ok(0);
    };
    let field = format!("{field}.lifecycle.stopSignal");
    input.require(Ability::StopSignal, &field)?;
    let number = stop_signal::number(name);
    number.ok_or_else(|| BuildError::invalid(field, format!("there is no signal {name:?}")))
}

#[cfg(test)]
mod tests {
    use cri::v1::VersionResponse;

    use crate::container_config;
    use crate::test_pods::{ContainerCase, pod};

    fn asked(lifecycle: &str, runtime: Option<(&str, &str)>) -> Result<i32, String> {
        let mut case = ContainerCase::new(pod(&format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u"}},"spec":{{
                "os":{{"name":"linux"}},
                "containers":[{{"name":"c","image":"i","lifecycle":{lifecycle}}}]}}}}"#
        )));
        case.runtime = runtime.map(|(name, version)| VersionResponse {
            runtime_name: name.to_owned(),
            runtime_version: version.to_owned(),
            ..VersionResponse::default()
        });
        let config = container_config(&case.input());
        config
            .map(|config| config.stop_signal)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_stop_signal_is_asked_of_a_runtime_that_has_it_and_of_no_other() {
        let signal = r#"{"stopSignal":"SIGUSR1"}"#;
        let new = Some(("containerd", "v2.3.1"));
        assert_eq!(asked(signal, new), Ok(29));
        assert_eq!(asked("{}", new), Ok(0));
        assert_eq!(asked("{}", None), Ok(0));
        assert!(asked(r#"{"stopSignal":"SIGNONE"}"#, new).is_err());
        assert!(asked(signal, None).is_err());
        assert_eq!(
            asked(signal, Some(("containerd", "1.7.24~ds1"))).unwrap_err(),
            "spec.containers[0].lifecycle.stopSignal: it is not supported by the runtime, \
             containerd 1.7.24~ds1: it needs containerd 2.3 or cri-o 1.34"
        );
    }
}
