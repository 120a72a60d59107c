//! `cargo xtask units`: writes the units of `systemd/bundle`, which come from the topology.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

/// Replaces all of them.
pub(crate) fn run() -> Result<ExitCode> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd/bundle");
    if directory.exists() {
        fs::remove_dir_all(&directory).context("cannot remove the old units")?;
    }
    for file in systemd_units::bundle() {
        let path = directory.join(file.name);
        let parent = path.parent().context("a unit has no directory")?;
        fs::create_dir_all(parent).context("cannot make a directory")?;
        fs::write(&path, file.text).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
