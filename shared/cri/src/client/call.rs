//! One call: its deadline, and the checks that every answer goes through.

use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use crate::id::{MAX_ID_BYTES, is_valid_id};
use crate::{RuntimeError, RuntimeErrorKind, RuntimeEvent};

/// Most items of a list that are taken: more than fit into the largest answer at the
/// size of a real item, so only a list of empty items ever meets it.
pub(super) const MAX_LIST_ITEMS: usize = 50_000;

/// Longest time that is ever put into a request, about a hundred years. Runtimes turn
/// seconds into nanoseconds and overflow beyond 292, and gRPC's timeout has eight digits.
const LONGEST_TIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How long to wait for the runtime to refuse a subscription. A runtime that has events
/// says nothing until the first one happens, one that has not refuses at once.
const EVENTS_REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// Carries one call out within its deadline; the runtime is told the deadline too.
pub(super) fn call<Message, Answer, Reply>(
    method: &'static str,
    deadline: Duration,
    message: Message,
    send: impl FnOnce(Request<Message>) -> Reply,
) -> impl Future<Output = Result<Answer, RuntimeError>>
where
    Reply: Future<Output = Result<Response<Answer>, Status>>,
{
    let deadline = deadline.min(LONGEST_TIME);
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    // Boxed, because some requests are large and each future holds several copies.
    let reply = Box::pin(send(request));
    async move {
        match tokio::time::timeout(deadline, reply).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(RuntimeError::from_status(method, &status)),
            Err(_elapsed) => Err(late(method, deadline)),
        }
    }
}

/// Makes a call when it has one of `turns`. The wait for that counts, so a runtime that hangs
/// delays nobody for longer than one call.
pub(super) async fn in_turn<Answer>(
    turns: &Semaphore,
    method: &'static str,
    deadline: Duration,
    asked: impl Future<Output = Result<Answer, RuntimeError>>,
) -> Result<Answer, RuntimeError> {
    let answered = async {
        let _turn = turns.acquire().await;
        asked.await
    };
    match tokio::time::timeout(deadline, answered).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(late(method, deadline)),
    }
}

fn late(method: &'static str, deadline: Duration) -> RuntimeError {
    RuntimeError::new(
        method,
        RuntimeErrorKind::DeadlineExceeded,
        format!("no answer within {} s", deadline.as_secs()),
    )
}

pub(super) fn checked_id(method: &'static str, id: String) -> Result<String, RuntimeError> {
    if is_valid_id(&id) {
        return Ok(id);
    }
    let shown = &id[..id.floor_char_boundary(MAX_ID_BYTES)];
    Err(RuntimeError::new(
        method,
        RuntimeErrorKind::Other,
        format!("answered with id {shown:?}"),
    ))
}

pub(super) fn required<Value>(
    method: &'static str,
    value: Option<Value>,
) -> Result<Value, RuntimeError> {
    value.ok_or_else(|| RuntimeError::new(method, RuntimeErrorKind::Other, "the answer is empty"))
}

/// The items of a list that have a usable id.
pub(super) fn checked_list<Item>(
    method: &'static str,
    items: Vec<Item>,
    id: impl Fn(&Item) -> &str,
) -> Result<Vec<Item>, RuntimeError> {
    let total = items.len();
    if total > MAX_LIST_ITEMS {
        return Err(RuntimeError::new(
            method,
            RuntimeErrorKind::Other,
            format!("answered with {total} items, more than {MAX_LIST_ITEMS}"),
        ));
    }
    let mut items = items;
    items.retain(|item| is_valid_id(id(item)));
    if items.len() < total {
        tracing::warn!(
            method,
            left_out = total - items.len(),
            "the runtime listed unusable ids"
        );
    }
    Ok(items)
}

/// Whole seconds, rounded up: the wire has no fractions, and a shorter grace would be
/// a broken promise.
pub(super) fn whole_seconds(duration: Duration) -> i64 {
    let duration = duration.min(LONGEST_TIME);
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// A subscription that was not refused within [`EVENTS_REFUSAL_WAIT`].
///
/// The answer's headers come with its first message, so "no answer yet" is the usual
/// sign of success, and the stream goes on waiting for them.
pub(super) async fn subscribe<Message, Reply>(
    method: &'static str,
    reply: Reply,
    convert: fn(Message) -> Option<RuntimeEvent>,
) -> Result<impl Stream<Item = Result<RuntimeEvent, RuntimeError>> + Send, RuntimeError>
where
    Message: Send + 'static,
    Reply: Future<Output = Result<Response<Streaming<Message>>, Status>> + Send + 'static,
{
    let mut reply = Box::pin(reply);
    let opening = match tokio::time::timeout(EVENTS_REFUSAL_WAIT, reply.as_mut()).await {
        Ok(Err(status)) => return Err(RuntimeError::from_status(method, &status)),
        Ok(Ok(response)) => stream::once(std::future::ready(Ok(response))).left_stream(),
        Err(_elapsed) => stream::once(reply).right_stream(),
    };
    Ok(opening.flat_map(move |opened| match opened {
        Err(status) => {
            let error = RuntimeError::from_status(method, &status);
            stream::once(std::future::ready(Err(error))).left_stream()
        }
        Ok(response) => response
            .into_inner()
            .filter_map(move |message| {
                std::future::ready(match message {
                    Ok(message) => convert(message).map(Ok),
                    Err(status) => Some(Err(RuntimeError::from_status(method, &status))),
                })
            })
            .right_stream(),
    }))
}
