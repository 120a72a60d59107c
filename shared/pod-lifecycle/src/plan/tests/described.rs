//! Plans in words.

use super::*;

#[test]
fn a_plan_without_work_says_what_it_waits_for() {
    let hook = |case: &mut Case, how_far: fn(&mut Known)| {
        case.pod["spec"]["containers"][1]["lifecycle"] =
            json!({"postStart": {"sleep": {"seconds": 900}}});
        case.has("b", running());
        case.known.note_start("b-0", true);
        how_far(&mut case.known);
    };
    let describe = |case: &Case| {
        let circumstances = Circumstances {
            pod: &pod(case.pod.clone()),
            observation: &case.observation,
            known: &case.known,
            refused: case.refused.as_ref(),
        };
        describe(&case.plan(), &circumstances, NOW)
    };
    let case = |change: &dyn Fn(&mut Case)| {
        let mut case = Case::new("Always");
        change(&mut case);
        describe(&case)
    };
    let as_desired = "nothing to do: the pod is as desired";
    assert_eq!(case(&|_| ()), as_desired);
    assert_eq!(
        case(&|it| hook(it, |_| ())),
        "begin the postStart hook of b"
    );
    assert_eq!(
        case(&|it| hook(it, |known| known.note_begun_post_start("b-0"))),
        "the postStart hook of b has not ended"
    );
    assert_eq!(
        case(&|it| hook(it, |known| known.note_ended_post_start("b-0", true))),
        as_desired
    );
    let refused = Refused {
        reason: REFUSED_REASON,
        message: "hostNetwork is not granted".to_owned(),
        ends_what_runs: false,
    };
    assert_eq!(
        case(&|it| it.refused = Some(refused.clone())),
        "nothing is started: RefusedByNodePolicy"
    );
    assert_eq!(
        case(&|it| {
            it.lost();
            it.observation.sandboxes[0].created_at = NOW;
        }),
        "wait a moment before the next sandbox"
    );
    let mut init = Case::with_init("Always");
    init.has("i1", running());
    assert_eq!(describe(&init), "init container i1 has not ended");
}
