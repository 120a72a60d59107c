//! `cargo xtask boot-test`: systemd boots in a container on this machine's kernel
//! (systemd-nspawn), and Bulkhead is installed there from its package and runs as on a node:
//! under its supervisor, and as the bundle of services. What is claimed is in
//! `boot/claims.sh` and what it reads, which run in the container; or, with `--guest`, in an
//! emulated machine with Debian's own kernel, on cgroup v2.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use test_support::{binaries, images};

use crate::build::{self, Profile};
use crate::vm::{self, Release};
use crate::{package, packages, report, tree};

/// What the container has besides the smallest Debian.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,libnss-systemd,containerd,runc,\
                        containernetworking-plugins,busybox-static,iproute2,iptables";

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
const PROVERS: [&str; 7] = [
    "call-as",
    "call-every-method",
    "confined",
    "escape",
    "hostile-twin",
    "prove-edges",
    "prove-escapes",
];

/// What a guest has beside these.
const PACKAGES_OF_GUEST: &str = "kmod,linux-image-cloud-amd64";

/// Longest boot of a container, with all that is done in it.
const MINUTES: &str = "5m";

/// Gives a guest more time than the container: its one processor is slow, also by its own
/// clock.
const PATIENCE_OF_GUEST: (&str, &str) = (
    "etc/systemd/system/claims.service.d/patience.conf",
    "[Service]\nTimeoutStartSec=infinity\nEnvironment=CLAIM_TRIES=1500\n",
);

/// Arguments of `boot-test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
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

/// A boot, by what is done in it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Boot {
    /// An installation, the bundle, an upgrade of it, the supervisor
    First,
    /// With the pods of the first: an upgrade of the supervisor, removal and purge
    Second,
    /// The systemd cgroup driver, and a shutdown that waits for pods
    Third,
    /// With the pods of that shutdown
    Fourth,
}

impl Boot {
    fn name(self) -> &'static str {
        match self {
            Boot::First => "first",
            Boot::Second => "second",
            Boot::Third => "third",
            Boot::Fourth => "fourth",
        }
    }
}

/// What boots, again and again.
enum Machine {
    /// Of its tree of files.
    Container,
    /// Its disk.
    Guest { disk: PathBuf, minutes: u32 },
}

/// Runs all claims; fails unless each of them holds.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    match arguments.guest {
        None => packages::require_for_boots()?,
        Some(_) => packages::require_for_guests()?,
    }
    report::step("building programs");
    build::programs(Profile::Development, &["confinement", "e2e"])?;
    let (directory, root) = tree_of(arguments.guest)?;
    let machine = match arguments.guest {
        None => Machine::Container,
        Some(_) => Machine::Guest {
            disk: tree::disk(&root, &directory)?,
            minutes: arguments.minutes,
        },
    };
    let mut boots = Boot::value_variants().to_vec();
    boots.retain(|boot| arguments.only.is_empty() || arguments.only.contains(boot));
    let (mut held, mut failed) = (0, 0);
    for boot in boots.into_iter().map(Boot::name) {
        report::step(&format!("{boot} boot"));
        let claims = match &machine {
            Machine::Container => {
                fs::write(root.join("boot-number"), boot).context("the number of the boot")?;
                claims_of(&root, &directory)?
            }
            Machine::Guest { disk, minutes } => {
                claims_of_guest((&root, disk), &directory, boot, *minutes)?
            }
        };
        for claim in claims.lines() {
            report::line(claim);
            held += usize::from(claim.starts_with("ok "));
            failed += usize::from(claim.starts_with("FAILED "));
        }
        ensure!(
            claims.ends_with("end\n"),
            "the {boot} boot did not come to its end: {}",
            directory.join("console.log").display()
        );
    }
    report::line(&format!("\n{held} claims hold, {failed} do not"));
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The files that boot, and the directory that they are in.
fn tree_of(guest: Option<Release>) -> Result<(PathBuf, PathBuf)> {
    let target = binaries::target_directory()?;
    let archives = images::archives()?;
    let (directory, root) = match guest {
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
    install(&root)?;
    for program in PROVERS {
        copy(&target.join("debug").join(program), &root.join("proof"))?;
    }
    for archive in archives {
        copy(&archive, &root.join("images"))?;
    }
    Ok((directory, root))
}

/// Puts the packages, claims and what they need where the container looks for them. The
/// container itself installs the package.
fn install(root: &Path) -> Result<()> {
    let place = root.join("packages");
    fs::create_dir_all(&place).context("the directory of packages")?;
    package::of_development(&VERSIONS, &place)?;
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

/// Boots once, and returns what was claimed. The container has a network, mounts and
/// cgroups of its own, and not all capabilities.
fn claims_of(root: &Path, directory: &Path) -> Result<String> {
    // Another container may boot at the same time.
    let cgroup = format!("bulkhead-boot-{}", std::process::id());
    let told = root.join("claims");
    let _ = fs::remove_file(&told);
    let console = fs::File::create(directory.join("console.log")).context("the console")?;
    let status = Command::new("timeout")
        .args(["--kill-after=10", MINUTES])
        .args(["unshare", "--mount", "--propagation", "private"])
        .args(["sh", "-c", include_str!("boot/enter.sh"), "enter"])
        .arg(root)
        .arg(&cgroup)
        .stdin(Stdio::null())
        .stderr(console.try_clone().context("the console")?)
        .stdout(console)
        .status();
    // It ends with an error of its own when the container has switched itself off.
    status.context("cannot start systemd-nspawn")?;
    let removed = Command::new("sh")
        .args(["-c", include_str!("boot/leave.sh"), "leave", &cgroup])
        .status();
    if !removed.context("cannot remove the cgroups")?.success() {
        bail!("the container's cgroups cannot be removed");
    }
    fs::read_to_string(&told).context("the container claimed nothing")
}

/// The same in an emulated machine, whose files are on its disk.
fn claims_of_guest(
    (root, disk): (&Path, &Path),
    directory: &Path,
    boot: &str,
    minutes: u32,
) -> Result<String> {
    let console = directory.join("console.log");
    let command_line = format!(
        "{} init=/begin boot-number={boot}",
        vm::guest::KERNEL_COMMAND_LINE
    );
    let mut guest = vm::boot(root, disk, &console, &command_line, minutes)?;
    let status = guest.wait().context("cannot wait for qemu")?;
    if status.code() == Some(vm::TIMED_OUT) {
        report::line(&format!("the guest took more than {minutes} minutes"));
    }
    let claims = Command::new("debugfs")
        .args(["-R", "cat /claims"])
        .arg(disk)
        .output()
        .context("cannot run debugfs")?;
    Ok(String::from_utf8_lossy(&claims.stdout).into_owned())
}
