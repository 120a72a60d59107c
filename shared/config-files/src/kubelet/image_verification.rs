//! Whether a pod gets an image that is on the node without what it is pulled by
//! (KEP-2535), and the feature gate of that, which is on unless it is said to be off
//! (Kubernetes 1.35).

use std::collections::BTreeMap;

use node_config::{ImageSettings, ImageVerification};
use pod::ImageReference;

use super::problem::{Applied, refused};

/// The feature gate that switches it off.
pub(super) const GATE: &str = "KubeletEnsureSecretPulledImages";

const POLICY: &str = "imagePullCredentialsVerificationPolicy";
const ALLOWLIST: &str = "preloadedImagesVerificationAllowlist";

/// What a configuration gives of it.
pub(super) struct Given<'a> {
    pub(super) policy: &'a str,
    pub(super) allowlist: &'a [String],
    pub(super) gates: &'a BTreeMap<String, bool>,
}

impl Given<'_> {
    pub(super) fn apply(&self, images: &mut ImageSettings) -> Applied {
        if self.gates.get(GATE) == Some(&false) {
            let fields = [
                (POLICY, self.policy.is_empty()),
                (ALLOWLIST, self.allowlist.is_empty()),
            ];
            if let Some((field, _)) = fields.iter().find(|(_, is_absent)| !is_absent) {
                return refused(field, format!("needs the feature gate {GATE}"));
            }
            images.verification = ImageVerification::Never;
            return Ok(());
        }
        images.verification = match self.policy {
            "NeverVerify" => ImageVerification::Never,
            "" | "NeverVerifyPreloadedImages" => ImageVerification::NotOfPreloaded,
            "NeverVerifyAllowlistedImages" => ImageVerification::AllBut(self.allowlist.to_vec()),
            "AlwaysVerify" => ImageVerification::Always,
            other => {
                let reason = format!(
                    "{other}: give NeverVerify, NeverVerifyPreloadedImages, \
                     NeverVerifyAllowlistedImages or AlwaysVerify"
                );
                return refused(POLICY, reason);
            }
        };
        if !matches!(images.verification, ImageVerification::AllBut(_)) {
            return match self.allowlist {
                [] => Ok(()),
                _ => {
                    let reason = format!("counts with {POLICY}: NeverVerifyAllowlistedImages only");
                    refused(ALLOWLIST, reason)
                }
            };
        }
        match self.allowlist.iter().find(|it| !is_pattern(it)) {
            None => Ok(()),
            Some(wrong) => {
                let reason = format!(
                    "{wrong:?}: give a registry and a repository, without tag and digest, or what \
                     all begin with and /*"
                );
                refused(ALLOWLIST, reason)
            }
        }
    }
}

/// Whether a kubelet takes it.
fn is_pattern(pattern: &str) -> bool {
    match pattern.strip_suffix("/*") {
        Some(prefix) => !prefix.is_empty() && pattern.trim() == pattern && !prefix.contains('*'),
        None => ImageReference::parse(pattern).is_ok_and(|it| it.repository() == pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tests::apply;

    /// What it comes to, and the fields that are warned of.
    fn applied(body: &str) -> Result<(ImageVerification, Vec<String>), String> {
        let (config, warnings) = apply(body)?;
        let warned = warnings.into_iter().map(|warning| warning.field);
        Ok((config.images.verification, warned.collect()))
    }

    #[test]
    fn each_policy_arrives_and_the_gate_switches_it_off() {
        let all_but = |listed: &[&str]| {
            let listed = listed.iter().map(|&it| it.to_owned());
            ImageVerification::AllBut(listed.collect())
        };
        let policy = |word: &str| format!("{POLICY}: {word}");
        let listed = "[a.io/web, \"a.io:5000/*\", docker.io/library/nginx, \"b.io/team/*\"]";
        let listed = format!("{POLICY}: NeverVerifyAllowlistedImages\n{ALLOWLIST}: {listed}");
        for (body, expected) in [
            (String::new(), ImageVerification::NotOfPreloaded),
            (policy("''"), ImageVerification::NotOfPreloaded),
            (
                policy("NeverVerifyPreloadedImages"),
                ImageVerification::NotOfPreloaded,
            ),
            (policy("NeverVerify"), ImageVerification::Never),
            (policy("AlwaysVerify"), ImageVerification::Always),
            (policy("NeverVerifyAllowlistedImages"), all_but(&[])),
            (
                listed,
                all_but(&[
                    "a.io/web",
                    "a.io:5000/*",
                    "docker.io/library/nginx",
                    "b.io/team/*",
                ]),
            ),
            (
                format!("featureGates: {{{GATE}: true}}"),
                ImageVerification::NotOfPreloaded,
            ),
            (
                format!("featureGates: {{{GATE}: false}}"),
                ImageVerification::Never,
            ),
        ] {
            assert_eq!(applied(&body), Ok((expected, Vec::new())), "{body}");
        }
    }

    #[test]
    fn what_a_kubelet_refuses_is_refused_by_name() {
        let error = applied(&format!("{POLICY}: Sometimes")).unwrap_err();
        assert!(
            error.contains(POLICY) && error.contains("Sometimes"),
            "{error}"
        );
        let off = format!("featureGates: {{{GATE}: false}}\n{POLICY}: NeverVerify");
        assert!(applied(&off).unwrap_err().contains(GATE));
        let without = format!("{ALLOWLIST}: [a.io/web]");
        assert!(applied(&without).unwrap_err().contains(ALLOWLIST));
        for wrong in [
            "a.io/web:1",
            "nginx",
            " a.io/web",
            "a.io/*/web",
            "*",
            "/*",
            "a.io/w*",
            "''",
            " a.io/*",
            "a.io/*/*",
        ] {
            let policy = format!("{POLICY}: NeverVerifyAllowlistedImages");
            let error = applied(&format!("{policy}\n{ALLOWLIST}: [\"{wrong}\"]")).unwrap_err();
            assert!(error.contains(ALLOWLIST), "{wrong}: {error}");
        }
    }
}
