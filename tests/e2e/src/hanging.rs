//! A file system that hangs.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use test_support::TestNode;

/// A file system that never answers, over a directory, until it is dropped.
#[derive(Debug)]
pub struct Hanging {
    directory: PathBuf,
    node: Arc<TestNode>,
    /// Of the server that does not serve.
    server: Option<fs::File>,
}

impl Hanging {
    /// Mounts it in the node's mount namespace.
    ///
    /// # Errors
    /// When the kernel has no FUSE, for example.
    pub fn over(node: &Arc<TestNode>, directory: &Path) -> Result<Self> {
        let server = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")?;
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            server.as_raw_fd()
        );
        node.run(|| {
            mount(
                Some("hanging"),
                directory,
                Some("fuse"),
                MsFlags::empty(),
                Some(&*options),
            )
        })?
        .context("cannot mount a FUSE file system")?;
        Ok(Self {
            directory: directory.to_owned(),
            node: Arc::clone(node),
            server: Some(server),
        })
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // Whoever waits for it gets an error.
        drop(self.server.take());
        let directory = &self.directory;
        // The node's end unmounts it too.
        let _ = self.node.run(|| umount2(directory, MntFlags::MNT_DETACH));
    }
}
