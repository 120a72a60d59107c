//! A process that fills the disk with its state is ended, and what it wrote removed; a disk
//! that has quotas stops it before. Here
//! the test writes in its place.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use confine::UserQuota;
use e2e::Ground;
use e2e::cast::web;
use e2e::ground::TIMEOUT;
use flate2::read::GzDecoder;
use nix::fcntl::{FallocateFlags, fallocate};
use serde_json::{Value, json};
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, not_tried, wait_for,
};
use topology::{Process, row};

#[test]
fn who_fills_the_disk_with_state_is_ended_and_loses_only_what_is_not_its_own() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let instance = &ground.bulkhead;
    let before = instance.pids()?;
    ground.apply("web", web(&ground, "web"))?;
    ground.ready("web")?;
    let own = state_of(instance, Process::SyncLoop).join("admission.json");
    wait_for("the state of sync-loop", TIMEOUT, || {
        let exists = instance.node().run(|| own.exists());
        let exists = exists.map_err(|error| error.to_string())?;
        exists.then_some(()).ok_or("it is not there".to_owned())
    })?;
    let junk = fill(instance, Process::SyncLoop)?;
    let of_pool = fill(instance, Process::PodWorkerPool)?;
    wait_for("the end of sync-loop", TIMEOUT, || {
        let row = shown(instance, Process::SyncLoop)?;
        let reason = row["lastEnding"]["reason"].to_string();
        let is_ended = reason.contains("kept too much in its state directory");
        is_ended.then_some(()).ok_or(row.to_string())
    })?;
    wait_for("its directory to be cleared", TIMEOUT, || {
        let left = instance.node().run(|| (junk.exists(), own.exists()));
        match left.map_err(|error| error.to_string())? {
            (false, true) => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })?;
    // Being root, the pool is only told of.
    wait_for("only the pool to be degraded", TIMEOUT, || {
        let status = instance.command_line_json(&["status"]);
        let status = status.map_err(|error| format!("{error:#}"))?;
        let told = status["degradations"].to_string();
        let is_so = told.contains("pod-worker-pool keeps ") && !told.contains("sync-loop keeps ");
        (is_so && status["ready"] == true)
            .then_some(())
            .ok_or(status.to_string())
    })?;
    assert!(instance.node().run(|| of_pool.exists())?);
    let mut after = instance.pids()?;
    assert_ne!(after[&Process::SyncLoop], before[&Process::SyncLoop]);
    after.insert(Process::SyncLoop, before[&Process::SyncLoop]);
    assert_eq!(after, before, "nobody else was restarted");
    each_keeps_what_its_row_names(instance)
}

/// A disk has them where the kernel can: Debian's can, and a guest of `cargo xtask vm-test`
/// has one of those.
#[test]
fn who_fills_a_disk_that_has_quotas_is_stopped_by_its_own() -> Result<()> {
    let Some((_containerd, mut instance)) = on_a_disk_with_quotas()? else {
        return Ok(());
    };
    instance.start_again()?;
    let quota_of = |instance: &BulkheadInstance, process| -> Result<Option<String>> {
        let row = shown(instance, process).map_err(anyhow::Error::msg)?;
        let confinement = row["confinement"].as_str().context("no confinement")?;
        let quota = confinement
            .split(", ")
            .find_map(|it| it.strip_prefix("quota "));
        Ok(quota.map(str::to_owned))
    };
    for process in Process::ON_EVERY_NODE {
        let mebibytes = (row(process).state_max_bytes() >> 20) + 4;
        let expected = (!row(process).root).then(|| format!("{mebibytes} MiB"));
        assert_eq!(quota_of(&instance, process)?, expected, "{process}");
    }
    // Whatever name it has, and in no second more.
    let state = state_of(&instance, Process::SyncLoop);
    let (uid, most) = (
        owner(&instance, &state)?,
        row(Process::SyncLoop).state_max_bytes(),
    );
    let written = instance.node().run(|| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid.to_string(), "--clear-groups", "--"]);
        command.args(["dd", "if=/dev/zero", "bs=1M", "count=400"]);
        command.arg(format!("of={}", state.join("junk").display()));
        command.output()
    })??;
    let errors = String::from_utf8_lossy(&written.stderr).into_owned();
    assert!(errors.contains("Disk quota exceeded"), "{errors}");
    let kept = instance.node().run(|| fs::metadata(state.join("junk")))?;
    if let Ok(kept) = kept {
        assert!(kept.len() <= most + (4 << 20), "{}", kept.len());
    }
    wait_for("its directory to be cleared", TIMEOUT, || {
        let left = instance.node().run(|| state.join("junk").exists());
        let left = left.map_err(|error| error.to_string())?;
        (!left).then_some(()).ok_or("junk is there".to_owned())
    })?;
    // What an administrator sets stays.
    let set = UserQuota {
        bytes: 300 << 20,
        files: 0,
    };
    instance
        .node()
        .run(|| -> Result<()> { Ok(confine::set_user_quota(&File::open(&state)?, uid, set)?) })??;
    instance.stop()?;
    instance.start_again()?;
    let quota = quota_of(&instance, Process::SyncLoop)?;
    assert_eq!(quota.as_deref(), Some("300 MiB"));
    Ok(())
}

