//! The services of a process behind the caller check, for callers that do not come by
//! HTTP/2.

use std::convert::Infallible;

use http::{Request, Response};
use tonic::body::Body;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use crate::peer::Peer;
use crate::places::{Place, Places};

/// The services of a process, as its callers may have them.
#[derive(Clone, Debug)]
pub struct Permitted {
    pub(crate) places: Places,
    pub(crate) service: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
}

/// A connection that was permitted, for as long as it lives.
#[derive(Debug)]
pub struct PermittedCaller {
    service: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
    peer: Peer,
    _place: Place,
}

impl Permitted {
    /// Takes a connection of `peer`; `None` when it may call nothing here, or has too many.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn admit(&self, peer: Peer) -> Option<PermittedCaller> {
        Some(PermittedCaller {
            _place: self.places.take(peer)?,
            service: self.service.clone(),
            peer,
        })
    }
}

impl PermittedCaller {
    /// Answers a call, whether it is permitted or not.
    pub fn call(
        &self,
        mut request: Request<Body>,
    ) -> impl Future<Output = Response<Body>> + Send + use<> {
        request.extensions_mut().insert(self.peer);
        let answered = self.service.clone().oneshot(request);
        async move {
            match answered.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
    }
}
