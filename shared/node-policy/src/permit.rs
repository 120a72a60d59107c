//! What one pod may have, and the decision about each of its demands.

use std::fmt;
use std::sync::Arc;

use pod::Pod;

use crate::demand::Demand;
use crate::grant::Grant;
use crate::level::Level;
use crate::path::{NodePath, NodePathError};
use crate::pod_demands::demands_of;
use crate::protected::{Protected, Standing};
use crate::smallest::smallest_grant;
use crate::subject::Subject;

/// What one pod may have: the level of its source and the grants that are for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    pub(crate) subject: Subject,
    pub(crate) level: Level,
    /// Those for this pod; their images are matched at each check.
    pub(crate) grants: Vec<Arc<Grant>>,
    pub(crate) protected: Arc<Protected>,
}

/// The rule by which a demand is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The level of the pod's source does not allow it.
    Level(Level),
    /// It is protected: only a grant that names it gives it.
    Protected {
        /// Completes "it is ..." or "it contains ...".
        what: String,
        /// Whether the demand is for something above it.
        contains: bool,
    },
    /// It is not a path that could be granted.
    Path(NodePathError),
}

/// A demand that a pod may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was demanded.
    pub demand: Demand,
    /// Why it is refused.
    pub rule: Rule,
    /// The smallest grant that would allow it to this pod; none would allow a path
    /// that is not one.
    pub grant: Option<Box<Grant>>,
}

/// A refusal with where in the pod the demand was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The field's path in the pod.
    pub field: String,
    /// The container, if one asks for it.
    pub container: Option<String>,
    /// What is refused.
    pub refusal: Refusal,
}

impl Permit {
    /// Whether the pod may have it. `image` is that of the container that demands it,
    /// as the pod names it (not an image's id); `None` for the pod as a whole.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(&self, demand: &Demand, image: Option<&str>) -> Result<(), Refusal> {
        let rule = match self.protection(demand) {
            Some(rule) => rule,
            None if self.level.allows(demand) => return Ok(()),
            None => Rule::Level(self.level),
        };
        let is_granted = |grant: &Arc<Grant>| {
            grant.is_for_image(image, &self.subject.images) && grant.covers(demand, &self.protected)
        };
        if self.grants.iter().any(is_granted) {
            return Ok(());
        }
        Err(Refusal {
            grant: smallest_grant(&self.subject, demand, &self.protected).map(Box::new),
            demand: demand.clone(),
            rule,
        })
    }

    /// The rule that takes a demand out of what levels give, if there is one.
    fn protection(&self, demand: &Demand) -> Option<Rule> {
        let protected = |what: &str, contains| Rule::Protected {
            what: what.to_owned(),
            contains,
        };
        match demand {
            Demand::HostPath { path, .. } => match NodePath::parse(path) {
                Err(error) => Some(Rule::Path(error)),
                Ok(path) => match self.protected.standing(&path) {
                    Standing::Apart => None,
                    Standing::Within(_, what) => Some(protected(what, false)),
                    Standing::Above(_, what) => Some(protected(what, true)),
                },
            },
            Demand::Device { path, block } => match NodePath::parse(path) {
                Err(error) => Some(Rule::Path(error)),
                Ok(_) => block.then(|| protected("a disk", false)),
            },
            Demand::User(user) => self
                .protected
                .user(*user)
                .map(|what| protected(what, false)),
            Demand::Group(group) => self
                .protected
                .group(*group)
                .map(|what| protected(what, false)),
            _ => None,
        }
    }

    /// Whether a pod asks for anything that `baseline` does not give to every pod. Whoever
    /// runs commands in such a pod has that too.
    #[must_use]
    pub fn is_beyond_baseline(&self, pod: &Pod) -> bool {
        let is_beyond =
            |demand: &Demand| self.protection(demand).is_some() || !Level::Baseline.allows(demand);
        let mut demands = demands_of(pod).into_iter();
        demands.any(|demand| is_beyond(&demand.demand))
    }

    /// Whom it is for.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The level of its source.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Level(level) => write!(formatter, "at level {level}"),
            Rule::Protected { what, contains } => {
                let verb = if *contains { "contains" } else { "is" };
                write!(formatter, "without a grant that names it: it {verb} {what}")
            }
            Rule::Path(error) => error.fmt(formatter),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal {
            demand,
            rule,
            grant,
        } = self;
        if let Rule::Path(error) = rule {
            return write!(formatter, "{demand} is refused: {error}");
        }
        write!(formatter, "{demand} is not allowed {rule}")?;
        match grant {
            Some(grant) => write!(
                formatter,
                "; this grant would allow it: {}",
                grant.to_inline_toml()
            ),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// What is no path cannot be had.
    pub(crate) fn of_path(demand: &Demand, error: NodePathError) -> Refusal {
        Refusal {
            demand: demand.clone(),
            rule: Rule::Path(error),
            grant: None,
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.refusal)
    }
}
