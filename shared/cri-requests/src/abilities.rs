//! Which containers ask for what only newer runtimes have.

use pod::Pod;
use pod::core::Container;

use crate::{image_volumes, stop_signal};

/// Whether a container asks for something that runtimes before some version ignore, so that
/// the version has to be known.
#[must_use]
pub fn depends_on_version(pod: &Pod, container: &Container) -> bool {
    let has_images = !image_volumes::of_container(pod, container).is_empty();
    has_images || stop_signal::stated(container).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pods::pod;

    #[test]
    fn the_version_matters_only_where_a_container_asks_for_what_is_new() {
        let with = |fields: &str| {
            let pod = pod(&format!(
                r#"{{"metadata":{{"name":"p"}},"spec":{{
                    "volumes":[{{"name":"v","emptyDir":{{}}}},
                               {{"name":"i","image":{{"reference":"i:1"}}}}],
                    "containers":[{{"name":"c"{fields}}}]}}}}"#
            ));
            let container = pod.spec.as_ref().unwrap().containers[0].clone();
            depends_on_version(&pod, &container)
        };
        assert!(with(r#","lifecycle":{"stopSignal":"SIGINT"}"#));
        assert!(with(r#","volumeMounts":[{"name":"i","mountPath":"/i"}]"#));
        assert!(!with(r#","volumeMounts":[{"name":"v","mountPath":"/v"}]"#));
        assert!(!with(r#","lifecycle":{}"#));
        assert!(!with(""));
    }
}
