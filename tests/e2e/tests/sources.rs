//! Where pods come from: files and an HTTP endpoint, good and bad.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use serde_json::{Value, json};
use test_support::observe::container_id;
use test_support::wait::holds_for;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, ManifestServer, PrivateContainerd,
    TestNode, wait_for,
};
use topology::{Identities, Process};

/// How long something has to go well before it counts as going well: several
/// looks at a source.
const WHILE: Duration = Duration::from_secs(3);

#[test]
fn bad_manifests_are_named_and_harm_no_other() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    ground.apply("before", ground.app("before", &[]))?;
    ground.ready("before")?;
    let mut expected = BTreeMap::new();
    for (file, content, field, words) in bad_manifests(&ground) {
        fs::write(ground.manifest(file), content).with_context(|| file.to_owned())?;
        expected.insert(file, (field, words));
    }
    // What is not a file at all.
    nix::unistd::mkfifo(
        &ground.manifest("fifo.yaml"),
        Mode::from_bits_truncate(0o644),
    )?;
    expected.insert("fifo.yaml", ("", "is a FIFO and is not read"));
    let outside = ground.bulkhead.paths().shared.join("outside.json");
    fs::write(
        &outside,
        manifest("outside", ground.app("outside", &[])).to_string(),
    )?;
    symlink(&outside, ground.manifest("leaves.yaml"))?;
    expected.insert("leaves.yaml", ("", "is a link that leaves the directory"));
    symlink("/dev/zero", ground.manifest("device.yaml"))?;
    expected.insert("device.yaml", ("", "is a link that leaves the directory"));
    symlink("nowhere.yaml", ground.manifest("dangles.yaml"))?;
    expected.insert("dangles.yaml", ("", "is a link that leads nowhere"));
    // Files that are no manifests without being wrong.
    fs::create_dir(ground.manifest("directory"))?;
    fs::write(ground.manifest(".hidden.yaml"), "not a manifest")?;
    ground.apply("later", ground.app("later", &[]))?;
    ground.ready("later")?;

    for (file, (field, words)) in &expected {
        refused(&ground, file, field, words)?;
    }
    let printed = ground.printed(&["events"])?;
    for file in expected.keys() {
        let path = ground.manifest(file);
        assert!(
            printed.contains(&*path.to_string_lossy()),
            "{file} in {printed}"
        );
    }
    for kept_quiet in ["directory", ".hidden.yaml"] {
        let path = ground.manifest(kept_quiet).display().to_string();
        let events = ground.bulkhead.events()?;
        assert!(
            events.iter().all(|event| event.subject != path),
            "{kept_quiet}"
        );
    }
    assert_eq!(pods_of(&ground)?, names(&["before", "later"]));
    for name in ["before", "later"] {
        assert_eq!(ground.noted(name, "started")?, 1, "{name}");
    }
    for process in ground.bulkhead.processes()? {
        assert_eq!(process.restarts_total, 0, "{process:?}");
    }

    // A bad file that is mended runs; one that is removed is no matter.
    fs::write(
        ground.manifest("unsupported.yaml"),
        manifest("mended", ground.app("mended", &[])).to_string(),
    )?;
    ground.ready("mended")?;
    fs::remove_file(ground.manifest("fifo.yaml"))?;
    ground.apply("last", ground.app("last", &[]))?;
    ground.ready("last")?;
    Ok(())
}

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

    // Over the death of whoever remembers the good version, and of all others.
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
    holds_for(WHILE, || unchanged(&ground, &names))?;

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
fn a_file_may_hold_several_pods() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let one = |name: &str| manifest(name, ground.app(name, &[])).to_string();
    let documents = |names: &[&str]| {
        let texts = names.iter().map(|name| one(name));
        // An empty document too.
        format!("---\n---\n{}\n", texts.collect::<Vec<_>>().join("\n---\n"))
    };
    let items = |names: &[&str]| -> Vec<Value> {
        let items = names
            .iter()
            .map(|name| manifest(name, ground.app(name, &[])));
        items.collect()
    };
    let list = |kind: &str, names: &[&str]| {
        json!({"apiVersion": "v1", "kind": kind, "items": items(names)}).to_string()
    };
    let bulkhead = &ground.bulkhead;
    bulkhead.write_manifest("documents.yaml", &documents(&["a", "b", "c"]))?;
    bulkhead.write_manifest("pods.yaml", &list("PodList", &["d", "e"]))?;
    bulkhead.write_manifest("list.json", &list("List", &["f"]))?;
    for name in ["a", "b", "c", "d", "e", "f"] {
        ground.ready(name)?;
    }
    // One is left out: the others do not care for their place.
    bulkhead.write_manifest("documents.yaml", &documents(&["c", "b"]))?;
    bulkhead.write_manifest("pods.yaml", &list("PodList", &["e"]))?;
    bulkhead.write_manifest("list.json", &list("List", &[]))?;
    for name in ["a", "d", "f"] {
        ground.gone(name)?;
    }
    // One bad pod keeps its whole file as it was.
    let bad = "{apiVersion: v1, kind: Pod, metadata: {name: g}, spec: {containers: []}}";
    bulkhead.write_manifest(
        "documents.yaml",
        &format!("{}---\n{bad}\n", documents(&["b"])),
    )?;
    refused(&ground, "documents.yaml", "spec.containers", "document")?;
    assert_eq!(pods_of(&ground)?, names(&["b", "c", "e"]));
    for name in ["b", "c", "e"] {
        assert_eq!(ground.noted(name, "started")?, 1, "{name}");
        assert_eq!(ground.noted(name, "SIGTERM")?, 0, "{name}");
    }
    Ok(())
}

