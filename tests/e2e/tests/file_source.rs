//! Manifest files as a source of pods: good and bad ones, and what can happen to
//! them and to their directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bulkhead_api::v1::Event;
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::hanging::Hanging;
use e2e::sources::{WHILE, identity, manifest, told, with_url};
use serde_json::json;
use test_support::images::BUSYBOX;
use test_support::wait::holds_for;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, ManifestServer, PrivateContainerd,
    wait_for,
};
use topology::{Identities, Process};

#[test]
fn a_good_version_runs_on_when_its_file_turns_bad() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let names = ["syntax", "field", "unreadable"];
    for name in names {
        ground.apply(name, ground.app(name, &[]))?;
    }
    let mut before = BTreeMap::new();
    for name in names {
        before.insert(name, identity(&ground.ready(name)?)?);
    }
    ground
        .bulkhead
        .write_manifest("syntax.json", "{\"apiVersion\": \"v1\",")?;
    let mut spec = ground.app("field", &[]);
    spec["containers"][0]["image"] = json!("");
    ground.apply("field", spec)?;
    // Replaced at once: an absent file would be a removal.
    let link = ground.manifest(".unreadable");
    symlink("/dev/null", &link)?;
    fs::rename(link, ground.manifest("unreadable.json"))?;
    refused(&ground, "syntax.json", "", "not valid JSON")?;
    refused(&ground, "field.json", "spec.containers[0].image", "")?;
    refused(&ground, "unreadable.json", "", "leaves the directory")?;
    let unchanged = |ground: &Ground, names: &[&str]| -> Result<()> {
        for name in names {
            let found = identity(&ground.pod(name)?)?;
            ensure!(
                found == before[name],
                "{name}: {found:?}, was {:?}",
                before[name]
            );
            ensure!(ground.noted(name, "started")? == 1, "{name} started again");
            ensure!(
                ground.noted(name, "SIGTERM")? == 0,
                "{name} was asked to end"
            );
        }
        Ok(())
    };
    unchanged(&ground, &names)?;

    // Over the death of whoever remembers the good version, and of all others, whose pods run
    // on though nobody knows their specs.
    let old = ground.bulkhead.kill(Process::ConfigSourcer)?;
    wait_for("config-sourcer to be back", TIMEOUT, || {
        let pids = ground.bulkhead.pids().map_err(|error| error.to_string())?;
        let new = pids.get(&Process::ConfigSourcer).copied();
        new.filter(|new| *new != old).ok_or(format!("{new:?}"))
    })?;
    ground.bulkhead.wait_until_ready()?;
    holds_for(WHILE, || unchanged(&ground, &names))?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    // What is seen to go goes all the same.
    ground.apply("short", ground.app("short", &[]))?;
    ground.ready("short")?;
    ground.take_away("short")?;
    ground.gone("short")?;
    holds_for(WHILE, || -> Result<()> {
        for name in names {
            ensure!(ground.running(name)? == 1, "{name} does not run");
            ensure!(ground.noted(name, "started")? == 1, "{name} started again");
            ensure!(
                ground.noted(name, "SIGTERM")? == 0,
                "{name} was asked to end"
            );
        }
        Ok(())
    })?;

    // Mended as it was: nothing happens. Mended with a change: an update. Removed:
    // gone.
    ground.apply("syntax", ground.app("syntax", &[]))?;
    ground.apply("field", ground.app("changed", &[]))?;
    ground.take_away("unreadable")?;
    ground.note("changed", "started", 1)?;
    ground.gone("unreadable")?;
    assert_eq!(ground.noted("field", "SIGTERM")?, 1);
    unchanged(&ground, &["syntax"])
}

