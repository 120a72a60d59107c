//! `cargo xtask images`.

use std::process::ExitCode;

use anyhow::Result;

use crate::{packages, report};

/// Builds the images unless they are current, and says where they are.
pub(crate) fn run() -> Result<ExitCode> {
    packages::install_missing()?;
    for archive in test_support::images::archives()? {
        report::line(&archive.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}
