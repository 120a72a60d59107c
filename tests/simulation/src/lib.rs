//! simulation.
