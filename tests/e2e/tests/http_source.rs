//! An HTTP endpoint as a source of pods: good and bad answers, and none.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::sources::{self, WHILE, identity, manifest, names, pods_of, told, with_url};
use serde_json::json;
use test_support::wait::holds_for;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, ManifestServer, PrivateContainerd,
    wait_for,
};

#[test]
fn an_http_endpoint_is_followed_and_its_errors_are_not() -> Result<()> {
    let (ground, server) = with_server(
        "{\"apiVersion\": \"v1\", \"kind\": \"PodList\", \"items\": []}",
        with_url,
    )?;
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

    errors_change_nothing(&ground, &server, &[("one", one), ("two", two)])?;
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

/// Answers with all kinds of errors; each is told, and the pods are still those with
/// these identities.
fn errors_change_nothing(
    ground: &Ground,
    server: &ManifestServer,
    before: &[(&str, (String, String))],
) -> Result<()> {
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
        for (name, identity) in before {
            let now = sources::identity(&ground.pod(name)?)?;
            assert_eq!(now, *identity, "{name}: {status} {shown}");
        }
        complaint(ground, server, words).with_context(|| format!("{status} {shown}"))?;
    }
    Ok(())
}

#[test]
fn an_endpoint_that_does_not_answer_holds_up_no_file() -> Result<()> {
    let (mut ground, server) = with_server("", with_name)?;
    server.answer(200, &manifest("web", ground.app("web", &[])).to_string());
    let before = identity(&ground.ready("web")?)?;
    ground.apply("file", ground.app("file", &[]))?;
    ground.ready("file")?;
    server.answer(503, "");
    // A new run that never hears from the endpoint: its pods are not unwanted.
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

    // Trusted no more, and in a new run: not asked, and its pod runs on.
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

/// Waits for an event about the endpoint with these words.
fn complaint(ground: &Ground, server: &ManifestServer, words: &str) -> Result<()> {
    told(ground, &server.url(), |event| event.message.contains(words)).map(drop)
}

/// A node whose second source is a server that answers with this first.
fn with_server(
    answer: &str,
    options: impl FnOnce(&ManifestServer) -> BulkheadOptions,
) -> Result<(Ground, ManifestServer)> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let server = ManifestServer::start(containerd.node(), 200, answer)?;
    let bulkhead = BulkheadInstance::start(&containerd, &options(&server))?;
    let ground = Ground {
        bulkhead,
        containerd,
    };
    Ok((ground, server))
}

/// By the name of its host, which config-sourcer looks up in its confinement.
fn with_name(server: &ManifestServer) -> BulkheadOptions {
    let mut options = with_url(server);
    let url = server.url().replace("127.0.0.1", "localhost");
    let configuration = &mut options.kubelet_configuration;
    configuration.insert("staticPodURL".to_owned(), json!(url));
    options
}
