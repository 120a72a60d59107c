//! Whether the runtime has the handler that a sandbox is to run by, and what that can do.

use cri::v1::{RuntimeHandler, RuntimeHandlerFeatures};
use pod::{Pod, runtime_class};

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::target::Target;

/// Most handlers that a message names.
const MAX_SHOWN: usize = 10;

/// That the runtime has the handler of the pod's runtime class. A runtime that lists no
/// handlers (containerd before 2.0) says so itself when it makes the sandbox.
pub(super) async fn require(
    context: &StepContext,
    target: &Target<'_>,
    handler: &str,
) -> Result<(), StepError> {
    if handler.is_empty() {
        return Ok(());
    }
    let status = context.runtime.reads.status(false).await?;
    let Some(has) = lacks(&status.runtime_handlers, handler) else {
        return Ok(());
    };
    let class = target
        .pod
        .spec
        .as_ref()
        .and_then(|spec| spec.runtime_class_name.as_deref())
        .unwrap_or_default();
    let message = format!(
        "the runtime has no handler {handler:?}, which the runtime class {class:?} names; \
         it has {has}"
    );
    let told = format!("Failed to create pod sandbox: {message}");
    context
        .events
        .warning(target.identity, "", "FailedCreatePodSandBox", &told);
    Err(StepError::new(message, Retry::LATER))
}

/// What the runtime tells that it can do for a pod, by the handler of its class. A runtime
/// that tells nothing can do none of it.
pub(super) async fn features(
    context: &StepContext,
    pod: &Pod,
) -> Result<RuntimeHandlerFeatures, StepError> {
    let status = context.runtime.reads.status(false).await?;
    let own = runtime_class::handler(pod, &context.facts.runtime_classes);
    let mut handlers = status.runtime_handlers.into_iter();
    let handler = handlers.find(|handler| Some(handler.name.as_str()) == own);
    Ok(handler.and_then(|it| it.features).unwrap_or_default())
}

/// The handlers that the runtime lists, where the one is not among them.
fn lacks(listed: &[RuntimeHandler], handler: &str) -> Option<String> {
    if listed.is_empty() || listed.iter().any(|listed| listed.name == handler) {
        return None;
    }
    let names = listed.iter().map(|listed| listed.name.as_str());
    let named: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    Some(match named.len() {
        0 => "only its default".to_owned(),
        _ => named[..named.len().min(MAX_SHOWN)].join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_lacking_only_where_others_are_listed() {
        let listed = |names: &[&str]| -> Vec<RuntimeHandler> {
            let handler = |name: &&str| RuntimeHandler {
                name: (*name).to_owned(),
                ..RuntimeHandler::default()
            };
            names.iter().map(handler).collect()
        };
        for (names, expected) in [
            (&[][..], None),
            (&["", "kata"], None),
            (&["", "runc", "crun"], Some("runc, crun")),
            (&[""], Some("only its default")),
        ] {
            assert_eq!(
                lacks(&listed(names), "kata").as_deref(),
                expected,
                "{names:?}"
            );
        }
    }
}
