//! `cargo xtask boot-test`: systemd boots in a container on this machine's kernel
//! (systemd-nspawn), and Bulkhead is installed there from its package and runs as on a node:
//! under its supervisor, and as the bundle of services. What is claimed is in
//! `boot/claims.sh` and what it reads, which run in the container; or, with `--guest`, in an
//! emulated machine with Debian's own kernel, on cgroup v2.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use test_support::{binaries, images};

use crate::build::{self, Profile};
use crate::vm::Release;
use crate::{package, packages, report, tree};

mod earlier;
mod machine;

use machine::{Boot, Machine};

/// Arguments of `boot-test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only measure: kill each process of the bundle so often, in a release build
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "guest", "only"])]
    kills: Option<usize>,
    /// Only upgrade, with pods: from the package of this commit to that of now
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["guest", "only"])]
    from: Option<String>,
    /// Boot this release in an emulated machine, on cgroup v2, instead of Debian 12 in a
    /// container; takes hours
    #[arg(long, value_enum)]
    guest: Option<Release>,
    /// Minutes after which each boot of a guest is ended
    #[arg(long, default_value_t = 120)]
    minutes: u32,
    /// Only these boots
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Boot>,
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

/// The versions of the package that are installed one after the other: under systemd alone,
/// and under the supervisor.
const VERSIONS: [&str; 3] = ["1", "2", "3"];

/// Programs of the tests that try the processes from outside.
const PROVERS: [&str; 6] = [
    "call-every-method",
    "confined",
    "escape",
    "prove-edges",
    "prove-escapes",
    "strike",
];

/// What a guest has beside these.
const PACKAGES_OF_GUEST: &str = "kmod,linux-image-cloud-amd64";

/// Longest boot of a container, with all that is done in it.
const MINUTES: u64 = 40;

/// Kills of each process in a minute, at least.
const KILLS_A_MINUTE: u64 = 20;

/// Gives a guest more time than the container: its one processor is slow, also by its own
/// clock.
const PATIENCE_OF_GUEST: (&str, &str) = (
    "etc/systemd/system/claims.service.d/patience.conf",
    "[Service]\nTimeoutStartSec=infinity\nEnvironment=CLAIM_TRIES=1500\n",
);

/// What is booted for these arguments: the profile of its programs, those of the tests
/// that it has, and the boots.
fn chosen(arguments: &Arguments) -> (Profile, &'static [&'static str], Vec<Boot>) {
    if arguments.kills.is_some() {
        return (Profile::Release, &["bench"], vec![Boot::Kills]);
    }
    if arguments.from.is_some() {
        return (Profile::Development, &[], vec![Boot::Upgrade]);
    }
    let mut boots = Boot::value_variants().to_vec();
    // A guest has one slow processor, and this would take it days.
    let is_too_long = |boot: &Boot| *boot == Boot::Fire && arguments.guest.is_some();
    boots.retain(|boot| match arguments.only.is_empty() {
        true => !is_too_long(boot),
        false => arguments.only.contains(boot),
    });
    (Profile::Development, &PROVERS, boots)
}

