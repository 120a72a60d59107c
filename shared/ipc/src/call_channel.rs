//! How one simulated process reaches another without HTTP/2: it connects when it has a call
//! to make. What a connection does with calls is in `calls`.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response};
use tonic::body::Body;
use topology::Process;

use crate::calls::ClientEnd;
use crate::memory::MemoryHub;
use crate::peer::Peer;

/// The way of one process to another. It connects when first used, and again when its
/// connection broke. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CallChannel {
    hub: MemoryHub,
    client: (Process, Peer),
    server: Process,
    connection: Arc<Mutex<Option<Arc<ClientEnd>>>>,
}

impl CallChannel {
    pub(crate) fn new(hub: MemoryHub, client: (Process, Peer), server: Process) -> CallChannel {
        CallChannel {
            hub,
            client,
            server,
            connection: Arc::default(),
        }
    }

    fn connection(&self) -> Arc<ClientEnd> {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = connection.as_ref().filter(|made| made.is_open()) {
            return Arc::clone(made);
        }
        let made = Arc::new(self.hub.connect_calls(self.client, self.server));
        *connection = Some(Arc::clone(&made));
        made
    }

    /// Makes a call.
    pub(crate) fn call(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = io::Result<Response<Body>>> + Send + 'static {
        self.connection().call(request)
    }
}
