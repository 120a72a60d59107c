//! Building the programs, with cargo's output shown.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use test_support::binaries;

/// Which profile to build in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// What tests and the demo use.
    Development,
    /// What benches use.
    Release,
}

/// Where the programs of a profile are.
pub(crate) fn place(profile: Profile) -> Result<PathBuf> {
    let place = match profile {
        Profile::Development => "debug",
        Profile::Release => "release",
    };
    Ok(binaries::target_directory()?.join(place))
}

/// Builds all programs and the given further packages, unless a test that
/// runs us has seen to it.
pub(crate) fn programs(profile: Profile, more_packages: &[&str]) -> Result<()> {
    if std::env::var_os(binaries::BUILT_VARIABLE).is_some() {
        return Ok(());
    }
    let mut command = binaries::cargo_command();
    command.args(binaries::build_arguments(profile == Profile::Release));
    match profile {
        Profile::Development if more_packages.is_empty() => {}
        Profile::Development => {
            command.arg("--bins");
        }
        Profile::Release => {
            command.args(more_packages.iter().flat_map(|it| ["--package", *it]));
        }
    }
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the programs cannot be built: {status}");
    }
    Ok(())
}
