//! The process: what is followed, and the services, until shutdown.

use std::convert::Infallible;
use std::sync::Arc;

use bulkhead_api::v1::api_connection_server::ApiConnectionServer;
use bulkhead_api::v1::api_objects_server::ApiObjectsServer;
use bulkhead_api::v1::api_reports_server::ApiReportsServer;
use bulkhead_api::v1::api_reviews_server::ApiReviewsServer;
use clock::WallClock;
use ipc::limits::MAX_POD_MESSAGE_BYTES;
use node_config::NodeConfig;
use process::Context;
use serde::Deserialize;
use tokio::sync::watch;
use tonic::service::Routes;

use crate::client::{ApiRequest, Client};
use crate::connection::{Address, ConnectError};
use crate::follow::Follower;
use crate::health::Health;
use crate::kind::Kind;
use crate::objects::Objects;
use crate::pace::Lane;
use crate::reviews::Reviews;
use crate::server::Server;
use crate::tls::{self, TlsError};

/// Largest request that is only a question.
const MAX_QUESTION_BYTES: usize = 4096;

/// Largest question about a user: its groups and what else is known of it.
const MAX_REVIEW_BYTES: usize = 256 << 10;

/// How often the API server is asked for its version, which an upgrade changes.
const VERSION_PERIOD: std::time::Duration = std::time::Duration::from_secs(600);

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig's certificates or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kubeconfig's server cannot be one.
    #[error(transparent)]
    Address(#[from] ConnectError),
    /// The socket failed.
    #[error("cannot go on serving")]
    Serve(#[from] ipc::ServeError),
}

/// What is made before the process is sealed: where the API server is, if there is one.
pub struct Opened(Option<Peer>);

struct Peer {
    address: Address,
    certificate_end: Option<i64>,
}

/// Reads the kubeconfig's certificates and key.
///
/// # Errors
/// When they cannot be used.
pub fn open(config: &NodeConfig) -> Result<Opened, Error> {
    let Some(server) = &config.api_server else {
        return Ok(Opened(None));
    };
    let connector = tls::connector(server, WallClock::system())?;
    Ok(Opened(Some(Peer {
        address: Address::new(server, connector)?,
        certificate_end: tls::certificate_end(server),
    })))
}

/// Serves until shutdown.
///
/// # Errors
/// When the listening socket fails.
pub async fn serve(context: Context, Opened(peer): Opened) -> Result<(), Error> {
    let Some(Peer {
        address,
        certificate_end,
    }) = peer
    else {
        return serve_nothing(context).await;
    };
    let node_name: Arc<str> = context.config.node_name.as_str().into();
    let health = Health::new(
        &address.authority,
        certificate_end,
        context.clock.clone(),
        context.lifecycle.clone(),
    );
    let client = || Arc::new(Client::new(address.clone(), health.clone()));
    let (requests, watches) = (client(), client());
    let (pods, nodes, services) = (Objects::new(), Objects::new(), Objects::new());
    let pods_from = watch::Sender::new(None);
    let follower = |kind: Kind, objects: &Objects, purpose: u64| Follower {
        kind,
        lists: Arc::clone(&requests),
        watches: Arc::clone(&watches),
        objects: objects.clone(),
        health: health.clone(),
        random: context.random(purpose),
    };
    let following_pods = follow_pods(
        follower(Kind::pods(&node_name), &pods, 1),
        pods_from.subscribe(),
    );
    let following_node = follower(Kind::node(&node_name), &nodes, 2).run(None);
    let following_services = follower(Kind::services(), &services, 3).run(None);
    let asking_version = ask_version(Arc::clone(&requests), health.clone());
    let server = Server {
        node_name,
        pods,
        nodes,
        services,
        requests,
        health,
        pods_from,
    };
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        routes(server),
        context.lifecycle.shutdown(),
    );
    context.lifecycle.ready();
    // All in one task, so that a beat proves that none of them blocks.
    tokio::select! {
        result = serving => Ok(result?),
        never = context.lifecycle.keep_beating() => match never {},
        never = following_pods => match never {},
        never = following_node => match never {},
        never = following_services => match never {},
        never = asking_version => match never {},
    }
}

/// A socket unit has started the process on a node without a kubeconfig.
async fn serve_nothing(context: Context) -> Result<(), Error> {
    context.lifecycle.set_status("no kubeconfig");
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        Routes::default(),
        context.lifecycle.shutdown(),
    );
    context.lifecycle.ready();
    tokio::select! {
        result = serving => Ok(result?),
        never = context.lifecycle.keep_beating() => match never {},
    }
}

/// Follows pods once config-sourcer has said from which version on.
async fn follow_pods(follower: Follower, mut from: watch::Receiver<Option<String>>) -> Infallible {
    let from = match from.wait_for(Option::is_some).await {
        Ok(from) => from.clone().filter(|version| !version.is_empty()),
        Err(_) => std::future::pending().await,
    };
    follower.run(from).await
}

async fn ask_version(requests: Arc<Client>, health: Health) -> Infallible {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let mut tick = tokio::time::interval(VERSION_PERIOD);
    let request = ApiRequest::get("/version".to_owned());
    loop {
        tick.tick().await;
        let answer = requests.send(Lane::Other, &request).await;
        let version = answer.ok().and_then(|answer| {
            let version: Option<Version> = serde_json::from_slice(&answer.body).ok();
            version
        });
        match version {
            Some(version) => health.is_of_version(version.git_version),
            // It is not there yet.
            None => tick.reset_after(VERSION_PERIOD / 60),
        }
    }
}

fn routes(server: Server) -> Routes {
    let objects = ApiObjectsServer::new(server.clone())
        .max_decoding_message_size(MAX_QUESTION_BYTES)
        .max_encoding_message_size(MAX_POD_MESSAGE_BYTES);
    let reports = ApiReportsServer::new(server.clone())
        .max_decoding_message_size(MAX_POD_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_POD_MESSAGE_BYTES);
    let reviews = Reviews {
        node_name: Arc::clone(&server.node_name),
        requests: Arc::clone(&server.requests),
    };
    let reviews = ApiReviewsServer::new(reviews).max_decoding_message_size(MAX_REVIEW_BYTES);
    let connection = ApiConnectionServer::new(server)
        .max_decoding_message_size(MAX_QUESTION_BYTES)
        .max_encoding_message_size(MAX_POD_MESSAGE_BYTES);
    Routes::new(objects)
        .add_service(reports)
        .add_service(reviews)
        .add_service(connection)
}
