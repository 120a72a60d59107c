//! `cargo xtask units`: writes the units of `systemd/bundle` and their preset, which come
//! from the topology.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use systemd_units::UnitFile;

/// Replaces all of them.
pub(crate) fn run() -> Result<ExitCode> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd");
    replace(&repository.join("bundle"), &systemd_units::bundle())?;
    replace(
        &repository.join("system-preset"),
        &[systemd_units::preset()],
    )?;
    Ok(ExitCode::SUCCESS)
}

fn replace(directory: &Path, files: &[UnitFile]) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).context("cannot remove the old units")?;
    }
    for file in files {
        let path = directory.join(&file.name);
        let parent = path.parent().context("a unit has no directory")?;
        fs::create_dir_all(parent).context("cannot make a directory")?;
        fs::write(&path, &file.text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
