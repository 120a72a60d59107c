//! What several rows of the table have in common.

use crate::namespace::Namespace;
use crate::place::{Access, Place, PlaceRow};
use crate::process::Process;
use crate::process_row::{Budget, Caller};

/// Of who has no business with a network.
pub(crate) const WITHOUT_NETWORK: &[Namespace] =
    &[Namespace::Network, Namespace::Ipc, Namespace::Mount];

/// Of who has.
pub(crate) const WITH_NETWORK: &[Namespace] = &[Namespace::Ipc, Namespace::Mount];

/// Of who mounts what containers see.
pub(crate) const WITH_MOUNTS_OF_THE_NODE: &[Namespace] = &[Namespace::Network, Namespace::Ipc];

/// Whom to trust.
pub(crate) const CERTIFICATE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What programs get: where commands and proxies are, and whom to trust.
pub(crate) const PROGRAM_VARIABLES: &[&str] = &[
    "PATH",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const SYNC_LOOP: Caller = Caller::Process(Process::SyncLoop);

pub(crate) const fn read(place: Place, reason: &'static str) -> PlaceRow {
    let access = Access::Read;
    PlaceRow {
        place,
        access,
        reason,
    }
}

pub(crate) const fn write(place: Place, reason: &'static str) -> PlaceRow {
    let access = Access::Write;
    PlaceRow {
        place,
        access,
        reason,
    }
}

/// What a caller may ask for, and why so much.
pub(crate) const fn budget(at_once: u16, reason: &'static str) -> Budget {
    Budget { at_once, reason }
}

/// Of services for people: their terminals, and scripts.
pub(crate) const PEOPLE: Budget = budget(64, "several terminals and scripts");

/// Of a service with a stream or two that a caller keeps open.
pub(crate) const STREAM: Budget = budget(4, "a stream, opened again after a restart");
