//! Requests of the double of an API server.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clock::WallClock;
use node_config::ApiCredential;
use process::Lifecycle;
use serde_json::{Value, json};
use test_support::api_server::Fault;
use test_support::{ApiServer, Authority};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::tls;

/// Watches that are open: an API server allows 100 streams on a connection.
const WATCHES: usize = 90;

/// How late a status may be, and a Lease, on a busy machine.
const LATE: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(1);

struct Peer {
    double: ApiServer,
    address: Address,
    health: Health,
}

impl Peer {
    fn start() -> Result<Peer> {
        let directory = tempfile::tempdir()?;
        let authority = Authority::create(directory.path(), "")?;
        authority.issue("server", "server", None, &["127.0.0.1"])?;
        authority.issue_expired("expired", "127.0.0.1")?;
        authority.issue("node", "node", None, &[])?;
        let double = ApiServer::start_on_this_machine("n", directory.path())?;
        let text = |name: &str| fs::read_to_string(directory.path().join(name));
        let server = node_config::ApiServer {
            url: format!("https://{}", double.address()),
            server_name: None,
            authority: text("ca.crt")?,
            credential: Some(ApiCredential {
                certificate: text("node.crt")?,
                key: text("node.key")?,
            }),
        };
        let connector = tls::connector(&server, WallClock::system())?;
        let lifecycle = Lifecycle::unsupervised(CancellationToken::new());
        Ok(Peer {
            double,
            address: Address::new(&server, connector)?,
            health: Health::new("double", None, WallClock::system(), lifecycle),
        })
    }

    fn client(&self) -> Arc<Client> {
        Arc::new(Client::new(self.address.clone(), self.health.clone()))
    }
}

fn request(method: Method, path: &str, body: &Value) -> ApiRequest {
    ApiRequest {
        method,
        path: path.to_owned(),
        content_type: "application/strategic-merge-patch+json",
        body: body.to_string().into_bytes(),
    }
}

fn status_of(pod: &str) -> ApiRequest {
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    let patch = json!({"status": {"phase": "Running"}});
    request(Method::PATCH, &path, &patch)
}

#[tokio::test]
async fn calls_that_hang_and_a_storm_of_refusals_hold_up_neither_lease_nor_status() -> Result<()> {
    let mut peer = Peer::start()?;
    let pod = json!({"kind": "Pod", "metadata": {"name": "other", "namespace": "default"},
        "spec": {"nodeName": "n", "containers": []}});
    peer.double.apply(&pod)?;
    peer.double.set_fault(Some(Fault::TooManyRequests))?;
    let (requests, watches) = (peer.client(), peer.client());
    let mut hanging = JoinSet::new();
    for _ in 0..WATCHES {
        let watches = Arc::clone(&watches);
        hanging.spawn(async move { watches.watch("/api/v1/hung?watch=true".to_owned()).await });
    }
    let mut send = |lane: Lane, request: ApiRequest| {
        let requests = Arc::clone(&requests);
        hanging.spawn(async move {
            drop(requests.send(lane, &request).await);
            std::future::pending().await
        });
    };
    send(Lane::Status, status_of("hung"));
    let path = "/api/v1/namespaces/hung/events";
    send(Lane::Event, request(Method::POST, path, &json!({})));
    for number in 0..50 {
        send(Lane::Status, status_of(&format!("refused-{number}")));
        let path = "/api/v1/namespaces/default/events";
        send(Lane::Event, request(Method::POST, path, &json!({})));
    }
    let storm = async {
        while peer.double.faulty_answers() < 150 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), storm).await?;

    let begin = Instant::now();
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = json!({"metadata": {"name": "n"}, "spec": {}});
    let lease = request(Method::POST, path, &lease);
    let answer = requests.send(Lane::Lease, &lease);
    assert_eq!(answer.await?.status, StatusCode::CREATED);
    assert!(begin.elapsed() < SLACK, "{:?}", begin.elapsed());

    peer.double.set_fault(None)?;
    let begin = Instant::now();
    let answer = requests.send(Lane::Status, &status_of("other")).await?;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(begin.elapsed() < LATE + SLACK, "{:?}", begin.elapsed());
    let held = peer.double.list("Pod").pop().context("no pod")?;
    assert_eq!(held["status"]["phase"], "Running");
    assert!(hanging.try_join_next().is_none(), "what hangs was answered");
    Ok(())
}
