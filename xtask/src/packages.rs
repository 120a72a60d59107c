//! The Debian packages that running containers takes, installed when missing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use test_support::images;

use crate::report;

/// A package, and what shows that it is there.
struct Package {
    name: &'static str,
    shown_by: Sign,
}

enum Sign {
    /// One of these files.
    File(&'static [&'static str]),
    /// A busybox that is static: another package has one that is not, at the
    /// same place.
    StaticBusybox,
}

impl Sign {
    fn is_there(&self) -> bool {
        match self {
            Sign::File(paths) => paths.iter().any(|path| Path::new(path).exists()),
            Sign::StaticBusybox => images::static_busybox().is_ok(),
        }
    }
}

const PACKAGES: &[Package] = &[
    Package {
        name: "containerd",
        shown_by: Sign::File(&["/usr/bin/containerd", "/usr/local/bin/containerd"]),
    },
    Package {
        name: "runc",
        shown_by: Sign::File(&["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc"]),
    },
    Package {
        name: "containernetworking-plugins",
        shown_by: Sign::File(&[
            "/usr/lib/cni/bridge",
            "/opt/cni/bin/bridge",
            "/usr/libexec/cni/bridge",
        ]),
    },
    Package {
        name: "busybox-static",
        shown_by: Sign::StaticBusybox,
    },
    Package {
        name: "iproute2",
        shown_by: Sign::File(&["/sbin/ip", "/usr/sbin/ip", "/bin/ip"]),
    },
    Package {
        name: "systemd",
        shown_by: Sign::File(&["/usr/bin/systemd-analyze", "/bin/systemd-analyze"]),
    },
    Package {
        name: "iptables",
        shown_by: Sign::File(&["/sbin/iptables", "/usr/sbin/iptables"]),
    },
    Package {
        name: "nftables",
        shown_by: Sign::File(&["/sbin/nft", "/usr/sbin/nft"]),
    },
];

/// What booting systemd in a container takes beside them.
const FOR_BOOTS: &[Package] = &[
    Package {
        name: "systemd-container",
        shown_by: Sign::File(&["/usr/bin/systemd-nspawn"]),
    },
    Package {
        name: "debootstrap",
        shown_by: Sign::File(&["/usr/sbin/debootstrap"]),
    },
];

/// What it takes besides to make a guest and to run it.
const FOR_GUESTS: &[Package] = &[
    Package {
        name: "qemu-system-x86",
        shown_by: Sign::File(&["/usr/bin/qemu-system-x86_64"]),
    },
    Package {
        name: "debootstrap",
        shown_by: Sign::File(&["/usr/sbin/debootstrap"]),
    },
    Package {
        name: "e2fsprogs",
        shown_by: Sign::File(&["/sbin/mke2fs", "/usr/sbin/mke2fs"]),
    },
    Package {
        name: "busybox-static",
        shown_by: Sign::StaticBusybox,
    },
];

fn missing(packages: &[Package]) -> Vec<&'static str> {
    let missing = packages
        .iter()
        .filter(|package| !package.shown_by.is_there());
    missing.map(|package| package.name).collect()
}

/// An error with the command that installs what is missing: a whole emulator is not
/// installed unasked.
pub(crate) fn require_for_guests() -> Result<()> {
    require(FOR_GUESTS)
}

/// The same for containers that boot.
pub(crate) fn require_for_boots() -> Result<()> {
    require(FOR_BOOTS)
}

fn require(packages: &[Package]) -> Result<()> {
    let missing = missing(packages).join(" ");
    if !missing.is_empty() {
        bail!("first: apt-get install --no-install-recommends {missing}");
    }
    Ok(())
}

/// Installs what is missing; does nothing and needs no network otherwise.
pub(crate) fn install_missing() -> Result<()> {
    let missing = missing(PACKAGES);
    if missing.is_empty() {
        return Ok(());
    }
    report::step(&format!("installing {}", missing.join(", ")));
    require_root()?;
    apt_get(&["update", "--quiet"])?;
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    arguments.extend(missing);
    apt_get(&arguments)
}

/// An error that says what to do, unless root runs this.
pub(crate) fn require_root() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("this needs root (namespaces, cgroups, mounts): run it again with sudo or as root");
    }
    Ok(())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("cannot run apt-get; install the packages by this system's own means")?;
    if !status.success() {
        bail!("apt-get {}: {status}", arguments.join(" "));
    }
    Ok(())
}
