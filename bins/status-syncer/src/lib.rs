//! status-syncer.
