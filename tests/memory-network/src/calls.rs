//! Calls in memory without HTTP/2 between client and server, for the whole-node simulation:
//! a request is handed over as it is, and the frames of its answer come back through a
//! queue, as through a socket's buffer.
//!
//! Connections break as those over sockets: the death of a process breaks all that it has,
//! at both ends. A call that was under way fails, and
//! a stream ends, with an error of this side.

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use ipc::{Permitted, PermittedCaller, ServeCalls};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use crate::socket::MemoryListener;

/// Frames of an answer that wait for a slow client before the server waits too.
const FRAME_QUEUE: usize = 64;

/// Frames that leave with the beginning of an answer if they are there by then: an answer of
/// one message has no more.
const FIRST_FRAMES: usize = 2;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Frame = Result<http_body::Frame<Bytes>, Status>;

/// What a call fails with whose connection breaks.
fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// A call that is on its way.
#[derive(Debug)]
pub(crate) struct Call {
    request: Request<Body>,
    answer: oneshot::Sender<Response<Answer>>,
}

/// What follows the beginning of an answer.
#[derive(Debug)]
struct Answer {
    first: VecDeque<Frame>,
    /// Unless the first are all of them.
    rest: Option<mpsc::Receiver<Frame>>,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(crate) struct ClientEnd {
    calls: mpsc::UnboundedSender<Call>,
    broken: CancellationToken,
}

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct ServerEnd {
    calls: mpsc::UnboundedReceiver<Call>,
    broken: CancellationToken,
}

impl ClientEnd {
    pub(crate) fn new(calls: mpsc::UnboundedSender<Call>, broken: CancellationToken) -> ClientEnd {
        ClientEnd { calls, broken }
    }

    /// Makes a call.
    pub(crate) fn call(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> impl Future<Output = io::Result<Response<Body>>> + Send + 'static {
        let (answer, answered) = oneshot::channel();
        // One that nobody takes is not answered.
        drop(self.calls.send(Call { request, answer }));
        async move {
            let response = answered.await.map_err(|_| broken())?;
            Ok(response.map(|answer| {
                Body::new(AnswerBody {
                    answer,
                    _connection: self,
                })
            }))
        }
    }

    /// Whether its server may still take a call by it.
    pub(crate) fn is_open(&self) -> bool {
        !self.broken.is_cancelled() && !self.calls.is_closed()
    }
}

/// The frames of an answer, as its caller takes them.
struct AnswerBody {
    answer: Answer,
    /// A connection lives as long as somebody uses it.
    _connection: Arc<ClientEnd>,
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        let answer = &mut self.answer;
        let frame = match (answer.first.pop_front(), &mut answer.rest) {
            (Some(frame), _) => frame,
            (None, Some(rest)) => match ready!(rest.poll_recv(context)) {
                Some(frame) => frame,
                // The server has dropped it before its end.
                None => return Poll::Ready(Some(Err(broken().into()))),
            },
            (None, None) => return Poll::Ready(None),
        };
        if is_last(&frame) {
            answer.rest = None;
        }
        Poll::Ready(Some(frame.map_err(BoxError::from)))
    }
}

/// Whether an answer ends with this frame, as those of gRPC do, with trailers, or breaks off.
fn is_last(frame: &Frame) -> bool {
    frame.as_ref().map_or(true, http_body::Frame::is_trailers)
}

#[tonic::async_trait]
impl ServeCalls for MemoryListener<ServerEnd> {
    async fn serve(&self, permitted: Permitted, shutdown: CancellationToken) {
        let connections = TaskTracker::new();
        loop {
            let (end, peer) = tokio::select! {
                biased;
                // Cancel-safe: only waits.
                () = shutdown.cancelled() => break,
                // Cancel-safe: a connection is taken or it is not.
                accepted = self.accept() => accepted,
            };
            // Others are hung up on.
            if let Some(caller) = permitted.admit(peer) {
                connections.spawn(end.serve(caller, shutdown.clone()));
            }
        }
        connections.close();
        connections.wait().await;
    }
}

impl ServerEnd {
    pub(crate) fn new(
        calls: mpsc::UnboundedReceiver<Call>,
        broken: CancellationToken,
    ) -> ServerEnd {
        ServerEnd { calls, broken }
    }

    /// Answers calls until the connection breaks, or nobody makes one any more.
    async fn serve(mut self, caller: PermittedCaller, shutdown: CancellationToken) {
        let mut broken = pin!(self.broken.cancelled());
        let mut stopped = pin!(shutdown.cancelled());
        let mut under_way = FuturesUnordered::new();
        let mut takes_calls = true;
        while takes_calls || !under_way.is_empty() {
            tokio::select! {
                biased;
                // Cancel-safe: only waits.
                () = &mut broken => return,
                // Cancel-safe: only waits.
                () = &mut stopped, if takes_calls => {
                    takes_calls = false;
                    self.calls.close();
                    // What was not taken fails, and is called again by the next connection.
                    while self.calls.try_recv().is_ok() {}
                }
                // Cancel-safe: an answer stays in the set until it is over.
                Some(()) = under_way.next() => {}
                // Cancel-safe: a call is taken or it is not.
                call = self.calls.recv(), if takes_calls => match call {
                    Some(call) => under_way.push(answer(call, &caller)),
                    None => takes_calls = false,
                }
            }
        }
    }
}

/// Answers a call, as long as its caller wants that.
async fn answer(call: Call, caller: &PermittedCaller) {
    let Call {
        request,
        mut answer,
    } = call;
    let response = tokio::select! {
        biased;
        // Cancel-safe: who is gone wants no answer.
        () = answer.closed() => return,
        response = caller.call(request) => response,
    };
    let (parts, mut body) = response.into_parts();
    let mut first = VecDeque::new();
    let mut is_whole = false;
    while first.len() < FIRST_FRAMES && !is_whole {
        let Some(next) = body.frame().now_or_never() else {
            break;
        };
        is_whole = next.as_ref().is_none_or(is_last);
        first.extend(next);
    }
    let rest = (!is_whole).then(|| mpsc::channel(FRAME_QUEUE));
    let (sender, rest) = rest.unzip();
    let response = Response::from_parts(parts, Answer { first, rest });
    if let (Ok(()), Some(sender)) = (answer.send(response), sender) {
        send_rest(body, sender).await;
    }
}

/// Sends what follows the first frames of an answer.
async fn send_rest(mut body: Body, sender: mpsc::Sender<Frame>) {
    while let Ok(place) = sender.reserve().await {
        let next = tokio::select! {
            biased;
            // Cancel-safe: who is gone wants no more of it.
            () = sender.closed() => return,
            // Cancel-safe: a frame is taken or it is not.
            next = body.frame() => next,
        };
        match next {
            Some(frame) => place.send(frame),
            None => return,
        }
    }
}
