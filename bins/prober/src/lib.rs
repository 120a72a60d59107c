//! prober.
