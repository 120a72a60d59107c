//! [`Warnings`]: how often a module has warned.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::subscriber::Subscriber;
use tracing::{Event, Level, Metadata, span};

/// Counts the warnings of one module.
#[derive(Clone)]
pub(in crate::shell) struct Warnings {
    module: &'static str,
    count: Arc<AtomicUsize>,
}

impl Warnings {
    /// Of the module whose path ends so.
    pub(in crate::shell) fn of(module: &'static str) -> Warnings {
        let count = Arc::default();
        Warnings { module, count }
    }

    pub(in crate::shell) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().ends_with(self.module) && *metadata.level() == Level::WARN
    }

    fn event(&self, _: &Event<'_>) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
