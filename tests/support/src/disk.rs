//! A disk for test nodes: ext4 with a journal, as nodes have it, in a file of this machine.
//!
//! Measurements use it. What a start costs depends on the file system: ext4 without a
//! journal, which build machines have, searches long for an inode that nobody has deleted
//! within the last minutes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::slot::{self, BASE};

/// The file that holds it, until it is mounted: after that it has no name any more, so
/// that the end of the mount is the end of the disk.
const FILE: &str = "/var/tmp/bulkhead-test.disk";

/// Its size. The file is sparse: it takes what has been written.
const BYTES: u64 = 16 << 30;

static MOUNTED: AtomicBool = AtomicBool::new(false);

/// A disk that is mounted: all test nodes that are made until this is dropped are on it.
#[derive(Debug)]
pub struct Disk(());

impl Disk {
    /// Makes a disk and mounts it where test nodes are made.
    ///
    /// # Errors
    /// When test nodes are there already, or the system refuses.
    pub fn mount() -> Result<Disk> {
        slot::reap_dead_owners()?;
        // The disk of one that was killed.
        if is_mounted()? {
            run("umount", &[BASE])?;
        }
        fs::create_dir_all(BASE).context(BASE)?;
        let is_unused = fs::read_dir(BASE).context(BASE)?.next().is_none();
        ensure!(
            is_unused,
            "{BASE} is in use: measure when the tests have ended"
        );
        let file = File::create(FILE).context(FILE)?;
        file.set_len(BYTES).context(FILE)?;
        let made = run("mkfs.ext4", &["-q", "-F", FILE])
            .and_then(|()| run("mount", &["-o", "loop,noinit_itable", FILE, BASE]));
        fs::remove_file(FILE).context(FILE)?;
        made?;
        MOUNTED.store(true, Ordering::Relaxed);
        Ok(Disk(()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount();
    }
}

/// Takes the disk away, if this process has mounted one; its nodes have ended.
pub(crate) fn unmount() {
    if !MOUNTED.swap(false, Ordering::Relaxed) {
        return;
    }
    // Lazily: the locks of nodes are on it, and are open as long as this process lives.
    // What is left otherwise is removed by the next one.
    if run("umount", &["--lazy", BASE]).is_ok() {
        let _ = fs::remove_dir(BASE);
    }
}

/// Whether something is mounted where test nodes are made.
fn is_mounted() -> Result<bool> {
    let base = Path::new(BASE);
    let (Ok(own), Some(parent)) = (fs::metadata(base), base.parent()) else {
        return Ok(false);
    };
    Ok(own.dev() != fs::metadata(parent)?.dev())
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", said.trim());
    Ok(())
}
