//! What is known of the images that were pulled for pods: by what, and which pulls by a
//! pod's credentials are under way. In memory, and in one file for the next run.
//!
//! Before such a pull its name is saved, and waited for; what came of it is saved after it.
//! For example: this process is killed, and the runtime finishes the pull. That image must
//! not count as one that was there before all pods, which every pod may have. So what is
//! listed under a name whose pull has no known end counts as pulled, and who wants it has to
//! pull it. A pull may go on in the runtime when nobody waits for it any more, so its name
//! is kept for as long as one may take.
//!
//! The file has no credential in it, and none can be made from it: [proofs](Proof) with a
//! key that is in it too. Deleting it at any time makes every image one that was there
//! before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cri::v1;
use pod::ImageReference;
use pull_credentials::Credential;
use serde::{Deserialize, Serialize};
use state_file::{Saver, Saving, StateFile, Writer};
use tokio::time::Instant;

use super::access::{ImageRecord, Key, Proof};
use super::queue::{HasBegun, locked};

/// Name of the file.
const FILE: &str = "pulled-images.json";
/// Format of the file.
const VERSION: u32 = 1;
/// Largest file; with as much as may be in it, it has less.
const MAX_FILE_BYTES: u64 = 24 << 20;
/// Most images that something is known of: far more than nodes have.
const MAX_IMAGES: usize = 2_000;
/// Most pulls of which the end is not known.
const MAX_INTENTS: usize = 1_000;
/// So long a pull may go on in the runtime of which the runtime told no end: as long as one
/// may take, and a little more.
const UNANSWERED_COUNTS_FOR: Duration = Duration::from_secs(61 * 60);
/// The same of one that this process gave up: the runtime has been told so.
const GIVEN_UP_COUNTS_FOR: Duration = Duration::from_secs(5 * 60);

/// What is in the file.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Content {
    key: Key,
    /// Pulls that may be under way, by the name as runtimes list it.
    intents: BTreeMap<String, Intent>,
    /// By the runtime's ids.
    images: BTreeMap<String, ImageRecord>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Intent {
    /// Which image was called that before the pull: that one was not made by it.
    before: Option<String>,
}

/// Saves what is known. Once it is dropped no write begins.
pub(crate) type PulledWriter = Writer<(), Content>;

/// Images that were pulled for pods. Clones share them.
#[derive(Clone)]
pub(crate) struct PulledImages(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    saver: Saver<(), Content>,
}

struct State {
    content: Content,
    /// How many wait for the end of each pull.
    waiting: BTreeMap<String, usize>,
    /// Until when pulls may go on of which nobody waits for the end.
    left: BTreeMap<String, Instant>,
    /// Counts what is learned.
    learned: u64,
    /// When, by that count, something was learned of an image last.
    learned_of: BTreeMap<String, u64>,
}

/// A pull by a pod's credentials cannot begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotIntended {
    #[error("it cannot be saved")]
    NotSaved(#[from] state_file::NotSaved),
    #[error("there are too many images of pull secrets")]
    TooMany,
}

/// A pull by a pod's credentials. One that is dropped and neither [answered](Self::answered)
/// nor [unanswered](Self::unanswered) was given up by this process; it may go on for a while.
pub(super) struct PullIntent {
    pulled: PulledImages,
    name: String,
    counts_for: Option<Duration>,
    has_begun: HasBegun,
}

impl PullIntent {
    /// It counts from when the runtime is asked: what ends before that made nothing.
    pub(super) fn counts_once(mut self, has_begun: HasBegun) -> PullIntent {
        self.has_begun = has_begun;
        self
    }

    /// The runtime has told what the pull came to.
    pub(super) fn answered(mut self) {
        self.counts_for = None;
    }

    /// The runtime gives no answer: nobody knows whether it goes on.
    pub(super) fn unanswered(mut self) {
        self.counts_for = Some(UNANSWERED_COUNTS_FOR);
    }
}

