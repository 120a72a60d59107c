//! backoff.
