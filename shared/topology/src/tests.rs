//! Properties of the table as a whole.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_process_has_exactly_one_row_in_start_order() {
    let rows: Vec<Process> = PROCESSES.iter().map(|row| row.process).collect();
    assert_eq!(rows, Process::ALL);
}

#[test]
fn names_round_trip() {
    for process in Process::ALL {
        assert_eq!(process.name().parse(), Ok(process));
    }
    assert_eq!(
        "kubelet".parse::<Process>(),
        Err(UnknownProcess("kubelet".to_owned()))
    );
}

#[test]
fn calls_form_a_dag_and_the_supervisor_calls_nobody() {
    let mut remaining: BTreeSet<(Process, Process)> = edges()
        .filter_map(|edge| match edge.caller {
            Caller::Process(caller) => Some((caller, edge.server)),
            Caller::Operator => None,
        })
        .collect();
    assert!(
        remaining
            .iter()
            .all(|(caller, _)| *caller != Process::Supervisor)
    );
    // Take away processes that call nobody until nothing is left.
    loop {
        let callers: BTreeSet<Process> = remaining.iter().map(|(caller, _)| *caller).collect();
        let before = remaining.len();
        remaining.retain(|(_, server)| callers.contains(server));
        if remaining.len() == before {
            break;
        }
    }
    assert!(remaining.is_empty(), "a cycle of calls: {remaining:?}");
}

#[test]
fn only_the_pool_and_the_supervisor_are_root_and_only_they_have_capabilities() {
    for row in PROCESSES {
        let privileged = matches!(row.process, Process::Supervisor | Process::PodWorkerPool);
        assert_eq!(row.root, privileged, "{}", row.process);
        assert_eq!(row.capabilities.is_empty(), !privileged, "{}", row.process);
    }
}

#[test]
fn a_stranger_may_call_nothing() {
    let identities = Identities::from_base(64_000).unwrap();
    for row in PROCESSES {
        for service in row.services {
            assert!(!identities.permits(65_534, row.process, service.service));
        }
    }
}

#[test]
fn identities_permit_exactly_the_edges() {
    let identities = Identities::from_base(64_000).unwrap();
    for caller in Process::ALL
        .into_iter()
        .filter(|process| !row(*process).root)
    {
        for server in PROCESSES {
            for service in server.services {
                let permitted = service.callers.contains(&Caller::Process(caller));
                let uid = identities.uid(caller);
                assert_eq!(
                    identities.permits(uid, server.process, service.service),
                    permitted
                );
            }
        }
    }
}

#[test]
fn missing_and_shared_users_are_refused() {
    let missing = Identities::from_users(|_| None);
    assert!(matches!(missing, Err(IdentityError::MissingUser { .. })));
    let shared = Identities::from_users(|_| Some(990));
    assert!(matches!(
        shared,
        Err(IdentityError::Shared { uid: 990, .. })
    ));
    let low = Identities::from_base(5);
    assert!(matches!(
        low,
        Err(IdentityError::BaseOutOfRange { base: 5 })
    ));
}

#[test]
fn the_table_names_exactly_the_services_of_the_protocol() {
    let mut served: Vec<&str> = PROCESSES
        .iter()
        .flat_map(|row| row.services)
        .map(|service| service.service)
        .collect();
    let mut defined: Vec<&str> = bulkhead_api::SERVICES
        .iter()
        .map(|(name, _)| *name)
        .collect();
    served.sort_unstable();
    defined.sort_unstable();
    assert_eq!(served, defined);
}

#[test]
fn every_method_states_its_contract_and_its_callers() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/bulkhead/v1");
    for row in PROCESSES {
        let file = format!("{root}/{}.proto", row.process.name().replace('-', "_"));
        let text = std::fs::read_to_string(&file).unwrap();
        let mut comment = String::new();
        let mut callers: &[Caller] = &[];
        for line in text.lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("//") {
                comment += words;
                comment += " ";
            } else if let Some(name) = line.strip_prefix("service ") {
                let name = format!("bulkhead.v1.{}", name.trim_end_matches(" {"));
                let service = row.services.iter().find(|service| service.service == name);
                callers = service
                    .unwrap_or_else(|| panic!("{name} in {file}"))
                    .callers;
                comment.clear();
            } else if let Some(method) = line.strip_prefix("rpc ") {
                for word in ["dempotent", "eadline", "Callers:"] {
                    assert!(
                        comment.contains(word),
                        "{method} in {file} does not say: {word}"
                    );
                }
                for caller in callers {
                    let name = match caller {
                        Caller::Process(process) => process.name(),
                        Caller::Operator => "bulkhead",
                    };
                    assert!(
                        comment.contains(name),
                        "{method} in {file} omits the caller {name}"
                    );
                }
                comment.clear();
            } else {
                comment.clear();
            }
        }
    }
}
