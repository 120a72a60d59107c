//! How one simulated process reaches another without HTTP/2: it connects when it has a call
//! to make. What a connection does with calls is in `calls`.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response};
use tonic::body::Body;

use crate::calls::ClientEnd;

/// The way of one process to another. It connects when first used, and again when its
/// connection broke. Clones share it.
#[derive(Clone)]
pub(crate) struct CallChannel {
    connect: Arc<dyn Fn() -> ClientEnd + Send + Sync>,
    connection: Arc<Mutex<Option<Arc<ClientEnd>>>>,
}

impl CallChannel {
    pub(crate) fn new(connect: impl Fn() -> ClientEnd + Send + Sync + 'static) -> CallChannel {
        CallChannel {
            connect: Arc::new(connect),
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
        let made = Arc::new((self.connect)());
        *connection = Some(Arc::clone(&made));
        made
    }

    /// Makes a call.
    pub(crate) fn call(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = io::Result<Response<Body>>> + Send + use<> {
        self.connection().call(request)
    }
}
