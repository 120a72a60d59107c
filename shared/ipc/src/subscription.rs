//! A stream from a peer that is opened again whenever it breaks.

use std::future::Future;

use backoff::{Backoff, Curve};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Response, Status, Streaming};

use crate::limits::SUBSCRIPTION_QUEUE;

/// What comes out of a subscription.
#[derive(Debug)]
pub enum SubscriptionEvent<T> {
    /// A new stream is open: a snapshot follows.
    Connected,
    /// The next message.
    Message(T),
    /// The stream ended; it is being opened again. What was known stays valid.
    Lost {
        /// Why, for logs.
        reason: String,
    },
}

/// A stream that never ends. Dropping it closes it.
#[derive(Debug)]
pub struct Subscription<T> {
    events: mpsc::Receiver<SubscriptionEvent<T>>,
    _task: AbortOnDropHandle<()>,
}

impl<T> Subscription<T> {
    /// The next event. Cancel-safe: it only receives from a channel.
    pub async fn next(&mut self) -> SubscriptionEvent<T> {
        match self.events.recv().await {
            Some(event) => event,
            // The task ends only with the runtime; nothing will ever come.
            None => std::future::pending().await,
        }
    }
}

/// Subscribes: `open` starts the stream, again after each break, with a short
/// back-off. `name` is for logs.
pub fn subscribe<T, F>(
    name: &'static str,
    mut open: impl FnMut() -> F + Send + 'static,
) -> Subscription<T>
where
    T: Send + 'static,
    F: Future<Output = Result<Response<Streaming<T>>, Status>> + Send,
{
    let (sender, events) = mpsc::channel(SUBSCRIPTION_QUEUE);
    let task = tokio::spawn(async move {
        let mut backoff = Backoff::new(Curve::RECONNECT);
        let mut reported = false;
        loop {
            let reason = follow(&mut open, &sender, &mut backoff).await;
            let Some(reason) = reason else { return };
            if !reported || backoff.failures() == 0 {
                tracing::info!(stream = name, reason, "stream lost; opening it again");
                reported = true;
            }
            if sender
                .send(SubscriptionEvent::Lost { reason })
                .await
                .is_err()
            {
                return;
            }
            tokio::time::sleep(backoff.failed()).await;
        }
    });
    Subscription {
        events,
        _task: AbortOnDropHandle::new(task),
    }
}

/// Follows one stream to its end and returns why it ended, or `None` when
/// nobody listens any more.
async fn follow<T, F>(
    open: &mut impl FnMut() -> F,
    sender: &mpsc::Sender<SubscriptionEvent<T>>,
    backoff: &mut Backoff,
) -> Option<String>
where
    F: Future<Output = Result<Response<Streaming<T>>, Status>>,
{
    let mut stream = match open().await {
        Ok(response) => response.into_inner(),
        Err(status) => return Some(status.to_string()),
    };
    sender.send(SubscriptionEvent::Connected).await.ok()?;
    loop {
        match stream.message().await {
            Ok(Some(message)) => {
                backoff.reset();
                sender
                    .send(SubscriptionEvent::Message(message))
                    .await
                    .ok()?;
            }
            Ok(None) => return Some("the peer ended it".to_owned()),
            Err(status) => return Some(status.to_string()),
        }
    }
}
