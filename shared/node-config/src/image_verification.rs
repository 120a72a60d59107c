//! `imagePullCredentialsVerificationPolicy`: which images that are on the node a pod gets
//! only if it has what they are pulled by.

use serde::{Deserialize, Serialize};

/// What the field says, with `preloadedImagesVerificationAllowlist`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageVerification {
    /// `NeverVerify`: none.
    Never,
    /// `NeverVerifyPreloadedImages`: those that were pulled for a pod.
    #[default]
    NotOfPreloaded,
    /// `NeverVerifyAllowlistedImages`: all but these, named with their registry and without
    /// tag and digest. What ends with `/*` stands for all that begin like it.
    AllBut(Vec<String>),
    /// `AlwaysVerify`: all.
    Always,
}

impl ImageVerification {
    /// Whether it is about an image that is called this (registry and path), and that was
    /// pulled for a pod or not.
    #[must_use]
    pub fn is_about(&self, repository: &str, was_pulled: bool) -> bool {
        let is_listed = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => repository.starts_with(prefix),
            None => repository == pattern,
        };
        match self {
            ImageVerification::Never => false,
            ImageVerification::NotOfPreloaded => was_pulled,
            ImageVerification::AllBut(listed) => !listed.iter().any(is_listed),
            ImageVerification::Always => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_says_of_which_images_a_pod_must_show_that_it_may_have_them() {
        let listed = ["a.io/web", "b.io/team/*"].map(str::to_owned).to_vec();
        let all_but = ImageVerification::AllBut(listed);
        for (policy, repository, preloaded, pulled) in [
            (&ImageVerification::Never, "a.io/web", false, false),
            (&ImageVerification::default(), "a.io/web", false, true),
            (&ImageVerification::Always, "a.io/web", true, true),
            (&all_but, "a.io/web", false, false),
            (&all_but, "a.io/web2", true, true),
            (&all_but, "a.io/web/more", true, true),
            (&all_but, "b.io/team/x/y", false, false),
            (&all_but, "b.io/team", true, true),
            (&all_but, "b.io/teams/x", true, true),
        ] {
            let found = [false, true].map(|was_pulled| policy.is_about(repository, was_pulled));
            assert_eq!(found, [preloaded, pulled], "{policy:?} {repository}");
        }
    }
}
