//! bulkhead.
