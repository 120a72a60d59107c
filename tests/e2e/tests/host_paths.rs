//! hostPath volumes that somebody tries to lead elsewhere, and what they leave of the
//! node when pods and pod-worker-pool end: everything.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};
use test_support::BulkheadOptions;
use test_support::images::BUSYBOX;
use test_support::wait::pause_for;
use test_support::{wait_for, wait_until};
use topology::Process;

/// How long the links are swapped at least.
const ATTACK: Duration = Duration::from_secs(10);

/// A pod that notes what it finds in its volume, and waits.
fn reader(path: &Path, journal: &Path, mount: &Value) -> Value {
    let mut mount = mount.clone();
    (mount["name"], mount["mountPath"]) = (json!("v"), json!("/v"));
    let script = "cat /v/which >> /journal/seen; trap 'exit 0' TERM; \
                  while true; do sleep 1 & wait; done";
    json!({
        "containers": [{
            "name": "c", "image": BUSYBOX, "command": ["sh", "-c", script],
            "volumeMounts": [mount, { "name": "journal", "mountPath": "/journal" }],
        }],
        "volumes": [
            { "name": "v", "hostPath": { "path": path } },
            { "name": "journal", "hostPath": { "path": journal, "type": "Directory" } },
        ],
    })
}

/// Makes a directory with a file `which` that says this.
fn make(path: &Path, which: &str) -> Result<()> {
    fs::create_dir_all(path)?;
    Ok(fs::write(path.join("which"), format!("{which}\n"))?)
}

#[test]
fn a_link_that_is_swapped_while_pods_start_leads_none_of_them_out_of_the_grant() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let shared = ground.bulkhead.paths().shared.clone();
    let secret = PathBuf::from("/var/lib/secret");
    let (swapped, link, journal) = (
        shared.join("swapped"),
        shared.join("link"),
        shared.join("journal"),
    );
    make(&swapped.join("below"), "granted")?;
    ground
        .node()
        .run(|| make(&secret.join("below"), "secret"))??;
    symlink(&secret, &link)?;
    fs::create_dir(&journal)?;
    let names: Vec<String> = (0..8).map(|number| format!("reader-{number}")).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let attacker = scope.spawn(|| -> nix::Result<u64> {
            let exchange = RenameFlags::RENAME_EXCHANGE;
            let mut swaps = 0;
            // It ends with the directory in its place again.
            while swaps % 2 == 1 || !stop.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &swapped, AT_FDCWD, &link, exchange)?;
                swaps += 1;
                thread::yield_now();
            }
            Ok(swaps)
        });
        let began = Instant::now();
        let applied = names.iter().try_for_each(|name| {
            ground.apply(name, reader(&swapped.join("below"), &journal, &json!({})))
        });
        // Pods that meet the link wait for their next try and meet it again.
        pause_for(ATTACK.saturating_sub(began.elapsed()));
        stop.store(true, Ordering::Relaxed);
        let swaps = attacker.join();
        applied?;
        let swaps = swaps.map_err(|_| anyhow::anyhow!("the attacker panicked"))??;
        anyhow::ensure!(swaps > 1000, "only {swaps} swaps");
        Ok(())
    })?;
    for name in &names {
        ground.ready(name)?;
        assert_eq!(ground.exec(name, "c", &["cat", "/v/which"])?, "granted\n");
    }
    let seen = fs::read_to_string(journal.join("seen"))?;
    assert!(seen.lines().all(|line| line == "granted"), "{seen}");
    let events = ground.bulkhead.events()?;
    let refusals = events
        .iter()
        .filter(|event| event.message.contains("swapped is a link"));
    assert!(refusals.count() > 0, "no pod ever met the link");
    Ok(())
}

#[test]
fn a_link_below_a_grant_is_refused_until_the_grant_follows_links() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let shared = ground.bulkhead.paths().shared.clone();
    let (elsewhere, link, journal) = (
        PathBuf::from("/var/lib/elsewhere"),
        shared.join("link"),
        shared.join("journal"),
    );
    ground.node().run(|| make(&elsewhere, "elsewhere"))??;
    symlink(&elsewhere, &link)?;
    fs::create_dir(&journal)?;
    ground.apply("reader", reader(&link, &journal, &json!({})))?;
    ground.event("reader", "FailedMount", "link is a link")?;
    assert!(!journal.join("seen").exists());
    let log = ground.bulkhead.log(Process::PodWorkerPool);
    let is_audited = |line: &&str| {
        let words = ["node policy", "reader", "refused", "link is a link"];
        words.iter().all(|word| line.contains(word))
    };
    // Once, not at each try.
    assert_eq!(log.lines().filter(is_audited).count(), 1, "{log}");
    ground.bulkhead.write_policy(&format!(
        "[[grants]]\npods = [\"default/reader\"]\n\
         hostPaths = [{{ prefix = {shared:?}, followLinks = true }}]\n"
    ))?;
    ground
        .ready("reader")
        .with_context(|| format!("{:?}", ground.events_of("reader")))?;
    assert_eq!(
        ground.exec("reader", "c", &["cat", "/v/which"])?,
        "elsewhere\n"
    );
    // What is protected is not given by a link that may be followed.
    let socket = ground.containerd.endpoint().replace("unix://", "");
    let socket = Path::new(&socket);
    symlink(socket, shared.join("socket"))?;
    ground.apply(
        "reader",
        reader(&shared.join("socket"), &journal, &json!({})),
    )?;
    ground.event("reader", "FailedMount", "the container runtime's socket")?;
    Ok(())
}