/// Where systemd supervises the processes, what makes their directories sets the quotas.
#[test]
fn the_quotas_are_set_before_services_of_systemd_start() -> Result<()> {
    let Some((_containerd, mut instance)) = on_a_disk_with_quotas()? else {
        return Ok(());
    };
    instance.spawn_to(&["--prepare"])?;
    let ended = instance.wait_for_end()?;
    assert!(ended.success(), "{ended}: {}", instance.log_ends());
    for process in Process::ON_EVERY_NODE {
        let row = row(process);
        if row.root {
            continue;
        }
        let state = state_of(&instance, process);
        let uid = owner(&instance, &state)?;
        let open = instance.node().run(|| File::open(&state))??;
        let quota = confine::user_quota(&open, uid)?;
        assert_eq!(quota.bytes, row.state_max_bytes() + (4 << 20), "{process}");
    }
    Ok(())
}

/// Not started yet; absent where the kernel has no quotas.
fn on_a_disk_with_quotas() -> Result<Option<(PrivateContainerd, BulkheadInstance)>> {
    if !kernel_has_quotas()? {
        not_tried("quotas of state directories: this kernel was built without CONFIG_QFMT_V2");
        return Ok(None);
    }
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let options = BulkheadOptions {
        state_disk_with_quotas: true,
        ..BulkheadOptions::default()
    };
    let instance = BulkheadInstance::prepare(&containerd, &options)?;
    Ok(Some((containerd, instance)))
}

/// As far as it tells how it was built; ext4 has quotas by this option.
fn kernel_has_quotas() -> Result<bool> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let own = fs::read_to_string(format!("/boot/config-{}", release.trim()));
    let built = own.or_else(|_| {
        let mut text = String::new();
        GzDecoder::new(File::open("/proc/config.gz")?).read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    });
    Ok(built.map_or(true, |text| text.contains("\nCONFIG_QFMT_V2=")))
}

fn owner(instance: &BulkheadInstance, directory: &Path) -> Result<u32> {
    Ok(instance.node().run(|| fs::metadata(directory))??.uid())
}

fn state_of(instance: &BulkheadInstance, process: Process) -> PathBuf {
    instance.paths().state.join(process.name())
}

/// Puts a file into a state directory that is too large for it.
fn fill(instance: &BulkheadInstance, process: Process) -> Result<PathBuf> {
    let path = state_of(instance, process).join("junk");
    let bytes = i64::try_from(row(process).state_max_bytes())?;
    instance.node().run(|| -> Result<()> {
        let file = File::create(&path)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        // As if it had written it.
        let owner = fs::metadata(path.parent().context("no directory")?)?;
        Ok(chown(&path, Some(owner.uid()), Some(owner.gid()))?)
    })??;
    Ok(path)
}

fn shown(instance: &BulkheadInstance, process: Process) -> Result<Value, String> {
    let status = instance.command_line_json(&["status"]);
    let status = status.map_err(|error| format!("{error:#}"))?;
    let mut rows = status["processes"].as_array().into_iter().flatten();
    let row = rows.find(|row| row["name"] == process.name());
    row.cloned().ok_or("no row".to_owned())
}

/// The names by which the supervisor knows what to leave alone are those that are used.
fn each_keeps_what_its_row_names(instance: &BulkheadInstance) -> Result<()> {
    for process in Process::ON_EVERY_NODE {
        let row = row(process);
        if row.root {
            continue;
        }
        let directory = state_of(instance, process);
        let names = instance.node().run(|| -> Result<Vec<String>> {
            let entries = fs::read_dir(&directory)?.flatten();
            Ok(entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect())
        })??;
        for name in names {
            let name = name.strip_suffix(".new").unwrap_or(&name);
            assert!(row.state_files().contains(&name), "{process} keeps {name}");
        }
    }
    Ok(())
}