#[test]
fn two_files_with_one_pod_are_one_pod_and_a_complaint() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    ground.apply("twin", ground.app("first", &[]))?;
    ground.ready("twin")?;
    let second = manifest("twin", ground.app("second", &[]));
    ground
        .bulkhead
        .write_manifest("another.json", &second.to_string())?;
    let complaint = wait_for("a complaint about the second file", TIMEOUT, || {
        let events = ground
            .bulkhead
            .events()
            .map_err(|error| format!("{error:#}"))?;
        let about = |subject: &str| subject.ends_with(".json");
        let seen = format!("{events:?}");
        events
            .into_iter()
            .find(|event| about(&event.subject))
            .ok_or(seen)
    })?;
    assert!(complaint.message.contains("twin"), "{complaint:?}");
    assert_eq!(ground.noted("first", "SIGTERM")?, 0);
    assert_eq!(ground.noted("second", "started")?, 0);
    ground.take_away("twin")?;
    ground.note("second", "started", 1)?;
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
    wait_for("the directory to be missed", TIMEOUT, || {
        let events = ground
            .bulkhead
            .events()
            .map_err(|error| format!("{error:#}"))?;
        let path = directory.display().to_string();
        let missed = events
            .iter()
            .any(|event| event.subject == path && event.message.contains("gone"));
        missed.then_some(()).ok_or(format!("{events:?}"))
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
        assert_eq!(ground.noted(name, "started")?, 1, "{name}");
    }
    fs::rename(place("written"), ground.manifest(".written.off"))?;
    ground.gone("written")?;
    fs::remove_file(place("renamed"))?;
    ground.gone("renamed")
}

