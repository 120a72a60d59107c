//! Who asks, and whether it may: by a client certificate, a token that the API server knows,
//! or nothing; and by what the API server says of that user and this node.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bulkhead_api::v1;
use http::{HeaderMap, StatusCode};
use node_config::{Authorization, NodeServer};
use tokio::time::Instant;

use crate::node::Node;
use crate::user;
use crate::verdicts::{Subject, Verdicts};

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// Nobody knows who asks.
    #[error("Unauthorized")]
    Unknown,
    /// It may not.
    #[error(
        "Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)={subresources:?})"
    )]
    Forbidden {
        /// Whoever asks.
        user: String,
        /// What it wants to do.
        verb: &'static str,
        /// With which parts of the Node.
        subresources: &'static [&'static str],
    },
    /// The API server does not say whether it may.
    #[error(
        "Authorization error (user={user}, verb={verb}, resource=nodes, subresource(s)={subresources:?})"
    )]
    NoVerdict {
        /// Whoever asks.
        user: String,
        /// What it wants to do.
        verb: &'static str,
        /// With which parts of the Node.
        subresources: &'static [&'static str],
    },
}

impl Refused {
    /// The kubelet's code for it.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Refused::Unknown => StatusCode::UNAUTHORIZED,
            Refused::Forbidden { .. } => StatusCode::FORBIDDEN,
            Refused::NoVerdict { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Judges callers.
pub(crate) struct Access {
    node: Arc<Node>,
    allows_anonymous: bool,
    token_review: Option<Duration>,
    authorization: Authorization,
    begin: Instant,
    /// Whose a token is; nobody's where it is none.
    tokens: Mutex<Verdicts<Option<v1::ApiUser>>>,
    /// Whether a user may do something.
    permissions: Mutex<Verdicts<bool>>,
}

impl Access {
    pub(crate) fn new(server: &NodeServer, node: Arc<Node>) -> Access {
        Access {
            node,
            allows_anonymous: server.anonymous,
            token_review: server.token_review,
            authorization: server.authorization,
            begin: Instant::now(),
            tokens: Mutex::new(Verdicts::new()),
            permissions: Mutex::new(Verdicts::new()),
        }
    }

    /// Who asks. `certificate` was checked.
    pub(crate) async fn authenticate(
        &self,
        certificate: Option<&v1::ApiUser>,
        headers: &HeaderMap,
    ) -> Result<v1::ApiUser, Refused> {
        if let Some(user) = certificate {
            return Ok(user.clone());
        }
        match (user::token(headers), self.token_review) {
            (Some(token), Some(stands)) => self.owner(token, stands).await,
            (None, _) if self.allows_anonymous => Ok(user::anonymous()),
            _ => Err(Refused::Unknown),
        }
    }

    async fn owner(&self, token: &str, stands: Duration) -> Result<v1::ApiUser, Refused> {
        let subject = Subject::of([token]);
        let now = self.begin.elapsed();
        let known = lock(&self.tokens).get(subject, now);
        let user = match known {
            Some(user) => user,
            None => {
                let user = self.node.review_token(token).await.map_err(|error| {
                    tracing::warn!(
                        error = telemetry::chain(&error),
                        "cannot ask whose a token is"
                    );
                    Refused::Unknown
                })?;
                let until = now + stands;
                lock(&self.tokens).set(subject, user.clone(), now, until);
                user
            }
        };
        user.ok_or(Refused::Unknown)
    }

    /// Whether a user may do this with one of these parts of the Node: the first that it may
    /// counts.
    pub(crate) async fn authorize(
        &self,
        user: &v1::ApiUser,
        verb: &'static str,
        subresources: &'static [&'static str],
    ) -> Result<(), Refused> {
        let Authorization::Webhook {
            authorized,
            unauthorized,
        } = self.authorization
        else {
            return Ok(());
        };
        let name = || user.name.clone();
        for subresource in subresources {
            let subject = subject(user, verb, subresource);
            let now = self.begin.elapsed();
            let known = lock(&self.permissions).get(subject, now);
            let is_allowed = match known {
                Some(is_allowed) => is_allowed,
                None => {
                    let asked = self.node.review_access(user, verb, subresource).await;
                    let is_allowed = asked.map_err(|error| {
                        tracing::warn!(
                            error = telemetry::chain(&error),
                            "cannot ask what a user may"
                        );
                        Refused::NoVerdict {
                            user: name(),
                            verb,
                            subresources,
                        }
                    })?;
                    let stands = if is_allowed { authorized } else { unauthorized };
                    lock(&self.permissions).set(subject, is_allowed, now, now + stands);
                    is_allowed
                }
            };
            if is_allowed {
                return Ok(());
            }
        }
        Err(Refused::Forbidden {
            user: name(),
            verb,
            subresources,
        })
    }
}

fn subject(user: &v1::ApiUser, verb: &str, subresource: &str) -> Subject {
    let groups = user.groups.join("\0");
    let extra = user.extra.iter();
    let extra: Vec<String> = extra
        .map(|it| format!("{}\0{}", it.key, it.values.join("\0")))
        .collect();
    let extra = extra.join("\0\0");
    Subject::of([verb, subresource, &user.name, &user.uid, &groups, &extra])
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use ipc::Network;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_said_stands_for_its_time_also_while_it_is_away() {
        const STANDS: Duration = Duration::from_secs(300);
        let access = Access {
            node: Arc::new(Node::new(&Network::unix("/is/not/there"))),
            allows_anonymous: false,
            token_review: None,
            authorization: Authorization::Webhook {
                authorized: STANDS,
                unauthorized: STANDS,
            },
            begin: Instant::now(),
            tokens: Mutex::new(Verdicts::new()),
            permissions: Mutex::new(Verdicts::new()),
        };
        let user = user::anonymous();
        let authorize = || access.authorize(&user, "get", &["metrics"]);
        let answered = authorize().await.map_err(|error| error.status());
        assert_eq!(answered, Err(StatusCode::INTERNAL_SERVER_ERROR));
        let now = access.begin.elapsed();
        let subject = subject(&user, "get", "metrics");
        lock(&access.permissions).set(subject, true, now, now + STANDS);
        tokio::time::advance(STANDS - Duration::from_secs(1)).await;
        assert_eq!(authorize().await, Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        let answered = authorize().await.map_err(|error| error.status());
        assert_eq!(answered, Err(StatusCode::INTERNAL_SERVER_ERROR));
    }
}
