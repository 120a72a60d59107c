//! `cargo xtask`: builds `xtask` and becomes it. Cargo gives dependencies the features that all
//! packages of a build ask for; with the whole workspace named, `xtask` is made of what its
//! tests are made of, and nothing is compiled twice.

use std::env;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

fn main() -> io::Result<ExitCode> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let build = ["build", "--workspace", "--bin", "xtask"];
    let built = Command::new(cargo)
        .args(build)
        .args(["--manifest-path", manifest])
        .status()?;
    if !built.success() {
        return Ok(ExitCode::FAILURE);
    }
    let own = env::current_exe()?;
    let mut xtask = Command::new(own.with_file_name("xtask"));
    Err(xtask.args(env::args_os().skip(1)).exec())
}