#[test]
fn an_http_endpoint_is_followed_and_its_errors_are_not() -> Result<()> {
    let (ground, server) =
        with_server("{\"apiVersion\": \"v1\", \"kind\": \"PodList\", \"items\": []}")?;
    ground.apply("file", ground.app("file", &[]))?;
    ground.ready("file")?;
    let list = |pods: &[(&str, &str)]| {
        let items = pods
            .iter()
            .map(|(name, journal)| manifest(name, ground.app(journal, &[])));
        json!({"apiVersion": "v1", "kind": "PodList", "items": items.collect::<Vec<_>>()})
            .to_string()
    };
    // One pod by itself, then a list.
    server.answer(200, &manifest("one", ground.app("one", &[])).to_string());
    let one = ground.ready("one")?;
    let annotations = &one["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "http");
    let head = server.last_head();
    assert!(head.starts_with("GET /pods HTTP/1.1\r\n"), "{head}");
    let asked = head.to_lowercase();
    assert!(asked.contains("\r\nx-token: secret\r\n"), "{head}");
    server.answer(200, &list(&[("one", "one"), ("two", "two")]));
    let two = identity(&ground.ready("two")?)?;
    assert_eq!(
        identity(&ground.pod("one")?)?,
        identity(&one)?,
        "one changed"
    );

    // A change of one of them.
    server.answer(200, &list(&[("one", "one-changed"), ("two", "two")]));
    ground.note("one-changed", "started", 1)?;
    let one = wait_for("the changed pod to be ready", TIMEOUT, || {
        let pod = ground.ready("one").map_err(|error| format!("{error:#}"))?;
        let found = pod["spec"]["containers"][0]["args"].to_string();
        found
            .contains("one-changed")
            .then_some(pod)
            .ok_or("the old one".to_owned())
    })?;
    let one = identity(&one)?;

    for (status, body, words) in [
        (500, "out of order", "500"),
        (404, "not found", "404"),
        (200, "{\"apiVersion\": \"v1\"", "not valid JSON"),
        (200, "", "the manifest is empty"),
        (200, "{\"apiVersion\": \"v1\", \"kind\": \"Node\"}", "Node"),
        (200, &*"x".repeat(11 << 20), "cannot read the answer"),
        (302, "", "302"),
    ] {
        let shown = &body[..body.len().min(40)];
        server.answer(status, body);
        let served = server.served();
        wait_for("three more requests", TIMEOUT, || {
            let now = server.served();
            (now >= served + 3).then_some(()).ok_or(now)
        })?;
        assert_eq!(identity(&ground.pod("one")?)?, one, "{status} {shown}");
        assert_eq!(identity(&ground.pod("two")?)?, two, "{status} {shown}");
        complaint(&ground, &server, words).with_context(|| format!("{status} {shown}"))?;
    }
    for name in ["one-changed", "two", "file"] {
        assert_eq!(ground.noted(name, "started")?, 1, "{name}");
        assert_eq!(ground.noted(name, "SIGTERM")?, 0, "{name}");
    }
    server.answer(200, &list(&[("two", "two")]));
    ground.gone("one")?;
    server.answer(200, &list(&[]));
    ground.gone("two")?;
    // The other source is another matter.
    assert_eq!(pods_of(&ground)?, names(&["file"]));
    assert_eq!(ground.noted("file", "started")?, 1);
    assert_eq!(ground.noted("file", "SIGTERM")?, 0);
    Ok(())
}

#[test]
fn an_endpoint_that_does_not_answer_holds_up_no_file() -> Result<()> {
    let (mut ground, server) = with_server("")?;
    server.answer(200, &manifest("web", ground.app("web", &[])).to_string());
    let before = identity(&ground.ready("web")?)?;
    ground.apply("file", ground.app("file", &[]))?;
    ground.ready("file")?;
    server.answer(503, "");
    // A new life that never hears from the endpoint: its pods are not unwanted.
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    ground.take_away("file")?;
    ground.note("file", "exit 0", 1)?;
    ground.apply("file", ground.app("file", &[]))?;
    ground.note("file", "started", 2)?;
    ground.apply("later", ground.app("later", &[]))?;
    ground.ready("later")?;
    holds_for(WHILE, || -> Result<()> {
        ensure!(ground.noted("web", "SIGTERM")? == 0, "web was asked to end");
        ensure!(ground.noted("web", "started")? == 1, "web started again");
        ensure!(ground.running("web")? == 1, "web does not run");
        Ok(())
    })?;
    server.answer(200, &manifest("web", ground.app("web", &[])).to_string());
    let after = identity(&ground.ready("web")?)?;
    assert_eq!(after, before);
    server.answer(200, "{\"apiVersion\": \"v1\", \"kind\": \"PodList\"}");
    ground.gone("web")
}

#[test]
fn an_https_endpoint_is_followed_if_its_certificate_is_trusted() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let server = ManifestServer::start_with_tls(containerd.node(), 200, "")?;
    let authority = server.authority().context("a server with TLS")?;
    // Whom to trust is in a file of the node's, and nothing good in it yet.
    let trusted = containerd.node().directory().join("trusted.pem");
    fs::write(&trusted, "")?;
    // Both variables count, and the tests' own environment may have either.
    let nobody = containerd.node().directory().join("no-certificates");
    fs::create_dir(&nobody)?;
    let options = BulkheadOptions {
        environment: [("SSL_CERT_FILE", &trusted), ("SSL_CERT_DIR", &nobody)]
            .map(|(name, path)| (name.to_owned(), path.clone()))
            .into(),
        ..with_url(&server)
    };
    let bulkhead = BulkheadInstance::start(&containerd, &options)?;
    let mut ground = Ground {
        bulkhead,
        containerd,
    };
    server.answer(200, &manifest("web", ground.app("web", &[])).to_string());
    ground.apply("file", ground.app("file", &[]))?;
    ground.ready("file")?;
    complaint(&ground, &server, "no certificate authority is known")?;
    assert_eq!((server.served(), pods_of(&ground)?), (0, names(&["file"])));

    fs::copy(authority, &trusted)?;
    let web = ground.ready("web")?;
    let annotations = &web["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "http");
    let head = server.last_head().to_lowercase();
    assert!(head.contains("\r\nx-token: secret\r\n"), "{head}");

    // Trusted no more, and in a new life: not asked, and its pod runs on.
    fs::write(&trusted, "")?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    complaint(&ground, &server, "no certificate authority is known")?;
    let served = server.served();
    holds_for(WHILE, || -> Result<()> {
        ensure!(server.served() == served, "it was asked");
        ensure!(ground.noted("web", "SIGTERM")? == 0, "web was asked to end");
        ensure!(ground.noted("web", "started")? == 1, "web started again");
        Ok(())
    })?;
    fs::copy(authority, &trusted)?;
    server.answer(200, "{\"apiVersion\": \"v1\", \"kind\": \"PodList\"}");
    ground.gone("web")
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
    let told = |ground: &Ground| {
        let path = directory.display().to_string();
        wait_for("the directory to be told as slow", TIMEOUT, || {
            let events = ground
                .bulkhead
                .events()
                .map_err(|error| format!("{error:#}"))?;
            let told = events
                .iter()
                .any(|event| event.subject == path && event.message.contains("more than 5 s"));
            told.then_some(()).ok_or(format!("{events:?}"))
        })
    };
    told(&ground)?;
    let status = ground.printed(&["status"])?;
    assert!(
        status.contains("config-sourcer: file: 1 pods, problem:"),
        "{status}"
    );
    server.answer(200, &manifest("web", ground.app("web", &[])).to_string());
    ground.ready("web")?;
    // Longer than the supervisor waits for a sign of life.
    holds_for(Duration::from_secs(7), || -> Result<()> {
        let processes = ground.bulkhead.processes()?;
        let restarts: u64 = processes.iter().map(|each| each.restarts_total).sum();
        ensure!(restarts == 0, "{processes:?}");
        Ok(())
    })?;

    // In a new life of all parts, from the start: not ready is not empty.
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    server.answer(
        200,
        &manifest("web", ground.app("changed", &[])).to_string(),
    );
    ground.note("changed", "started", 1)?;
    told(&ground)?;
    assert_eq!(ground.noted("file", "started")?, 1);
    assert_eq!(ground.noted("file", "SIGTERM")?, 0);

    drop(hanging);
    ground.apply("later", ground.app("later", &[]))?;
    ground.ready("later")?;
    assert_eq!(ground.noted("file", "started")?, 1);
    ground.take_away("file")?;
    ground.gone("file")
}

/// A file system that never answers, over a directory, until it is dropped.
struct Hanging {
    directory: PathBuf,
    node: Arc<TestNode>,
    /// Of the server that does not serve.
    server: Option<fs::File>,
}

impl Hanging {
    fn over(node: &Arc<TestNode>, directory: &Path) -> Result<Self> {
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

/// File, content, and of the event about it: field and words.
fn bad_manifests(ground: &Ground) -> Vec<(&'static str, String, &'static str, &'static str)> {
    let of = |spec: Value| manifest("bad", spec).to_string();
    let with = |field: &str, value: Value| {
        let mut spec = ground.app("bad", &[]);
        spec[field] = value;
        spec
    };
    let mut duplicate = ground.app("bad", &[]);
    let twice = duplicate["containers"][0].clone();
    duplicate["containers"] = json!([twice.clone(), twice]);
    let aliases = (1..30).fold(
        "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(),
        |text, n| {
            let before = n - 1;
            let all = vec![format!("*a{before}"); 8].join(", ");
            format!("{text}a{n}: &a{n} [{all}]\n")
        },
    );
    let unsupported = with("hostUsers", json!(false));
    let bad_name = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "Not_A_Name"}, "spec": ground.app("bad", &[]),
    });
    vec![
        (
            "syntax.yaml",
            "kind: Pod\n  metadata: [\n".to_owned(),
            "",
            "not valid YAML",
        ),
        (
            "empty-object.yaml",
            "{}".to_owned(),
            "",
            "expected a v1 Pod",
        ),
        (
            "other-kind.yaml",
            "apiVersion: apps/v1\nkind: Deployment\n".to_owned(),
            "",
            "Deployment",
        ),
        (
            "binary.yaml",
            "\u{0}\u{1}\u{2}".to_owned(),
            "",
            "not valid YAML",
        ),
        (
            "type.yaml",
            of(json!({"containers": 5})),
            "spec.containers",
            "",
        ),
        (
            "unknown.yaml",
            of(with("contaners", json!([]))),
            "spec.contaners",
            "",
        ),
        (
            "invalid.yaml",
            of(with("restartPolicy", json!("Sometimes"))),
            "spec.restartPolicy",
            "Sometimes",
        ),
        (
            "name.yaml",
            bad_name.to_string(),
            "metadata.name",
            "Not_A_Name",
        ),
        (
            "duplicate.yaml",
            of(duplicate),
            "spec.containers[1].name",
            "app",
        ),
        (
            "unsupported.yaml",
            of(unsupported),
            "spec.hostUsers",
            "not supported",
        ),
        (
            "reference.yaml",
            of(with("serviceAccountName", json!("robot"))),
            "spec.serviceAccountName",
            "",
        ),
        (
            "huge.yaml",
            format!("# {}\n", "x".repeat(11 << 20)),
            "",
            "has more than",
        ),
        ("aliases.yaml", aliases, "", "not valid YAML"),
        ("deep.yaml", "[".repeat(100_000), "", "not valid YAML"),
        ("deep.json", "{\"a\":".repeat(100_000), "", "not valid JSON"),
    ]
}

