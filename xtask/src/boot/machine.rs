//! What boots, and which boots there are: a container on this machine's kernel, or an
//! emulated machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::{report, vm};

/// A boot, by what is done in it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boot {
    /// An installation, the bundle, an upgrade of it, the supervisor
    First,
    /// With the pods of the first: an upgrade of the supervisor, removal and purge
    Second,
    /// The systemd cgroup driver, and a shutdown that waits for pods, which ends the boot
    Third,
    /// With the pods of that shutdown under the supervisor, and another one in the bundle
    Fourth,
    /// With the pods of that one
    Fifth,
    /// On cgroup v2 alone, what systemd does with that only; every boot of a guest is
    Unified,
    /// Everything that can happen to a process of the bundle, and malicious servers in it
    Fire,
    /// What `--kills` asks for
    #[value(skip)]
    Kills,
    /// What `--from` asks for
    #[value(skip)]
    Upgrade,
}

impl Boot {
    /// As the scripts know it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Boot::First => "first",
            Boot::Second => "second",
            Boot::Third => "third",
            Boot::Fourth => "fourth",
            Boot::Fifth => "fifth",
            Boot::Unified => "unified",
            Boot::Fire => "fire",
            Boot::Kills => "kills",
            Boot::Upgrade => "upgrade",
        }
    }
}

/// What boots, again and again.
pub(super) enum Machine {
    /// A container, of its tree of files.
    Container {
        root: PathBuf,
        /// After which a boot is ended.
        minutes: u64,
    },
    /// A guest, of its disk.
    Guest {
        root: PathBuf,
        disk: PathBuf,
        /// After which a boot is ended.
        minutes: u32,
    },
}

impl Machine {
    /// Boots once, and returns what was claimed. The console is in `directory`.
    pub(super) fn claims_of(&self, directory: &Path, boot: Boot) -> Result<String> {
        match self {
            Machine::Container { root, minutes } => of_container(root, directory, boot, *minutes),
            Machine::Guest {
                root,
                disk,
                minutes,
            } => of_guest((root, disk), directory, boot, *minutes),
        }
    }
}

/// The container has a network, mounts and cgroups of its own, and not all capabilities.
fn of_container(root: &Path, directory: &Path, boot: Boot, minutes: u64) -> Result<String> {
    fs::write(root.join("boot-number"), boot.name()).context("the number of the boot")?;
    // Another container may boot at the same time.
    let cgroup = format!("bulkhead-boot-{}", std::process::id());
    let told = root.join("claims");
    let _ = fs::remove_file(&told);
    let console = fs::File::create(directory.join("console.log")).context("the console")?;
    let status = Command::new("timeout")
        .args(["--kill-after=10", &format!("{minutes}m")])
        .args(["unshare", "--mount", "--propagation", "private"])
        .args(["sh", "-c", include_str!("enter.sh"), "enter"])
        .arg(root)
        .arg(&cgroup)
        // systemd-nspawn(1); with `no` the container has those of the machine.
        .env(
            "UNIFIED_CGROUP_HIERARCHY",
            if boot == Boot::Unified { "yes" } else { "no" },
        )
        .stdin(Stdio::null())
        .stderr(console.try_clone().context("the console")?)
        .stdout(console)
        .status();
    // It ends with an error of its own when the container has switched itself off.
    status.context("cannot start systemd-nspawn")?;
    let removed = Command::new("sh")
        .args(["-c", include_str!("leave.sh"), "leave", &cgroup])
        .status();
    if !removed.context("cannot remove the cgroups")?.success() {
        bail!("the container's cgroups cannot be removed");
    }
    fs::read_to_string(&told).context("the container claimed nothing")
}

/// A guest's files are on its disk.
fn of_guest(
    (root, disk): (&Path, &Path),
    directory: &Path,
    boot: Boot,
    minutes: u32,
) -> Result<String> {
    let console = directory.join("console.log");
    let command_line = format!(
        "{} init=/begin boot-number={}",
        vm::guest::KERNEL_COMMAND_LINE,
        boot.name()
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
