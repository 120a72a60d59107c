//! supervisor.