/// Waits for the event that says that a file is refused, with the field's path
/// and these words.
fn refused(ground: &Ground, file: &str, field: &str, words: &str) -> Result<()> {
    let path = ground.manifest(file).display().to_string();
    wait_for(&format!("{file} to be refused"), TIMEOUT, || {
        let events = ground
            .bulkhead
            .events()
            .map_err(|error| format!("{error:#}"))?;
        let mut of_file = events.iter().filter(|event| event.subject == path);
        let found = of_file.clone().any(|event| {
            event.reason == "FailedManifest"
                && event.message.contains(words)
                && event.message.starts_with(field)
                && !event.message.is_empty()
        });
        let seen = of_file
            .next()
            .map_or("nothing".to_owned(), |event| format!("{event:?}"));
        found.then_some(()).ok_or(seen)
    })?;
    Ok(())
}

/// Waits for an event about the endpoint with these words.
fn complaint(ground: &Ground, server: &ManifestServer, words: &str) -> Result<()> {
    wait_for("an event about the endpoint", TIMEOUT, || {
        let events = ground
            .bulkhead
            .events()
            .map_err(|error| format!("{error:#}"))?;
        let of_url: Vec<_> = events
            .into_iter()
            .filter(|event| event.subject == server.url())
            .map(|event| event.message)
            .collect();
        let found = of_url.iter().any(|message| message.contains(words));
        found.then_some(()).ok_or(format!("{of_url:?}"))
    })?;
    Ok(())
}