#[test]
fn a_file_for_root_alone_is_named_with_the_remedy() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    ground.apply("web", ground.app("web", &[]))?;
    ground.ready("web")?;
    // As kubeadm writes them: one that was read before, and a new one.
    let for_root = fs::Permissions::from_mode(0o600);
    fs::set_permissions(ground.manifest("web.json"), for_root.clone())?;
    let hidden = ground.manifest(".new");
    fs::write(&hidden, manifest("new", ground.app("new", &[])).to_string())?;
    fs::set_permissions(&hidden, for_root)?;
    fs::rename(&hidden, ground.manifest("new.json"))?;
    let user = Identities::from_base(ground.bulkhead.uid_base())?.uid(Process::ConfigSourcer);
    let remedy = format!("chgrp {user} and chmod g+r this file");
    for file in ["web.json", "new.json"] {
        refused(&ground, file, "", &remedy)?;
    }
    let status = ground.printed(&["status"])?;
    for words in ["2 problems", "Permission denied"] {
        assert!(status.contains(words), "{words}: {status}");
    }
    assert_eq!(ground.noted("web", "SIGTERM")?, 0);
    assert_eq!(ground.noted("web", "started")?, 1);

    chown(ground.manifest("new.json"), None, Some(user))?;
    fs::set_permissions(
        ground.manifest("new.json"),
        fs::Permissions::from_mode(0o640),
    )?;
    ground.ready("new")?;
    Ok(())
}

#[test]
fn a_directory_that_is_gone_is_not_an_empty_one() -> Result<()> {
    let ground = Ground::start(json!({"fileCheckFrequency": "1s"}))?;
    let directory = ground.bulkhead.paths().manifests.clone();
    let aside = directory.with_extension("aside");
    ground.apply("web", ground.app("web", &[]))?;
    let before = identity(&ground.ready("web")?)?;

    fs::rename(&directory, &aside)?;
    told(&ground, &directory.display().to_string(), |event| {
        event.message.contains("is not there")
    })?;
    holds_for(WHILE, || -> Result<()> {
        ensure!(identity(&ground.pod("web")?)? == before, "web changed");
        Ok(())
    })?;
    fs::rename(&aside, &directory)?;
    ground.apply("later", ground.app("later", &[]))?;
    ground.ready("later")?;
    assert_eq!(identity(&ground.pod("web")?)?, before);
    assert_eq!(ground.noted("web", "started")?, 1);
    // An empty one is empty.
    ground.take_away("web")?;
    ground.take_away("later")?;
    ground.gone("web")?;
    ground.gone("later")
}

/// What config-sourcer may see is where the link led when it was started.
#[test]
fn a_link_that_leads_elsewhere_takes_no_pod_away() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let own = containerd.node().directory_of(1);
    // It may look above the directories of its configuration, so far from these.
    let elsewhere = containerd.node().directory_of(2);
    for (directory, pod) in [(&own, "web"), (&elsewhere, "later")] {
        fs::create_dir_all(directory)?;
        let container = json!({"name": "app", "image": BUSYBOX, "command": ["sleep", "1000000"]});
        let text = manifest(pod, json!({ "containers": [container] })).to_string();
        fs::write(directory.join("pods.json"), text)?;
    }
    let path = own.join("link");
    symlink(own.join("pods.json"), &path)?;
    let configuration = json!({"staticPodPath": path, "fileCheckFrequency": "1s"});
    let options = BulkheadOptions {
        instance: 1,
        kubelet_configuration: configuration.as_object().cloned().unwrap_or_default(),
        ..BulkheadOptions::default()
    };
    let bulkhead = BulkheadInstance::start(&containerd, &options)?;
    let ground = Ground {
        bulkhead,
        containerd,
    };
    let before = identity(&ground.ready("web")?)?;

    symlink(elsewhere.join("pods.json"), own.join("next"))?;
    fs::rename(own.join("next"), &path)?;
    told(&ground, &path.display().to_string(), |event| {
        event.message.contains("bulkhead reload")
    })?;
    holds_for(WHILE, || -> Result<()> {
        ensure!(identity(&ground.pod("web")?)? == before, "web changed");
        Ok(())
    })?;
    ground.printed(&["reload"])?;
    ground.printed(&["restart", Process::ConfigSourcer.name()])?;
    ground.ready("later")?;
    ground.gone("web")
}

