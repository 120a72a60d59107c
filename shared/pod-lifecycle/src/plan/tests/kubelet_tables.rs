//! The cases of the kubelet's tables for computePodActions (`TestComputePodActions` and
//! those `WithInitContainers`, `WithRestartableInitContainers`, `WithContainerRestartRules`),
//! one row each, in our words. What a kubelet decides at once this plan decides in two
//! steps where something is stopped: the stop first, and what follows when it has ended.
//!
//! Columns: the case; policies of the pod for which the outcome is the same; instances, in
//! state `run`, `created`, `unknown` or `exit` with a code; what else is special, in words
//! of [`Row::set_up`]; what is done; and what after all that is stopped has ended. Where an
//! outcome differs from a kubelet's, the row says so, and a comment why.

use super::*;

struct Row<'a> {
    case: &'a str,
    policies: &'a [&'a str],
    has: &'a str,
    with: &'a str,
    does: &'a str,
    then: &'a str,
}

fn check(table: &str, new_case: impl Fn(&str) -> Case) {
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        let mut columns = line.split('|').map(str::trim);
        let mut next = || columns.next().unwrap_or_default();
        let row = Row {
            case: next(),
            policies: match next() {
                "all" => &["Always", "OnFailure", "Never"],
                "restarts" => &["Always", "OnFailure"],
                "Always" => &["Always"],
                "OnFailure" => &["OnFailure"],
                "Never" => &["Never"],
                other => panic!("{other:?} in {line}"),
            },
            has: next(),
            with: next(),
            does: next(),
            then: next(),
        };
        row.check(&new_case);
    }
}

fn state(word: &str) -> ContainerState {
    match word {
        "run" => running(),
        "created" => ContainerState::Created,
        "unknown" => ContainerState::Unknown,
        exit => exited(exit.strip_prefix("exit").unwrap().parse().unwrap()),
    }
}

fn pair(word: &str, between: char) -> (&str, &str) {
    word.split_once(between).unwrap_or((word, ""))
}

impl Row<'_> {
    fn set_up(&self, mut case: Case) -> Case {
        for (names, word) in self.has.split_whitespace().map(|it| pair(it, ':')) {
            for name in names.split(',') {
                case.has(name, state(word));
            }
        }
        let probe = json!({"exec": {"command": ["x"]}});
        for (word, of) in self.with.split_whitespace().map(|it| pair(it, ':')) {
            let (name, value) = pair(of, '=');
            let id = format!("{name}-0");
            match word {
                "no-sandbox" => case.observation.sandboxes.clear(),
                "lost" => _ = case.lost(),
                "no-address" => {
                    let none = SandboxNetwork::Pod { ips: Vec::new() };
                    case.observation.sandboxes[0].network = none;
                }
                "changed" => case.spec(name)["image"] = json!("i:2"),
                "not-live" => {
                    case.spec(name)["livenessProbe"] = probe.clone();
                    case.failed_probes.not_live.insert(id);
                }
                "not-started" => {
                    case.spec(name)["startupProbe"] = probe.clone();
                    case.failed_probes.not_started.insert(id);
                }
                "starting" => _ = case.failed_probes.started.remove(&id),
                "own" => case.spec(name)["restartPolicy"] = json!(value),
                "rule" => {
                    let codes: Vec<i32> = vec![value.parse().unwrap()];
                    let codes = json!({"operator": "In", "values": codes});
                    let rule = json!({"action": "Restart", "exitCodes": codes});
                    case.spec(name)["restartPolicyRules"] = json!([rule]);
                }
                other => panic!("{other:?}"),
            }
        }
        case
    }

    fn check(&self, new_case: impl Fn(&str) -> Case) {
        for policy in self.policies {
            let mut case = self.set_up(new_case(policy));
            let what = format!("{} ({policy})", self.case);
            assert_eq!(words(&case.plan()), self.does, "{what}");
            if self.then.is_empty() {
                continue;
            }
            for stop in case.work().stops {
                case.container(&stop.name).state = exited(137);
                case.kills.insert(stop.container_id, stop.reason.unwrap());
            }
            assert_eq!(words(&case.plan()), self.then, "{what}, then");
        }
    }
}

impl Case {
    fn spec(&mut self, name: &str) -> &mut Value {
        let spec = self.pod["spec"].as_object_mut().unwrap();
        let lists = spec
            .iter_mut()
            .filter(|(key, _)| ["initContainers", "containers"].contains(&key.as_str()));
        let mut all = lists.flat_map(|(_, list)| list.as_array_mut().unwrap());
        all.find(|it| it["name"] == name).unwrap()
    }
}

fn words(plan: &Plan) -> String {
    let work = match plan {
        Plan::End(TerminationCause::Completed) => return "end".to_owned(),
        Plan::NewSandbox { attempt, first, .. } => {
            return format!("sandbox {attempt}: {}", first.join(" "));
        }
        Plan::Work(work) => work,
        other => return format!("{other:?}"),
    };
    let stops = work.stops.iter().map(|it| format!("stop {}", it.name));
    let starts = work.starts.iter().map(|it| it.name.as_str());
    let mut all: Vec<String> = stops.collect();
    let starts: Vec<&str> = starts.collect();
    if !starts.is_empty() {
        all.push(format!("start {}", starts.join(" ")));
    }
    match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.join(", "),
    }
}

