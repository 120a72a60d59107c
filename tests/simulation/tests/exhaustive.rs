//! A part of the exhaustive mode; `cargo xtask sim -- --exhaustive` plays all of it.

use simulated_runtime::Mishap;
use simulation::{Case, play_case};

/// Every so many calls one meets a mishap.
const STEP: usize = 23;

/// Plays until fewer calls are made than come before the one that would meet a mishap.
fn with_pods(pods: u32) {
    for mishap in Mishap::ALL {
        for before in (0..).step_by(STEP) {
            let case = Case {
                seed: 1,
                pods,
                before,
                mishap,
            };
            match play_case(case) {
                Ok(true) => {}
                Ok(false) => break,
                Err(problem) => panic!("{problem}"),
            }
        }
    }
}

#[test]
fn a_pod_comes_and_goes_whatever_happens_to_a_call() {
    with_pods(1);
}

#[test]
fn two_pods_come_and_go_whatever_happens_to_a_call() {
    with_pods(2);
}
