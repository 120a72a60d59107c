//! Health, as a kubelet reports it: `ok`, or which check has failed.

use std::sync::Arc;

use http::{Response, StatusCode};

use crate::answer::{self, Body};
use crate::node::Node;
use crate::query::Query;

/// How long the loop may not have gone round (kubelet: twice the resync interval, at least
/// five minutes).
const MAX_LOOP_MILLIS: u64 = 300_000;

/// The kubelet's checks. Only the loop's looks at anything: to answer proves the others.
const CHECKS: [&str; 3] = ["ping", "log", "syncloop"];

/// Answers `/healthz`, or one check of it.
pub(crate) async fn health(node: &Arc<Node>, check: &str, query: &Query) -> Response<Body> {
    if !check.is_empty() && !CHECKS.contains(&check) {
        return answer::text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let is_asked = |it: &&str| (check.is_empty() || check == *it) && !excluded.contains(it);
    let asked: Vec<&str> = CHECKS.into_iter().filter(is_asked).collect();
    let loop_is_well = !asked.contains(&"syncloop") || loop_is_well(node).await;
    let is_verbose = query.first("verbose").is_some();
    let (is_well, text) = report(&asked, loop_is_well, is_verbose);
    let status = match is_well {
        true => StatusCode::OK,
        false => StatusCode::INTERNAL_SERVER_ERROR,
    };
    answer::text(status, text)
}

async fn loop_is_well(node: &Arc<Node>) -> bool {
    let status = node.loop_status().await;
    status.is_ok_and(|status| status.millis_since_last_iteration < MAX_LOOP_MILLIS)
}

/// Whether all that was asked for is well, and the text that says so.
fn report(asked: &[&str], loop_is_well: bool, is_verbose: bool) -> (bool, String) {
    let is_well = |check: &str| check != "syncloop" || loop_is_well;
    let are_all_well = asked.iter().all(|check| is_well(check));
    let lines: String = asked
        .iter()
        .map(|check| match is_well(check) {
            true => format!("[+]{check} ok\n"),
            false => format!("[-]{check} failed: reason withheld\n"),
        })
        .collect();
    let text = match (are_all_well, is_verbose) {
        (true, false) => "ok".to_owned(),
        (true, true) => format!("{lines}healthz check passed\n"),
        (false, _) => format!("{lines}healthz check failed\n"),
    };
    (are_all_well, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_failed_is_named() {
        assert_eq!(report(&CHECKS, true, false), (true, "ok".to_owned()));
        let verbose = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n";
        assert_eq!(report(&CHECKS, true, true), (true, verbose.to_owned()));
        let failed =
            "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
        assert_eq!(report(&CHECKS, false, false), (false, failed.to_owned()));
        assert_eq!(report(&["ping"], false, false), (true, "ok".to_owned()));
    }
}