impl Drop for PullIntent {
    fn drop(&mut self) {
        let has_begun = self.has_begun.load(Ordering::Relaxed);
        let counts_for = self.counts_for.filter(|_| has_begun);
        self.pulled.ended(&self.name, counts_for);
    }
}

impl PulledImages {
    /// Reads the file in the state directory of this process. Blocks for that.
    pub(crate) fn open(state_directory: &Path) -> (PulledImages, PulledWriter) {
        let file = StateFile::new(state_directory.join(FILE), VERSION).at_most(MAX_FILE_BYTES);
        let loaded = file.load::<Content>().unwrap_or_else(|error| {
            let error = telemetry::chain(&error);
            tracing::error!(error, "every image counts as one that no pod has pulled");
            None
        });
        let content = loaded.unwrap_or_else(|| Content {
            key: rand::random(),
            intents: BTreeMap::new(),
            images: BTreeMap::new(),
        });
        let until = Instant::now() + UNANSWERED_COUNTS_FOR;
        let left = content.intents.keys().map(|name| (name.clone(), until));
        let state = State {
            left: left.collect(),
            content,
            waiting: BTreeMap::new(),
            learned: 0,
            learned_of: BTreeMap::new(),
        };
        let save = move |(): &(), content: &Content| file.save(content);
        let (saver, writer) = Saver::new("who may have which image", save);
        let state = Mutex::new(state);
        (PulledImages(Arc::new(Inner { state, saver })), writer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0.state)
    }

    fn save(&self, state: &State) -> Saving {
        self.0.saver.put((), state.content.clone())
    }

    /// What stands for these credentials.
    pub(super) fn proofs(&self, credentials: &[Credential]) -> Vec<Proof> {
        let key = self.state().content.key;
        let proofs = credentials.iter().map(|it| Proof::of(&key, it));
        proofs.collect()
    }

    /// What is known of an image of the runtime; nothing of one that was there before all
    /// pods.
    pub(super) fn record_of(&self, image: &v1::Image) -> Option<ImageRecord> {
        let state = &mut *self.state();
        if state.notice(image) {
            drop(self.save(state));
        }
        state.content.images.get(&image.id).cloned()
    }

    /// Saves that an image is about to be pulled by a pod's credentials, and waits for that.
    /// `before` is the image that has the name now.
    ///
    /// # Errors
    /// When it cannot be saved: the pull is not to begin.
    pub(super) async fn intend(
        &self,
        reference: ImageReference<'_>,
        before: Option<String>,
    ) -> Result<PullIntent, NotIntended> {
        let name = reference.listed();
        let mut saving = {
            let state = &mut *self.state();
            state.make_room()?;
            *state.waiting.entry(name.clone()).or_default() += 1;
            let intents = &mut state.content.intents;
            // Of one that may be under way already it is known what was there before.
            intents.entry(name.clone()).or_insert(Intent { before });
            self.save(state)
        };
        let intent = PullIntent {
            pulled: self.clone(),
            name,
            counts_for: Some(GIVEN_UP_COUNTS_FOR),
            has_begun: HasBegun::default(),
        };
        match saving.finished().await {
            Ok(()) => Ok(intent),
            Err(error) => {
                intent.answered();
                Err(error.into())
            }
        }
    }

    fn ended(&self, name: &str, counts_for: Option<Duration>) {
        let state = &mut *self.state();
        if let Some(counts_for) = counts_for {
            let until = Instant::now() + counts_for;
            // Another pull of the name may count for longer.
            let left = state.left.entry(name.to_owned()).or_insert(until);
            *left = until.max(*left);
        }
        if let Some(waiting) = state.waiting.get_mut(name) {
            *waiting -= 1;
        }
        state.waiting.retain(|_, waiting| *waiting > 0);
        let goes_on = state.waiting.contains_key(name) || state.left.contains_key(name);
        if !goes_on && state.content.intents.remove(name).is_some() {
            drop(self.save(state));
        }
    }

