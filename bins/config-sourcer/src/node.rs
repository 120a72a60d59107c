//! The own Node, as the API server has it, as far as pod-worker-pool makes use of it.

use bulkhead_api::v1::WatchNodeResponse;
use futures_util::stream;
use pod::PodSource;
use tokio_stream::Stream;

use crate::publication::{Publication, State};

/// What is known now, if anything is, and what that changes to.
pub(crate) fn watch(sources: &Publication) -> impl Stream<Item = WatchNodeResponse> + use<> {
    let mut state = sources.watch();
    state.mark_changed();
    stream::unfold((state, None), |(mut state, sent)| async move {
        loop {
            state.changed().await.ok()?;
            let known = known(&state.borrow_and_update());
            if let Some(node) = known.filter(|known| Some(known) != sent.as_ref()) {
                return Some((node.clone(), (state, Some(node))));
            }
        }
    })
}

fn known(state: &State) -> Option<WatchNodeResponse> {
    let node = state.get(&PodSource::Api)?.node.as_ref()?;
    let pod_cidrs = node.pod_cidrs.clone();
    Some(WatchNodeResponse { pod_cidrs })
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1::ApiNode;
    use futures_util::{FutureExt as _, StreamExt as _};

    use super::*;
    use crate::snapshot::PodSet;

    #[test]
    fn nothing_is_told_of_an_unknown_node_and_then_only_what_changes() {
        let sources = Publication::new("boot", [PodSource::Api]);
        let mut messages = Box::pin(watch(&sources));
        let mut next = || {
            let next = messages.next().now_or_never().flatten();
            next.map(|node| node.pod_cidrs.join(" "))
        };
        assert_eq!(next(), None);
        let node = |label: &str, cidrs: &[&str]| ApiNode {
            exists: true,
            labels: [(label.to_owned(), String::new())].into(),
            pod_cidrs: cidrs.iter().map(|it| (*it).to_owned()).collect(),
            ..ApiNode::default()
        };
        sources.set_node(PodSource::Api, ApiNode::default());
        assert_eq!(next().as_deref(), Some(""));
        sources.set_node(PodSource::Api, node("a", &["10.1.0.0/24"]));
        assert_eq!(next().as_deref(), Some("10.1.0.0/24"));
        sources.set(PodSource::Api, true, Some(PodSet::new()), Vec::new());
        sources.set_node(PodSource::Api, node("b", &["10.1.0.0/24"]));
        assert_eq!(next(), None);
        sources.set_node(PodSource::Api, node("b", &["10.1.0.0/24", "fd00::/64"]));
        assert_eq!(next().as_deref(), Some("10.1.0.0/24 fd00::/64"));
    }
}
