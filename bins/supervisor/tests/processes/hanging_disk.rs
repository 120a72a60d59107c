//! A disk that hangs keeps nobody from what is elsewhere: not who looks at the state of
//! processes from ending, and not the supervisor from making the mounts of a process.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use bulkhead_api::v1::ReloadRequest;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use topology::WATCH_DIRECTORY_NAME;

use crate::node::{KUBELET_HEADER, Node, PATIENCE, all_ready, exists};

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

/// Whether a thread of it that is not its first waits for a disk.
fn hangs_beside(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let threads = threads.flatten().flatten().map(|thread| thread.path());
    let first = pid.to_string();
    let others = threads.filter(|thread| !thread.ends_with(&first));
    let mut states = others.filter_map(|thread| fs::read_to_string(thread.join("status")).ok());
    states.any(|status| status.contains("State:\tD"))
}

#[tokio::test]
async fn a_state_directory_that_hangs_does_not_keep_the_supervisor_from_ending() {
    let mut node = Node::ready().await;
    let hanging = Hanging::over(node.path("state/sync-loop"));
    let pid = u32::try_from(node.supervisor_pid().as_raw()).unwrap();
    node.until(|| hangs_beside(pid)).await;
    node.signal(Signal::SIGTERM);
    node.until(|| !exists(pid)).await;
    drop(hanging);
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.errors());
}

#[tokio::test]
async fn nor_who_watches_where_systemd_supervises() {
    let mut node = Node::ready().await;
    node.signal(Signal::SIGTERM);
    node.ended().await;
    fs::create_dir(node.path("run").join(WATCH_DIRECTORY_NAME)).unwrap();
    let hanging = Hanging::over(node.path("state/sync-loop"));
    let pid = node.start_watching();
    node.until(|| hangs_beside(pid)).await;
    node.signal(Signal::SIGTERM);
    node.until(|| !exists(pid)).await;
    drop(hanging);
    assert_eq!(node.ended().await.code(), Some(0), "{}", node.errors());
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