#[test]
fn files_are_read_when_they_are_written_however_that_is_done() -> Result<()> {
    // So seldom that only being told explains a prompt start.
    let ground = Ground::start(json!({"fileCheckFrequency": "10m"}))?;
    let text = |name: &str| manifest(name, ground.app(name, &[])).to_string();
    let place = |name: &str| ground.manifest(&format!("{name}.json"));
    fs::write(place("written"), text("written"))?;
    // As some editors do it, and as kubectl and configuration management do.
    fs::write(ground.manifest(".renamed.tmp"), text("renamed"))?;
    fs::rename(ground.manifest(".renamed.tmp"), place("renamed"))?;
    fs::hard_link(
        {
            let outside = ground.bulkhead.paths().shared.join("linked");
            fs::write(&outside, text("linked"))?;
            outside
        },
        place("linked"),
    )?;
    symlink("written.json", ground.manifest("alias.json"))?;
    fs::remove_file(ground.manifest("alias.json"))?;
    // In pieces, by one who holds the file open.
    let whole = text("pieces");
    let (head, tail) = whole.split_at(whole.len() / 2);
    let mut file = fs::File::create(place("pieces"))?;
    std::io::Write::write_all(&mut file, head.as_bytes())?;
    std::io::Write::write_all(&mut file, tail.as_bytes())?;
    drop(file);
    for name in ["written", "renamed", "linked", "pieces"] {
        ground.ready(name)?;
        // Ready as soon as it runs, which may be before it has noted anything.
        ground.note(name, "started", 1)?;
        assert_eq!(ground.noted(name, "started")?, 1, "{name}");
    }
    fs::rename(place("written"), ground.manifest(".written.off"))?;
    ground.gone("written")?;
    fs::remove_file(place("renamed"))?;
    ground.gone("renamed")
}

#[test]
fn a_manifest_directory_that_hangs_takes_nothing_else_away() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let empty = "{\"apiVersion\": \"v1\", \"kind\": \"PodList\"}";
    let server = ManifestServer::start(containerd.node(), 200, empty)?;
    let mut options = with_url(&server);
    let often = json!("1s");
    options
        .kubelet_configuration
        .insert("fileCheckFrequency".to_owned(), often);
    let bulkhead = BulkheadInstance::start(&containerd, &options)?;
    let mut ground = Ground {
        bulkhead,
        containerd,
    };
    ground.apply("file", ground.app("file", &[]))?;
    ground.ready("file")?;

    let directory = ground.bulkhead.paths().manifests.clone();
    let hanging = Hanging::over(ground.containerd.node(), &directory)?;
    let told_as_slow = |ground: &Ground| {
        told(ground, &directory.display().to_string(), |event| {
            event.message.contains("more than 5 s")
        })
    };
    told_as_slow(&ground)?;
    let status = ground.printed(&["status"])?;
    assert!(
        status.contains("config-sourcer: file: 1 pods, problem:"),
        "{status}"
    );
    server.answer(200, &manifest("web", ground.app("web", &[])).to_string());
    ground.ready("web")?;
    nothing_restarts(&ground)?;

    // In a new run of all parts, from the start: not ready is not empty.
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    server.answer(
        200,
        &manifest("web", ground.app("changed", &[])).to_string(),
    );
    ground.note("changed", "started", 1)?;
    told_as_slow(&ground)?;
    assert_eq!(ground.noted("file", "started")?, 1);
    assert_eq!(ground.noted("file", "SIGTERM")?, 0);

    drop(hanging);
    ground.apply("later", ground.app("later", &[]))?;
    ground.ready("later")?;
    assert_eq!(ground.noted("file", "started")?, 1);
    ground.take_away("file")?;
    ground.gone("file")
}

/// For longer than the supervisor waits for a sign of life.
fn nothing_restarts(ground: &Ground) -> Result<()> {
    holds_for(Duration::from_secs(7), || -> Result<()> {
        let processes = ground.bulkhead.processes()?;
        let restarts: u64 = processes.iter().map(|each| each.restarts_total).sum();
        ensure!(restarts == 0, "{processes:?}");
        Ok(())
    })?;
    Ok(())
}

/// Waits for the event that says that a file is refused, with the field's path
/// and these words.
fn refused(ground: &Ground, file: &str, field: &str, words: &str) -> Result<()> {
    let path = ground.manifest(file).display().to_string();
    let is_it = |event: &Event| {
        event.reason == "FailedManifest"
            && event.message.contains(words)
            && event.message.starts_with(field)
            && !event.message.is_empty()
    };
    told(ground, &path, is_it)
        .with_context(|| format!("{file} is not refused"))
        .map(drop)
}
