//! sync-loop.
