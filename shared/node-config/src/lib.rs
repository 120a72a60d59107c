//! node-config.