    /// An image was pulled: by a pod's credential, or by one of the node or by none.
    pub(super) fn learn(&self, id: &str, repository: &str, by: Option<&Credential>) {
        let state = &mut *self.state();
        let by = by.map(|credential| Proof::of(&state.content.key, credential));
        if by.is_none() && !state.content.images.contains_key(id) && state.make_room().is_err() {
            // Without a record everybody may have it too, unless the policy says otherwise.
            return;
        }
        state.learned += 1;
        state.learned_of.insert(id.to_owned(), state.learned);
        let record = state.content.images.entry(id.to_owned()).or_default();
        let before = record.clone();
        record.learn(repository, by);
        if *record != before {
            drop(self.save(state));
        }
    }

    /// To be told to [`PulledImages::listed`] after the runtime has listed its images.
    pub(crate) fn before_list(&self) -> u64 {
        self.state().learned
    }

    /// The runtime has these images and no others: what is known of others is forgotten,
    /// unless it was learned since `before`.
    pub(crate) fn listed(&self, before: u64, images: &[v1::Image]) {
        let state = &mut *self.state();
        let mut is_news = false;
        for image in images {
            is_news |= state.notice(image);
        }
        let ids: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        let count = state.content.images.len();
        let learned_of = &mut state.learned_of;
        state.content.images.retain(|id, _| {
            let is_newer = learned_of.get(id).is_some_and(|it| *it > before);
            is_newer || ids.contains(id.as_str())
        });
        let images = &state.content.images;
        learned_of.retain(|id, _| images.contains_key(id));
        is_news |= count != images.len();
        if state.forget_intents() || is_news {
            drop(self.save(state));
        }
    }
}

impl State {
    /// Takes an image for one that was pulled if it has come under the name of a pull that
    /// nobody has told the end of; whether that is news.
    fn notice(&mut self, image: &v1::Image) -> bool {
        if self.content.intents.is_empty() || self.content.images.contains_key(&image.id) {
            return false;
        }
        let names = image.repo_tags.iter().chain(&image.repo_digests);
        let mut names = names.filter_map(|name| Some(ImageReference::parse(name).ok()?.listed()));
        let has_come = names.any(|name| {
            let intent = self.content.intents.get(&name);
            intent.is_some_and(|it| it.before.as_ref() != Some(&image.id))
        });
        if has_come {
            tracing::warn!(
                image = image.id,
                names = image.repo_tags.join(", "),
                "it came while a pull of it by a pod's Secret may have been under way: no pod \
                 has it until it is pulled by a Secret, or removed and imported again later"
            );
            let nobody = ImageRecord::default();
            self.content.images.insert(image.id.clone(), nobody);
        }
        has_come
    }

    /// Forgets pulls that are over; whether there were any. To be called once all images have
    /// been [noticed](State::notice): one may have come of such a pull.
    fn forget_intents(&mut self) -> bool {
        let State { waiting, left, .. } = self;
        let now = Instant::now();
        left.retain(|_, until| now < *until);
        let count = self.content.intents.len();
        let intents = &mut self.content.intents;
        intents.retain(|name, _| waiting.contains_key(name) || left.contains_key(name));
        count != intents.len()
    }

    /// Makes room for one more image. What keeps it from nobody goes first: without a record
    /// it is the same, or is pulled once more.
    fn make_room(&mut self) -> Result<(), NotIntended> {
        let Content {
            intents, images, ..
        } = &mut self.content;
        if images.len() + intents.len() >= MAX_IMAGES {
            let mut open = images.iter().filter(|(_, record)| record.is_open());
            let goes = open.next().map(|(id, _)| id.clone());
            images.remove(&goes.ok_or(NotIntended::TooMany)?);
        }
        match intents.len() < MAX_INTENTS {
            true => Ok(()),
            false => Err(NotIntended::TooMany),
        }
    }
}
