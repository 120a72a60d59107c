//! More containers than may be probed.

use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::{Level, Metadata, span};

use super::*;

/// Counts the errors of the prober.
#[derive(Clone, Default)]
struct Errors(Arc<AtomicUsize>);

impl Errors {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl tracing::Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("prober::") && *metadata.level() == Level::ERROR
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Has the pool name a container whose probe takes some 60 KiB.
async fn announce(node: &Node, container: &str) {
    let path = "p".repeat(60 << 10);
    node.announce(v1::ProbeTarget {
        readiness_json: format!(r#"{{"httpGet":{{"port":80,"path":"/{path}"}}}}"#).into_bytes(),
        running: false,
        ..node.target(container, &[])
    });
    sleep(1).await;
}

#[tokio::test(start_paused = true)]
async fn that_there_is_no_room_for_more_probes_is_said() {
    let errors = Errors::default();
    let _logging = tracing::subscriber::set_default(errors.clone());
    let node = Node::new().await;
    let mut named = 0;
    while errors.count() == 0 {
        announce(&node, &format!("c{named}")).await;
        named += 1;
        assert!(named < 200, "there is always room");
    }
    assert!(named > 100, "there is room for so many: {named}");
}
