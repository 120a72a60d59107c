//! The process: the sources and the server, until shutdown.

use std::convert::Infallible;

use bulkhead_api::v1::config_sourcer_server::ConfigSourcerServer;
use bulkhead_api::v1::objects_server::ObjectsServer;
use bulkhead_api::v1::pods_server::PodsServer;
use bulkhead_api::v1::services_server::ServicesServer;
use futures_util::future;
use ipc::limits::{MAX_OBJECT_MESSAGE_BYTES, MAX_POD_MESSAGE_BYTES};
use pod::PodSource;
use pod_manifest::ManifestNode;
use process::{Context, Lifecycle};
use tokio::sync::watch;
use tonic::service::Routes;

use crate::api_source::ApiSource;
use crate::file_source::FileSource;
use crate::http_source::HttpSource;
use crate::object_directory::Owner;
use crate::object_source::{ObjectPublication, ObjectSource};
use crate::publication::{Publication, summary};
use crate::services::{self, ServicePublication};
use crate::snapshot::Problem;

/// Largest request that is only a question.
const MAX_QUESTION_BYTES: usize = 4096;

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("cannot go on serving")]
    Serve(#[from] ipc::ServeError),
}

/// Serves until shutdown. Nothing is opened before: manifests and authorities change,
/// and a disk that hangs holds up only the thread that reads it.
///
/// # Errors
/// When the listening socket fails.
pub async fn serve(context: Context) -> Result<(), Error> {
    let config = &context.config;
    let configured = [
        config.static_pod_path.is_some().then_some(PodSource::File),
        config.static_pod_url.is_some().then_some(PodSource::Http),
        config.api_server.is_some().then_some(PodSource::Api),
    ];
    let publication = Publication::new(&context.boot_id, configured.into_iter().flatten());
    let node = ManifestNode {
        name: config.node_name.clone(),
        runtime_classes: config.runtime_classes.clone(),
    };
    let files = config.static_pod_path.as_ref().map(|path| {
        FileSource::new(
            path.clone(),
            node.clone(),
            config.file_check_frequency,
            context.clock.clone(),
            publication.clone(),
        )
    });
    let url = config.static_pod_url.as_ref().map(|source| {
        let clock = context.clock.clone();
        HttpSource::new(source.clone(), node.clone(), clock, publication.clone())
    });
    let api = config.api_server.is_some();
    let services = ServicePublication::new(publication.clone());
    let following_services =
        api.then(|| services::follow(context.network.clone(), services.clone()));
    let api = api.then(|| ApiSource::new(context.network.clone(), publication.clone()));
    let objects_path = config.local_objects_path.clone();
    let objects = ObjectPublication::new(objects_path.is_some());
    let objects_of_files = objects_path.map(|path| {
        let frequency = config.file_check_frequency;
        ObjectSource::new(path, Owner::ROOT, frequency, objects.clone())
    });
    let shown = show(
        publication.clone(),
        objects.problems(),
        context.lifecycle.clone(),
    );
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        routes(publication, objects.clone(), services),
        context.lifecycle.shutdown(),
    );
    context.lifecycle.ready();
    // All in one task, so that a beat proves that none of them blocks. Files of
    // manifests, which may block, are read on threads of their own.
    tokio::select! {
        result = serving => Ok(result?),
        never = context.lifecycle.keep_beating() => match never {},
        never = shown => match never {},
        never = optional(files.map(FileSource::run)) => match never {},
        never = optional(url.map(HttpSource::run)) => match never {},
        never = optional(api.map(ApiSource::run)) => match never {},
        never = optional(following_services) => match never {},
        never = optional(objects_of_files.map(ObjectSource::run)) => match never {},
    }
}

fn routes(
    publication: Publication,
    objects: ObjectPublication,
    services: ServicePublication,
) -> Routes {
    let pods = PodsServer::new(publication.clone())
        .max_decoding_message_size(MAX_QUESTION_BYTES)
        .max_encoding_message_size(MAX_POD_MESSAGE_BYTES);
    let objects = ObjectsServer::new(objects)
        .max_decoding_message_size(MAX_QUESTION_BYTES)
        .max_encoding_message_size(MAX_OBJECT_MESSAGE_BYTES);
    let services = ServicesServer::new(services).max_decoding_message_size(MAX_QUESTION_BYTES);
    Routes::new(ConfigSourcerServer::new(publication))
        .add_service(pods)
        .add_service(services)
        .add_service(objects)
}

/// Shows how the sources and the objects stand, whenever that changes.
async fn show(
    publication: Publication,
    mut of_objects: watch::Receiver<Vec<Problem>>,
    lifecycle: Lifecycle,
) -> Infallible {
    let mut state = publication.watch();
    let mut shown = String::new();
    loop {
        let line = summary(&state.borrow_and_update(), &of_objects.borrow_and_update());
        if line != shown {
            lifecycle.set_status(&line);
            shown = line;
        }
        // The senders live as long as the publications do.
        let changed = tokio::select! {
            changed = state.changed() => changed,
            changed = of_objects.changed() => changed,
        };
        if changed.is_err() {
            future::pending::<()>().await;
        }
    }
}

/// A source that may not be configured.
async fn optional(source: Option<impl Future<Output = Infallible>>) -> Infallible {
    match source {
        Some(source) => source.await,
        None => future::pending().await,
    }
}
