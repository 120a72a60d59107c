//! config-sourcer.
