//! The package of another commit, made by the means of that commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use test_support::binaries;

use crate::report;
use crate::tree::run as succeed;

/// Where its files are: not below ours, whose settings of cargo would count there too.
const CHECKOUT: &str = "/var/tmp/bulkhead-earlier";

/// Makes it, of a development build, with what else is made below `directory`. It is of version 1.
pub(crate) fn package(commit: &str, directory: &Path) -> Result<PathBuf> {
    report::step(&format!("making the package of {commit}"));
    let place = directory.join("earlier");
    let checkout = Path::new(CHECKOUT);
    if checkout.exists() {
        fs::remove_dir_all(checkout).context("cannot remove the old checkout")?;
    }
    fs::create_dir_all(checkout).context("the checkout")?;
    fs::create_dir_all(&place).context("the place of the package")?;
    // Not a work tree of git's own, which would have to be taken away again.
    let archive = place.join("checkout.tar");
    let mut git = Command::new("git");
    git.current_dir(binaries::workspace());
    succeed(git.arg("archive").arg("--output").arg(&archive).arg(commit))?;
    let mut tar = Command::new("tar");
    let unpack = tar.arg("--extract").arg("--directory").arg(checkout);
    succeed(unpack.arg("--file").arg(&archive))?;
    // What it depends on is built for this checkout too, and need not be built twice.
    let target = binaries::target_directory()?;
    let mut build = binaries::cargo_command();
    build.current_dir(checkout).env("CARGO_TARGET_DIR", &target);
    build.args(["build", "--bins", "--package", "xtask"]);
    for (package, _) in binaries::PROGRAMS {
        build.args(["--package", package]);
    }
    succeed(&mut build)?;
    // Its own xtask packages what it finds in the place of a release.
    let release = place.join("release");
    fs::create_dir_all(&release).context("the place of a release")?;
    let programs = binaries::PROGRAMS.iter().map(|(_, program)| *program);
    for program in programs.chain(["xtask"]) {
        let from = target.join("debug").join(program);
        fs::copy(&from, release.join(program)).with_context(|| from.display().to_string())?;
    }
    let mut xtask = Command::new(release.join("xtask"));
    xtask.args(["package", "--version", "1"]);
    xtask.env(binaries::BUILT_VARIABLE, "1");
    succeed(xtask.current_dir(checkout))?;
    let packages = fs::read_dir(place.join("package")).context("no package was made")?;
    let mut packages = packages.filter_map(|entry| Some(entry.ok()?.path()));
    packages
        .find(|path| path.extension().is_some_and(|it| it == "deb"))
        .context("no package was made")
}