/// Runs all claims; fails unless each of them holds.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    match arguments.guest {
        None => packages::require_for_boots()?,
        Some(_) => packages::require_for_guests()?,
    }
    let (profile, provers, boots) = chosen(arguments);
    let (directory, machine) = prepare(arguments, profile, provers)?;
    let (mut held, mut failed) = (0, 0);
    for boot in boots {
        report::step(&format!("{} boot", boot.name()));
        let claims = machine.claims_of(&directory, boot)?;
        for claim in claims.lines() {
            report::line(claim);
            held += usize::from(claim.starts_with("ok "));
            failed += usize::from(claim.starts_with("FAILED "));
        }
        ensure!(
            claims.ends_with("end\n"),
            "the {} boot did not come to its end: {}",
            boot.name(),
            directory.join("console.log").display()
        );
    }
    report::line(&format!("\n{held} claims hold, {failed} do not"));
    ensure!(held > 0, "nothing was claimed");
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Builds all that boots. Returns the directory of the console, and the machine.
fn prepare(
    arguments: &Arguments,
    profile: Profile,
    provers: &[&str],
) -> Result<(PathBuf, Machine)> {
    let target = binaries::target_directory()?;
    let earlier = match &arguments.from {
        Some(commit) => Some(earlier::package(commit, &target.join("boot"))?),
        None => None,
    };
    report::step("building programs");
    let packages: &[&str] = match profile {
        Profile::Development => &["confinement", "e2e"],
        Profile::Release => &["bench"],
    };
    build::programs(profile, packages)?;
    let archives = images::archives()?;
    let (directory, root) = match arguments.guest {
        None => {
            let directory = target.join("boot");
            let root = tree::debian(&directory, "bookworm", PACKAGES)?;
            (directory, root)
        }
        Some(release) => {
            let directory = target.join("boot-guest").join(release.name());
            let wanted = format!("{PACKAGES},{PACKAGES_OF_GUEST}");
            let root = tree::debian(&directory, release.name(), &wanted)?;
            write(&root, PATIENCE_OF_GUEST)?;
            (directory, root)
        }
    };
    install(&root, profile)?;
    if let Some(earlier) = earlier {
        let first = root.join("packages/1.deb");
        fs::copy(&earlier, &first).with_context(|| earlier.display().to_string())?;
    }
    for program in provers {
        copy(&build::place(profile)?.join(program), &root.join("proof"))?;
    }
    for archive in archives {
        copy(&archive, &root.join("images"))?;
    }
    let kills = u64::try_from(arguments.kills.unwrap_or(0))?;
    fs::write(root.join("kills"), kills.to_string()).context("the number of kills")?;
    let machine = match arguments.guest {
        None => Machine::Container {
            root,
            minutes: MINUTES + kills.div_ceil(KILLS_A_MINUTE),
        },
        Some(_) => Machine::Guest {
            disk: tree::disk(&root, &directory)?,
            root,
            minutes: arguments.minutes,
        },
    };
    Ok((directory, machine))
}

/// Puts the packages, claims and what they need where the container looks for them. The
/// container itself installs the package.
fn install(root: &Path, profile: Profile) -> Result<()> {
    let place = root.join("packages");
    fs::create_dir_all(&place).context("the directory of packages")?;
    package::in_versions(profile, &VERSIONS, &place)?;
    let units = root.join("etc/systemd/system");
    for unit in MASKED {
        link("/dev/null", &units.join(unit))?;
    }
    for file in FILES {
        write(root, *file)?;
    }
    let first = root.join("begin");
    fs::set_permissions(&first, fs::Permissions::from_mode(0o755)).context("its mode")?;
    link(
        "../claims.service",
        &units.join("multi-user.target.wants/claims.service"),
    )
}

/// What is written into the container.
const FILES: &[(&str, &str)] = &[
    ("begin", include_str!("boot/begin.sh")),
    ("claims.sh", include_str!("boot/claims.sh")),
    ("proof.sh", include_str!("boot/proof.sh")),
    ("lacks.sh", include_str!("boot/lacks.sh")),
    ("programs.sh", include_str!("boot/programs.sh")),
    ("fire.sh", include_str!("boot/fire.sh")),
    ("egress.sh", include_str!("boot/egress.sh")),
    ("upgrade.sh", include_str!("boot/upgrade.sh")),
    ("driver.sh", include_str!("boot/driver.sh")),
    ("shutdown.sh", include_str!("boot/shutdown.sh")),
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

fn write(root: &Path, (path, text): (&str, &str)) -> Result<()> {
    let path = root.join(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    fs::write(&path, text).with_context(|| path.display().to_string())
}

fn copy(file: &Path, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let name = file.file_name().context("a file without a name")?;
    fs::copy(file, directory.join(name)).with_context(|| file.display().to_string())?;
    Ok(())
}

fn link(to: &str, link: &Path) -> Result<()> {
    let _ = fs::remove_file(link);
    symlink(to, link).with_context(|| format!("cannot make {}", link.display()))
}
