//! pleg.
