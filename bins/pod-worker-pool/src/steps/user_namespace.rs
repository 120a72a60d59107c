//! The ids of a pod with users of its own (`hostUsers: false`).

use cri::v1::VersionResponse;
use node_layout::IdRange;
use pod::runtime_class;

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::runtime_handler;
use super::target::Target;

/// The ids of the pod, written down before anybody uses them; `None` for a pod with the
/// node's users. A runtime that does not know of user namespaces would give the pod the
/// node's users without a word, so there the pod waits.
pub(super) async fn ids(
    context: &StepContext,
    target: &Target<'_>,
) -> Result<Option<IdRange>, StepError> {
    if !cri_requests::has_user_namespace(target.pod) {
        return Ok(None);
    }
    let features = runtime_handler::features(context, target.pod).await?;
    if !features.user_namespaces {
        let runtime = context.runtime.reads.version().await?;
        let handler = runtime_class::handler(target.pod, &context.facts.runtime_classes);
        let message = lacking(handler.unwrap_or_default(), &runtime);
        return Err(StepError::new(message, Retry::LATER));
    }
    let uid = target.identity.uid();
    let ids = context.host.pod_id_range(uid, &context.agent_ids).await?;
    Ok(Some(ids))
}

fn lacking(handler: &str, runtime: &VersionResponse) -> String {
    let (name, version) = (&runtime.runtime_name, &runtime.runtime_version);
    let by = match handler {
        "" => String::new(),
        handler => format!(" for the handler {handler:?}"),
    };
    format!(
        "can't set `spec.hostUsers: false`: the runtime, {name} {version}, does not support user \
         namespaces{by}: it needs containerd 2.0 or cri-o 1.31, with a runc 1.2 or crun 1.9, and \
         a kernel that has them"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_without_user_namespaces_is_named() {
        let runtime = VersionResponse {
            runtime_name: "containerd".to_owned(),
            runtime_version: "1.6.20~ds1".to_owned(),
            ..VersionResponse::default()
        };
        for (handler, words) in [
            (
                "",
                "containerd 1.6.20~ds1, does not support user namespaces: it",
            ),
            (
                "kata",
                "does not support user namespaces for the handler \"kata\": it",
            ),
        ] {
            let message = lacking(handler, &runtime);
            assert!(message.contains(words), "{message}");
        }
    }
}
