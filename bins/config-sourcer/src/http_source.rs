//! A URL as a source of pods: asked every `httpCheckFrequency`. Whatever goes
//! wrong leaves the pods that were got last as they are.

use std::convert::Infallible;

use clock::WallClock;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use node_config::HttpSource as Settings;
use pod::PodSource;
use pod::wire::content_hash;
use pod_manifest::{ManifestNode, Origin, static_pods};
use tokio::time::MissedTickBehavior;

use crate::files::documents;
use crate::http_client::{HttpClient, HttpRequest, shown};
use crate::publication::Publication;
use crate::reader::timestamp;
use crate::snapshot::{Owners, PodSet, Problem, assemble, fits, no_room};

/// The manifest URL.
#[derive(Debug)]
pub(crate) struct HttpSource {
    settings: Settings,
    node: ManifestNode,
    clock: WallClock,
    publication: Publication,
    /// Hash of the answer that was judged last, and what is wrong with it.
    judged: Option<(String, Vec<Problem>)>,
}

impl HttpSource {
    /// Nothing is asked yet.
    #[must_use]
    pub(crate) fn new(
        settings: Settings,
        node: impl Into<ManifestNode>,
        clock: WallClock,
        publication: Publication,
    ) -> Self {
        Self {
            settings,
            node: node.into(),
            clock,
            publication,
            judged: None,
        }
    }

    /// Asks for ever.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut tick = tokio::time::interval(self.settings.check_frequency);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let request = request(&self.settings);
        let mut client = HttpClient::new(self.clock.clone());
        loop {
            tick.tick().await;
            match &request {
                Ok(request) => match client.get(request).await {
                    Ok(body) => self.judge(&body),
                    Err(error) => self.failed(telemetry::chain(&error)),
                },
                Err(problem) => self.failed((*problem).to_owned()),
            }
        }
    }

    fn subject(&self) -> String {
        shown(&self.settings.url)
    }

    /// No answer: what was known stands.
    fn failed(&self, reason: String) {
        let problem = Problem::new(self.subject(), reason);
        self.publication
            .set(PodSource::Http, false, None, vec![problem]);
    }

    fn judge(&mut self, body: &[u8]) {
        let hash = content_hash(body);
        if let Some((judged, problems)) = &self.judged
            && *judged == hash
        {
            let ready = problems.is_empty();
            self.publication
                .set(PodSource::Http, ready, None, problems.clone());
            return;
        }
        let published = self.publication.pods(PodSource::Http);
        match self.pods(body, &published) {
            Ok((pods, problems)) => {
                self.publication
                    .set(PodSource::Http, true, Some(pods), problems.clone());
                self.judged = Some((hash, problems));
            }
            Err(problems) => {
                self.publication
                    .set(PodSource::Http, false, None, problems.clone());
                self.judged = Some((hash, problems));
            }
        }
    }

    fn pods(
        &self,
        body: &[u8],
        published: &PodSet,
    ) -> Result<(PodSet, Vec<Problem>), Vec<Problem>> {
        let subject = self.subject();
        let judged = static_pods(body, Origin::Url(&self.settings.url), &self.node);
        let now = timestamp(self.clock.now());
        let (pods, mut found) =
            documents(&subject, judged, published.values(), &now, PodSource::Http)?;
        if !fits(&pods) {
            return Err(vec![no_room(&subject)]);
        }
        let (pods, _, problems) = assemble([(subject.as_str(), pods.as_slice())], &Owners::new());
        found.extend(problems);
        Ok((pods, found))
    }
}

/// The request that the settings ask for, or what is wrong with them.
fn request(settings: &Settings) -> Result<HttpRequest, &'static str> {
    let uri: Uri = settings.url.parse().map_err(|_| "is no URL")?;
    let mut headers = HeaderMap::new();
    for (name, values) in &settings.headers {
        let name: HeaderName = name
            .parse()
            .map_err(|_| "has a header with an invalid name")?;
        for value in values {
            let mut value =
                HeaderValue::from_str(value).map_err(|_| "has a header with an invalid value")?;
            // It may be a password.
            value.set_sensitive(true);
            headers.append(name.clone(), value);
        }
    }
    Ok(HttpRequest { uri, headers })
}

#[cfg(test)]
mod tests;
