//! Clients of what every node with systemd has on its system bus (D-Bus): systemd itself,
//! which makes slices, and logind, which tells of a shutdown and can be made to wait.
//!
//! What a slice is called, and what is done before a shutdown, their callers decide.

mod bus;
mod login;
mod systemd;

pub use bus::Error;
pub use login::{LoginManager, Logind, ShutdownSignals};
pub use systemd::{Property, ServiceManager, Stop, Value};