#[test]
fn pods_of_ordinary_containers() {
    let table = "
        as desired                | all       | a,b,c:run                |            | nothing
        new                       | all       |                          | no-sandbox | sandbox 0: a b c
        exited                    | Always    | a:exit0 b:exit111 c:run  |            | start a b
        failed, and succeeded     | OnFailure | a:exit0 b:exit111 c:run  |            | start b
        ended for good            | Never     | a:exit0 b:exit111 c:run  |            | nothing
        dead sandbox              | Always    | a,b,c:run                | lost       | sandbox 1: a b c
        dead, one has succeeded   | OnFailure | a,c:run b:exit0          | lost       | sandbox 1: a c
        sandbox without address   | restarts  | a,b,c:run                | no-address | sandbox 1: a b c
        changed                   | all       | a,b,c:run                | changed:b  | stop b | start b
        not live                  | restarts  | a,b,c:run                | not-live:b | stop b | start b
        not live, for good        | Never     | a,b,c:run                | not-live:b | stop b | nothing
        not started               | restarts  | a,b,c:run                | not-started:b | stop b | start b
        dead, all ended           | Never     | a,b,c:exit0              | lost       | end
        dead, all succeeded       | OnFailure | a,b,c:exit0              | lost       | end
        dead, nothing ever made   | all       |                          | lost       | sandbox 1: a b c
        unknown                   | all       | a,c:run b:unknown        |            | stop b | start b
    ";
    check(table, Case::bare);
}

#[test]
fn pods_with_init_containers() {
    let table = "
        all succeeded             | all       | i1,i2,i3:exit0           |            | start a b c
        none started              | all       |                          |            | start i1
        the last one runs         | all       | i1,i2:exit0 i3:run       |            | nothing
        dead sandbox              | restarts  | i1,i2,i3:exit0           | lost       | sandbox 1: i1
        failed                    | restarts  | i1,i2:exit0 i3:exit137   |            | start i3
        failed for good           | Never     | i1,i2:exit0 i3:exit137   |            | end
        unknown                   | restarts  | i1,i2:exit0 i3:unknown   |            | stop i3 | start i3
        unknown, for good         | Never     | i1,i2:exit0 i3:unknown   |            | end
        dead, they have run       | Never     | i1,i2,i3:exit0           | lost       | end
        dead, none has run        | Never     |                          | lost       | sandbox 1: i1
        dead, failed              | OnFailure | i1,i2:exit0 i3:exit137   | lost       | sandbox 1: i1
        the first were collected  | Always    | i3:run                   |            | nothing
        made and not started      | all       | i1,i2:exit0 i3:created   |            | start i3
    ";
    check(table, Case::with_init);
}

/// Sidecars s1, s2 and s3, of which the last two have startup probes that have succeeded.
fn with_sidecars(policy: &str) -> Case {
    let mut case = Case::bare(policy);
    case.pod["spec"]["initContainers"] = ["s1", "s2", "s3"]
        .map(|name| json!({"name": name, "image": "i:1", "restartPolicy": "Always"}))
        .into();
    for name in ["s2", "s3"] {
        case.spec(name)["startupProbe"] = json!({"exec": {"command": ["x"]}});
        case.failed_probes.started.insert(format!("{name}-0"));
    }
    case
}

/// Where a sidecar is stopped before the containers after it were started, a kubelet starts
/// those beside the stop. Here stops come before everything else, and what follows a sidecar
/// that has not started it yet waits until the sidecar runs: it would start without it.
#[test]
fn pods_with_sidecars() {
    let table = "
        all started               | all       | s1,s2,s3:run             |            | start a b c
        none started              | all       |                          |            | start s1
        made and not started      | all       | s1,s2:run s3:created     |            | start s3
        the first one runs        | all       | s1:run                   |            | start s2
        startup has succeeded     | all       | s1,s2:run                |            | start s3
        startup tells nothing yet | all       | s1,s2:run                | starting:s2 | nothing
        not live (differs)        | all       | s1,s2,s3:run             | not-live:s3 | stop s3 | start s3
        startup failed            | all       | s1,s2,s3:run             | not-started:s3 | stop s3 | start s3
        changed (differs)         | all       | s1,s2,s3:run             | changed:s3 | stop s3 | start s3
        two ended                 | all       | s1,s3:exit0 s2:run       |            | start s1 s3
        the first one ended       | all       | s1:exit0 s2,s3:run       |            | start s1 a b c
        dead, for good            | Never     | s1,s2:run s3:exit137     | lost       | end
        dead, none has run        | Never     |                          | lost       | sandbox 1: s1
        dead, failed              | restarts  | s1,s2:run s3:exit137     | lost       | sandbox 1: s1
        failed                    | all       | s1,s2:run s3:exit137     |            | start s3
        unknown                   | all       | s1,s2:run s3:unknown     |            | stop s3 | start s3
        failed beside others      | all       | s1,s2,a,b,c:run s3:exit1 |            | start s3
        the others have succeeded | Never     | s1,s2,s3:run a,b,c:exit0 |            | end
        the first ones are gone   | all       | s3:run                   |            | start s1 s2 a b c
    ";
    check(table, with_sidecars);
}

#[test]
fn containers_with_policies_and_rules_of_their_own() {
    let table = "
        always         | Never  | a:exit0 b:exit111 c:run | own:a=Always own:b=Always       | start a b
        on failure     | Never  | a:exit0 b:exit111 c:run | own:a=OnFailure own:b=OnFailure | start b
        never          | Always | a:exit0 b:exit111 c:run | own:a=Never own:b=Never         | nothing
        a rule matches | Never  | a,c:run b:exit111       | own:b=Never rule:b=111          | start b
        no rule does   | Never  | a,c:run b:exit111       | own:b=Never rule:b=3            | nothing
        not live       | Never  | a,b,c:run               | own:b=Always not-live:b         | stop b | start b
        not live, left | Always | a,b,c:run               | own:b=Never not-live:b          | stop b | nothing
        unknown        | Never  | a,c:run b:unknown       | own:b=Never                     | stop b | start b
        dead sandbox   | Never  | a,b,c:exit0             | own:b=Always lost               | sandbox 1: b
    ";
    check(table, Case::bare);
}
