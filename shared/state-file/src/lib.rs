//! state-file.
