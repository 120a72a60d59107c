//! `cargo xtask boot-test`: systemd boots in a container on this machine's kernel
//! (systemd-nspawn), and Bulkhead is installed there from its package and runs as on a node:
//! under its supervisor, and as the bundle of services. What is claimed is in
//! `boot/claims.sh` and what it reads, which run in the container.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use test_support::{binaries, images};

use crate::build::{self, Profile};
use crate::{package, packages, report, tree};

mod earlier;

/// Arguments of `boot-test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only measure: kill each process of the bundle so often, in a release build
    #[arg(long, value_name = "N", conflicts_with = "from")]
    kills: Option<usize>,
    /// Only upgrade, with pods: from the package of this commit to that of now
    #[arg(long, value_name = "COMMIT")]
    from: Option<String>,
    /// Only this boot, of those that need none before them: first, third, unified
    #[arg(long, value_name = "BOOT", conflicts_with_all = ["kills", "from"])]
    only: Option<String>,
}

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
const PROVERS: [&str; 8] = [
    "call-as",
    "call-every-method",
    "confined",
    "escape",
    "hostile-pleg",
    "hostile-twin",
    "prove-edges",
    "prove-escapes",
];

/// How often it boots: the second time with pods of the first, the third time with the
/// systemd cgroup driver and a shutdown that waits for pods, the fourth time with those, the
/// fifth time on cgroup version 2 alone, for what systemd does with that only.
const BOOTS: [&str; 5] = ["first", "second", "third", "fourth", UNIFIED];

const UNIFIED: &str = "unified";

/// Longest boot, with all that is done in it.
const MINUTES: u64 = 8;

/// Kills of each process in a minute, at least.
const KILLS_A_MINUTE: u64 = 20;

/// Runs all claims; fails unless each of them holds.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    packages::require_for_boots()?;
    let (profile, provers, boots): (_, &[&str], &[&str]) = match arguments {
        Arguments { kills: Some(_), .. } => (Profile::Release, &["bench"], &["kills"]),
        Arguments { from: Some(_), .. } => (Profile::Development, &[], &["upgrade"]),
        _ => (Profile::Development, &PROVERS, &BOOTS),
    };
    let directory = binaries::target_directory()?.join("boot");
    let earlier = match &arguments.from {
        Some(commit) => Some(earlier::package(commit, &directory)?),
        None => None,
    };
    report::step("building programs");
    let packages: &[&str] = match profile {
        Profile::Development => &["confinement", "e2e"],
        Profile::Release => &["bench"],
    };
    build::programs(profile, packages)?;
    let archives = images::archives()?;
    let root = tree::debian(&directory, "bookworm", PACKAGES)?;
    install(&root, profile)?;
    if let Some(earlier) = earlier {
        let first = root.join("packages/1.deb");
        fs::copy(&earlier, &first).with_context(|| earlier.display().to_string())?;
    }
    for program in provers {
        let program = build::place(profile)?.join(program);
        copy(&program, &root.join("proof"))?;
    }
    for archive in archives {
        copy(&archive, &root.join("images"))?;
    }
    let kills = u64::try_from(arguments.kills.unwrap_or(0))?;
    fs::write(root.join("kills"), kills.to_string()).context("the number of kills")?;
    let minutes = MINUTES + kills.div_ceil(KILLS_A_MINUTE);
    let (mut held, mut failed) = (0, 0);
    let only = arguments.only.as_deref();
    for boot in boots
        .iter()
        .filter(|boot| only.is_none_or(|only| only == **boot))
    {
        report::step(&format!("{boot} boot"));
        fs::write(root.join("boot-number"), boot).context("the number of the boot")?;
        let claims = claims_of(&root, &directory, boot, minutes)?;
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
    ensure!(held > 0, "nothing was claimed");
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
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
    )
}

/// What is written into the container.
const FILES: &[(&str, &str)] = &[
    ("begin", include_str!("boot/begin.sh")),
    ("claims.sh", include_str!("boot/claims.sh")),
    ("proof.sh", include_str!("boot/proof.sh")),
    ("watch.sh", include_str!("boot/watch.sh")),
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
fn claims_of(root: &Path, directory: &Path, boot: &str, minutes: u64) -> Result<String> {
    // Another container may boot at the same time.
    let cgroup = format!("bulkhead-boot-{}", std::process::id());
    let told = root.join("claims");
    let _ = fs::remove_file(&told);
    let console = fs::File::create(directory.join("console.log")).context("the console")?;
    let status = Command::new("timeout")
        .args(["--kill-after=10", &format!("{minutes}m")])
        .args(["unshare", "--mount", "--propagation", "private"])
        .args(["sh", "-c", include_str!("boot/enter.sh"), "enter"])
        .arg(root)
        .arg(&cgroup)
        // systemd-nspawn(1); with `no` the container has those of the machine.
        .env(
            "UNIFIED_CGROUP_HIERARCHY",
            if boot == UNIFIED { "yes" } else { "no" },
        )
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