/// A node whose second source is a server that answers with this first.
fn with_server(answer: &str) -> Result<(Ground, ManifestServer)> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let server = ManifestServer::start(containerd.node(), 200, answer)?;
    let bulkhead = BulkheadInstance::start(&containerd, &with_url(&server))?;
    let ground = Ground {
        bulkhead,
        containerd,
    };
    Ok((ground, server))
}

/// The second source is this server.
fn with_url(server: &ManifestServer) -> BulkheadOptions {
    let configuration = json!({
        "staticPodURL": server.url(),
        "staticPodURLHeader": {"X-Token": ["secret"]},
        "httpCheckFrequency": "500ms",
    });
    BulkheadOptions {
        kubelet_configuration: configuration.as_object().cloned().unwrap_or_default(),
        ..BulkheadOptions::default()
    }
}

fn manifest(name: &str, mut spec: Value) -> Value {
    spec["terminationGracePeriodSeconds"] = json!(2);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// What tells whether a pod and its container are still the same ones.
fn identity(pod: &Value) -> Result<(String, String)> {
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let container = container_id(pod, "app").with_context(|| format!("no container in {pod}"))?;
    Ok((uid.to_owned(), container.to_owned()))
}

/// The pods of the node, by the names in their manifests.
fn pods_of(ground: &Ground) -> Result<BTreeSet<String>> {
    let suffix = format!("-{}", ground.bulkhead.node_name());
    let pods = ground.bulkhead.pods()?.into_iter();
    let name = |pod: Value| {
        let name = pod["metadata"]["name"].as_str()?.to_owned();
        Some(name.strip_suffix(&suffix).unwrap_or(&name).to_owned())
    };
    Ok(pods.filter_map(name).collect())
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}
