//! Which programs are asked for an image: those that are configured for it, as far as
//! their answers of before do not count any more. Who asks the same program for the same
//! image meanwhile gets the same answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared, join_all};
use node_config::{CredentialProvider, CredentialProviders};
use pull_credentials::{Credential, ImagePattern, Keyring};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::exchange;
use crate::run::{OwnPlaces, Runner};

/// A keyring, or for people why there is none.
type Outcome = Result<Keyring, String>;
type Asking = BoxFuture<'static, Outcome>;

/// What the programs gave for an image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundCredentials {
    /// In the order in which they are to be tried.
    pub(crate) credentials: Vec<Credential>,
    /// Which programs gave nothing, and why.
    pub(crate) failures: Vec<(String, String)>,
}

/// All programs. Clones share them.
#[derive(Clone)]
pub(crate) struct Programs(Arc<Inner>);

struct Inner {
    programs: Vec<Program>,
    runner: Runner,
    state: Mutex<State>,
}

struct Program {
    configured: CredentialProvider,
    images: Vec<ImagePattern>,
    places: OwnPlaces,
}

#[derive(Default)]
struct State {
    cache: Cache,
    /// Who is being asked, by place in the configuration, for which image.
    asked: BTreeMap<(usize, String), WeakShared<Asking>>,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Programs {
    /// Those of the configuration, which are root's or `owner`'s.
    pub(crate) fn new(configured: CredentialProviders, owner: u32) -> Programs {
        let program = |configured: CredentialProvider| Program {
            // The supervisor has refused a configuration with others.
            images: configured
                .match_images
                .iter()
                .filter_map(|text| ImagePattern::parse(text).ok())
                .collect(),
            configured,
            places: OwnPlaces::default(),
        };
        let programs = configured.providers.into_iter().map(program).collect();
        Programs(Arc::new(Inner {
            programs,
            runner: Runner::new(configured.bin_dir, owner),
            state: Mutex::default(),
        }))
    }

    /// What all programs that are configured for the image answer.
    pub(crate) async fn ask(&self, repository: &str) -> FoundCredentials {
        let programs = self.0.programs.iter().enumerate();
        let asked: Vec<usize> = programs
            .filter(|(_, it)| it.images.iter().any(|image| image.matches(repository)))
            .map(|(place, _)| place)
            .collect();
        let answers = join_all(asked.iter().map(|&place| self.ask_one(place, repository))).await;
        let (mut keyring, mut failures) = (Keyring::default(), Vec::new());
        for (place, answer) in asked.into_iter().zip(answers) {
            match answer {
                Ok(answer) => keyring.extend(answer),
                Err(reason) => {
                    let name = &self.0.programs[place].configured.name;
                    failures.push((name.clone(), reason));
                }
            }
        }
        FoundCredentials {
            credentials: keyring.lookup(repository),
            failures,
        }
    }

    async fn ask_one(&self, place: usize, repository: &str) -> Outcome {
        let asking = {
            let mut state = self.0.state();
            if let Some(known) = state.cache.find(place, repository, Instant::now()) {
                return Ok(known);
            }
            let key = (place, repository.to_owned());
            match state.asked.get(&key).and_then(WeakShared::upgrade) {
                Some(asking) => asking,
                None => {
                    let asking = self.asking(place, repository.to_owned());
                    state.asked.retain(|_, other| other.upgrade().is_some());
                    state
                        .asked
                        .extend(asking.downgrade().map(|weak| (key, weak)));
                    asking
                }
            }
        };
        asking.await
    }

    /// Runs the program when somebody waits for it, and only as long.
    fn asking(&self, place: usize, repository: String) -> Shared<Asking> {
        let inner = Arc::clone(&self.0);
        let asking = async move {
            let outcome = inner.run(place, &repository).await;
            if let Err(reason) = &outcome {
                let provider = &inner.programs[place].configured.name;
                tracing::warn!(provider, reason, "a program gave no credentials");
            }
            outcome
        };
        asking.boxed().shared()
    }
}

impl Inner {
    async fn run(&self, place: usize, repository: &str) -> Outcome {
        let program = &self.programs[place];
        let configured = &program.configured;
        let turn = self.runner.turn(&program.places).await;
        let turn = turn.map_err(|error| error.to_string())?;
        // Who ran meanwhile may have been told the same: an answer may be for a registry.
        if let Some(known) = self.state().cache.find(place, repository, Instant::now()) {
            return Ok(known);
        }
        let request = exchange::request(repository);
        let answer = self.runner.run(turn, configured, &request).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let answer = exchange::answer(&answer, configured.default_cache_duration);
        let answer = answer.map_err(|error| error.to_string())?;
        let now = Instant::now();
        self.state().cache.keep(place, repository, &answer, now);
        Ok(answer.keyring)
    }
}

#[cfg(test)]
mod tests;
