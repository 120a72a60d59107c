//! `cargo xtask boot-test`: systemd boots in a container on this machine's kernel
//! (systemd-nspawn), and Bulkhead is installed there from its package and runs as on a node:
//! as the bundle of services, and under its supervisor. What is claimed is in
//! `boot/claims.sh`, which runs in the container.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use test_support::{binaries, images};

use crate::build::{self, Profile};
use crate::tree::{self, link};
use crate::{package, packages, report};

/// Arguments of `boot-test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these boots
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Boot>,
}

/// A boot, by what is done in it. The second needs what the first has left, and the third
/// that of the second.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Boot {
    /// An installation, the bundle, an upgrade of it, the supervisor, a shutdown of the
    /// node in the bundle
    First,
    /// With the pods of the first; the systemd cgroup driver, a shutdown under the supervisor
    Second,
    /// With the pods of the second; an upgrade of the supervisor, removal and purge
    Third,
    /// What systemd does on cgroup v2 only
    Unified,
}

impl Boot {
    /// As the script knows it.
    fn name(self) -> &'static str {
        match self {
            Boot::First => "first",
            Boot::Second => "second",
            Boot::Third => "third",
            Boot::Unified => "unified",
        }
    }
}

/// What the container has besides the smallest Debian.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,libnss-systemd,containerd,runc,\
                        containernetworking-plugins,busybox-static,iproute2,iptables,nftables";

/// What of Debian is not started: it would change the machine, or disturbs.
const MASKED: [&str; 10] = [
    "systemd-udevd.service",
    "systemd-udevd-kernel.socket",
    "systemd-udevd-control.socket",
    "systemd-udev-trigger.service",
    "systemd-sysctl.service",
    "systemd-binfmt.service",
    "systemd-modules-load.service",
    "systemd-networkd.service",
    "console-getty.service",
    "getty.target",
];

/// The versions of the package that are installed one after the other.
const VERSIONS: [&str; 3] = ["1", "2", "3"];

/// Programs of the tests that try the processes from outside.
const PROVERS: [&str; 5] = [
    "call-every-method",
    "confined",
    "escape",
    "prove-edges",
    "prove-escapes",
];

/// What is written into the container.
const FILES: &[(&str, &str)] = &[
    ("begin", include_str!("boot/begin.sh")),
    ("claims.sh", include_str!("boot/claims.sh")),
    (
        "etc/systemd/system/claims.service",
        include_str!("boot/claims.service"),
    ),
    (
        "etc/containerd/config.toml",
        include_str!("boot/containerd.toml"),
    ),
    (
        "etc/cni/net.d/10-bridge.conflist",
        include_str!("boot/bridge.conflist"),
    ),
    ("etc/hostname", "node-a\n"),
];

/// Longest boot, with all that is done in it.
const LONGEST_BOOT: &str = "40m";

/// Runs all claims; fails unless each of them holds.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    packages::require_for_boots()?;
    report::step("building programs");
    build::programs(Profile::Development, &["confinement", "e2e"])?;
    let directory = binaries::target_directory()?.join("boot");
    let root = tree::debian(&directory, "bookworm", PACKAGES)?;
    install(&root)?;
    let (mut held, mut failed) = (0, 0);
    for boot in Boot::value_variants() {
        if !arguments.only.is_empty() && !arguments.only.contains(boot) {
            continue;
        }
        report::step(&format!("{} boot", boot.name()));
        let console = directory.join("console.log");
        let claims = claims_of(&root, &console, *boot)?;
        for claim in claims.lines() {
            report::line(claim);
            held += usize::from(claim.starts_with("ok "));
            failed += usize::from(claim.starts_with("FAILED "));
        }
        let (name, console) = (boot.name(), console.display());
        let has_ended = claims.ends_with("end\n");
        ensure!(has_ended, "the {name} boot came to no end: {console}");
    }
    report::line(&format!("\n{held} claims hold, {failed} do not"));
    ensure!(held > 0, "nothing was claimed");
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Boots the container once, and returns what was claimed. It has a network, mounts and
/// cgroups of its own, and not all capabilities.
fn claims_of(root: &Path, console: &Path, boot: Boot) -> Result<String> {
    fs::write(root.join("boot-number"), boot.name()).context("the number of the boot")?;
    // Another container may boot at the same time.
    let cgroup = format!("bulkhead-boot-{}", std::process::id());
    let told = root.join("claims");
    let _ = fs::remove_file(&told);
    let console = fs::File::create(console).context("the console")?;
    let is_unified = boot == Boot::Unified;
    let status = Command::new("timeout")
        .args(["--kill-after=10", LONGEST_BOOT])
        .args(["unshare", "--mount", "--propagation", "private"])
        .args(["sh", "-c", include_str!("boot/enter.sh"), "enter"])
        .arg(root)
        .arg(&cgroup)
        // systemd-nspawn(1); with `no` the container has those of the machine.
        .env(
            "UNIFIED_CGROUP_HIERARCHY",
            if is_unified { "yes" } else { "no" },
        )
        .stdin(Stdio::null())
        .stderr(console.try_clone().context("the console")?)
        .stdout(console)
        .status();
    // It ends with an error of its own when the container has switched itself off.
    status.context("cannot start systemd-nspawn")?;
    let mut leave = Command::new("sh");
    tree::run(leave.args(["-c", include_str!("boot/leave.sh"), "leave", &cgroup]))?;
    fs::read_to_string(&told).context("the container claimed nothing")
}

/// Puts the packages, claims and what they need where the container looks for them. The
/// container itself installs the package.
fn install(root: &Path) -> Result<()> {
    let place = root.join("packages");
    fs::create_dir_all(&place).context("the directory of packages")?;
    package::in_versions(&VERSIONS, &place)?;
    let units = root.join("etc/systemd/system");
    for unit in MASKED {
        link("/dev/null", &units.join(unit))?;
    }
    for (path, text) in FILES {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        }
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    let first = root.join("begin");
    fs::set_permissions(&first, fs::Permissions::from_mode(0o755)).context("its mode")?;
    link(
        "../claims.service",
        &units.join("multi-user.target.wants/claims.service"),
    )?;
    for program in PROVERS {
        let program = build::place(Profile::Development)?.join(program);
        copy(&program, &root.join("proof"))?;
    }
    for archive in images::archives()? {
        copy(&archive, &root.join("images"))?;
    }
    Ok(())
}

fn copy(file: &Path, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let name = file.file_name().context("a file without a name")?;
    fs::copy(file, directory.join(name)).with_context(|| file.display().to_string())?;
    Ok(())
}