#[test]
fn pods_with_all_of_the_node_see_its_mounts_and_leave_it_as_it_is() -> Result<()> {
    let policy = "[[grants]]\npods = [\"*/*\"]\n\
                  hostPaths = [{ prefix = \"/\", includesProtected = true }]\n";
    let ground = Ground::start_with(&BulkheadOptions {
        policy: Some(policy.to_owned()),
        ..BulkheadOptions::default()
    })?;
    let shared = ground.bulkhead.paths().shared.clone();
    let journal = shared.join("journal");
    make(&journal, "journal")?;
    let (early, late) = (shared.join("early"), shared.join("late"));
    for disk in [&early, &late] {
        fs::create_dir(disk)?;
    }
    let put = |disk: &PathBuf| -> Result<()> {
        ground.node().mount_small_disk(disk, 1 << 20)?;
        ground.node().run(|| make(disk, "disk"))?
    };
    put(&early)?;
    let mount = json!({ "readOnly": true, "mountPropagation": "HostToContainer" });
    let names = ["one", "two", "three", "four"];
    for name in names {
        ground.apply(name, reader(Path::new("/"), &journal, &mount))?;
    }
    for name in names {
        ground.ready(name)?;
    }
    put(&late)?;
    for name in names {
        for disk in [&early, &late] {
            let which = format!("/v{}/which", disk.display());
            assert_eq!(ground.exec(name, "c", &["cat", &which])?, "disk\n");
        }
        let write = format!("/v{}/new", shared.display());
        let refusal = ground.exec(name, "c", &["touch", &write]);
        let refusal = format!("{:#}", refusal.expect_err("written"));
        assert!(refusal.contains("Read-only file system"), "{refusal}");
    }
    let root = ground.bulkhead.paths().root.join("pods");
    let of_the_node = mounts_of(&ground, Path::new("/"))?;
    let of_pods = mounts_of(&ground, &root)?;
    let own = of_the_node - of_pods;
    // Four times the node, and what each pod has of the others and of itself.
    let most = names.len() * (own + 4 * names.len());
    assert!(of_pods <= most, "{of_pods} for pods, {own} of the node");
    for name in names {
        ground.remove(name)?;
    }
    wait_until("the pods' directories to go", TIMEOUT, || {
        fs::read_dir(&root).is_ok_and(|mut pods| pods.next().is_none())
    })?;
    assert_eq!(mounts_of(&ground, &root)?, 0);
    for disk in [&early, &late] {
        let which = ground
            .node()
            .run(|| fs::read_to_string(disk.join("which")))??;
        assert_eq!(which, "disk\n");
    }
    Ok(())
}

#[test]
fn the_nodes_files_stay_when_the_pool_is_killed_while_pods_come_and_go() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let shared = ground.bulkhead.paths().shared.clone();
    let (data, journal) = (shared.join("data"), shared.join("journal"));
    make(&data, "data")?;
    fs::create_dir_all(data.join("disk"))?;
    fs::create_dir(&journal)?;
    ground
        .node()
        .mount_small_disk(&data.join("disk"), 1 << 20)?;
    let disk = data.join("disk");
    ground.node().run(|| make(&disk, "disk"))??;
    let root = ground.bulkhead.paths().root.join("pods");
    for round in 0..6_u32 {
        let name = format!("pod-{round}");
        ground.apply(&name, reader(&data, &journal, &json!({})))?;
        // Each time at another moment of the start, and of the end.
        pause_for(Duration::from_millis(120) * round);
        kill_the_pool(&mut ground)?;
        ground.ready(&name)?;
        assert_eq!(
            ground.exec(&name, "c", &["cat", "/v/which", "/v/disk/which"])?,
            "data\ndisk\n"
        );
        ground.take_away(&name)?;
        pause_for(Duration::from_millis(120) * round);
        kill_the_pool(&mut ground)?;
        wait_until("the pod's directory to go", TIMEOUT, || {
            fs::read_dir(&root).is_ok_and(|mut pods| pods.next().is_none())
        })?;
        assert_eq!(mounts_of(&ground, &root)?, 0);
        assert_eq!(fs::read_to_string(data.join("which"))?, "data\n");
        let which = ground
            .node()
            .run(|| fs::read_to_string(disk.join("which")))??;
        assert_eq!(which, "disk\n");
    }
    Ok(())
}

/// With SIGKILL, once it runs again after the last time.
fn kill_the_pool(ground: &mut Ground) -> Result<()> {
    let killed = wait_for("the pool to run", TIMEOUT, || {
        let killed = ground.bulkhead.kill(Process::PodWorkerPool);
        killed.map_err(|error| format!("{error:#}"))
    });
    killed?;
    Ok(())
}

/// How many mounts the node has below a directory.
fn mounts_of(ground: &Ground, directory: &Path) -> Result<usize> {
    let table = ground
        .node()
        .run(|| fs::read_to_string("/proc/thread-self/mountinfo"))??;
    let points = table.lines().map(|line| line.split(' ').nth(4));
    let points: Option<Vec<&str>> = points.collect();
    let points = points.context("a line of mountinfo without mount point")?;
    let below = points
        .iter()
        .filter(|point| Path::new(point).starts_with(directory));
    Ok(below.count())
}
