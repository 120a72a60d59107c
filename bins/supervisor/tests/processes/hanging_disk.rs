//! A disk that hangs does not keep the supervisor from making the mounts of a process.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use bulkhead_api::v1::ReloadRequest;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;

use crate::node::{KUBELET_HEADER, Node, PATIENCE, all_ready};

/// A file system that never answers, over a directory, until it is dropped.
struct Hanging {
    directory: PathBuf,
    /// Of the server that does not serve.
    server: Option<File>,
}

impl Hanging {
    fn over(directory: PathBuf) -> Hanging {
        let server = File::options().read(true).write(true).open("/dev/fuse");
        let server = server.unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            server.as_raw_fd()
        );
        let (source, kind, none) = (Some("hanging"), Some("fuse"), MsFlags::empty());
        mount(source, &directory, kind, none, Some(&*options)).unwrap();
        Hanging {
            directory,
            server: Some(server),
        }
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // Whoever waits for it gets an error.
        drop(self.server.take());
        umount2(&self.directory, MntFlags::MNT_DETACH).unwrap();
    }
}

#[tokio::test]
async fn manifests_somewhere_on_a_disk_that_hangs_keep_the_supervisor_from_nothing() {
    let mut node = Node::ready().await;
    let manifests = node.path("etc/disk/cluster/manifests");
    fs::create_dir_all(&manifests).unwrap();
    let hanging = Hanging::over(node.path("etc/disk"));
    let config = format!("{KUBELET_HEADER}staticPodPath: {}\n", manifests.display());
    fs::write(node.path("config.yaml"), config).unwrap();
    let mut client = node.client();
    let reload = client.reload(ReloadRequest {});
    let reloaded = tokio::time::timeout(PATIENCE, reload).await;
    let reloaded = reloaded.expect("the reload hangs").unwrap().into_inner();
    assert!(reloaded.restarted.contains(&"config-sourcer".to_owned()));
    node.wait_for(all_ready).await;

    node.signal(Signal::SIGTERM);
    node.ended().await;
    node.start().await;
    node.wait_for(all_ready).await;
    drop(hanging);
}
