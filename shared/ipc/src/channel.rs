//! The way to another process, for clients of its services.

use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;

use crate::call_channel::CallChannel;

/// Makes calls of another process. Cloning is cheap, and shares the connection.
#[derive(Clone, Debug)]
pub struct Channel(Way);

#[derive(Clone, Debug)]
enum Way {
    Sockets(tonic::transport::Channel),
    Memory(CallChannel),
}

impl Channel {
    pub(crate) fn by_sockets(channel: tonic::transport::Channel) -> Channel {
        Channel(Way::Sockets(channel))
    }

    pub(crate) fn in_memory(calls: CallChannel) -> Channel {
        Channel(Way::Memory(calls))
    }
}

impl tower::Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Response<Body>, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        match &mut self.0 {
            Way::Sockets(channel) => channel.poll_ready(context).map_err(Into::into),
            Way::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match &mut self.0 {
            Way::Sockets(channel) => channel
                .call(request)
                .map(|it| it.map_err(Into::into))
                .boxed(),
            Way::Memory(calls) => calls.call(request).map(|it| it.map_err(Into::into)).boxed(),
        }
    }
}
