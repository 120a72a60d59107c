//! An HTTP endpoint as a source of pods: good and bad answers, and none.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::sources::{WHILE, identity, manifest, names, pods_of, told, with_url};
use serde_json::json;
use test_support::wait::holds_for;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, ManifestServer, PrivateContainerd,
};

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
