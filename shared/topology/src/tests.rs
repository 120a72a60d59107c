//! Properties of the table as a whole.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_process_has_exactly_one_row_in_start_order() {
    let rows: Vec<Process> = PROCESSES.iter().map(|row| row.process).collect();
    assert_eq!(rows, Process::ALL);
    let always = &Process::ALL[..Process::ON_EVERY_NODE.len()];
    assert_eq!(always, Process::ON_EVERY_NODE);
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
    let told = UnknownProcess("kubelet".to_owned()).to_string();
    for process in Process::ALL {
        assert!(told.contains(process.name()), "{told}");
    }
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
fn who_needs_no_internet_has_an_empty_network() {
    for row in PROCESSES {
        let is_empty = row.namespaces.contains(&Namespace::Network);
        assert_eq!(is_empty, !row.needs(Need::Internet), "{}", row.process);
        if row.process != Process::Supervisor {
            assert!(row.namespaces.contains(&Namespace::Ipc), "{}", row.process);
        }
    }
}

#[test]
fn who_is_held_to_its_files_sees_no_others() {
    for row in PROCESSES {
        let has_own = row.namespaces.contains(&Namespace::Mount);
        // What those mount is for the node.
        assert_eq!(has_own, !row.needs(Need::Mounts), "{}", row.process);
        let is_listed = !has_own || row.is_held_to_its_files();
        assert_eq!(row.sight == Sight::Listed, is_listed, "{}", row.process);
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
fn named_users_have_their_own_primary_groups() {
    let number = |name: &str| {
        let place = PROCESSES.iter().position(|row| row.user == name);
        u32::try_from(place.unwrap()).unwrap()
    };
    let identities = Identities::from_users(|name| {
        Some(Account {
            uid: 900 + number(name),
            gid: 300 + number(name),
        })
    })
    .unwrap();
    for row in PROCESSES {
        let (uid, gid) = (identities.uid(row.process), identities.gid(row.process));
        let expected = match row.root {
            true => (0, 0),
            false => (900 + number(row.user), 300 + number(row.user)),
        };
        assert_eq!((uid, gid), expected, "{}", row.process);
        let based = Identities::from_base(64_000).unwrap();
        assert_eq!(based.uid(row.process), based.gid(row.process));
    }
}

#[test]
fn each_user_has_a_number_of_its_own_that_nobody_else_hands_out() {
    let mut taken = BTreeSet::new();
    for row in PROCESSES {
        match row.root {
            true => assert_eq!(row.static_id, 0, "{}", row.process),
            false => {
                assert!(STATIC_IDS.contains(&row.static_id), "{}", row.process);
                assert!(taken.insert(row.static_id), "{}", row.process);
            }
        }
    }
    // systemd's "Users, Groups, UIDs and GIDs on systemd Systems", Debian's base-passwd.
    for (first, last, whose) in [
        (0, 999, "system users"),
        (1_000, 60_000, "ordinary users"),
        (60_001, 60_513, "systemd-homed"),
        (60_514, 60_577, "users of the host in containers"),
        (60_578, 60_705, "greeters"),
        (61_184, 65_519, "dynamic users"),
        (63_434, 64_999, "assigned by Debian"),
        (65_532, 65_535, "nobody and nonroot, no number"),
        (65_536, u32::MAX, "containers, and what no 16 bits hold"),
    ] {
        let apart = *STATIC_IDS.end() < first || last < *STATIC_IDS.start();
        assert!(apart, "{whose}");
    }
}

#[test]
fn missing_and_shared_users_are_refused() {
    let missing = Identities::from_users(|_| None);
    assert!(matches!(missing, Err(IdentityError::MissingUser { .. })));
    let everybody = |uid, gid| Identities::from_users(|_| Some(Account { uid, gid }));
    assert!(matches!(
        everybody(990, 991),
        Err(IdentityError::Shared { uid: 990, .. })
    ));
    for (uid, gid) in [(0, 990), (990, 0)] {
        let refused = everybody(uid, gid).unwrap_err();
        assert!(matches!(refused, IdentityError::Root { .. }), "{refused}");
    }
    let one_group = Identities::from_users(|name| {
        let uid = 900 + u32::try_from(name.len()).unwrap();
        Some(Account { uid, gid: 65_534 })
    });
    assert!(matches!(
        one_group,
        Err(IdentityError::SharedGroup { gid: 65_534, .. })
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
    for row in PROCESSES.iter().filter(|row| !row.services.is_empty()) {
        let file = format!("{root}/{}.proto", row.process.name().replace('-', "_"));
        let text = std::fs::read_to_string(&file).unwrap();
        let mut comment = Vec::new();
        let mut callers: &[Caller] = &[];
        for line in text.lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("//") {
                comment.extend(words.split_whitespace());
                continue;
            }
            if let Some(name) = line.strip_prefix("service ") {
                let name = format!("bulkhead.v1.{}", name.trim_end_matches(" {"));
                let service = row.services.iter().find(|service| service.service == name);
                callers = service
                    .unwrap_or_else(|| panic!("{name} in {file}"))
                    .callers;
            } else if let Some(method) = line.strip_prefix("rpc ") {
                let missing = missing_from(&comment.join(" "), callers);
                assert_eq!(missing, [""; 0], "{method} in {file} does not say this");
            }
            comment.clear();
        }
    }
}

/// What the comment of a method does not say although every one must.
fn missing_from(comment: &str, callers: &[Caller]) -> Vec<&'static str> {
    let says_one_of = |words: &[&str]| words.iter().any(|words| comment.contains(words));
    let mut missing = Vec::new();
    if !says_one_of(&["Idempotent", "Not idempotent"]) {
        missing.push("whether it is idempotent");
    }
    if !says_one_of(&["Deadline", "No deadline"]) {
        missing.push("its deadline");
    }
    let sizes = comment.split("At most ").skip(1);
    let mut sizes = sizes.map(|rest| rest.split_whitespace());
    if !sizes.any(|mut words| {
        words.next().is_some_and(|it| it.parse::<u32>().is_ok())
            && words
                .next()
                .is_some_and(|unit| unit.starts_with("KiB") || unit.starts_with("MiB"))
    }) {
        missing.push("its largest message");
    }
    if !says_one_of(&[
        "After a restart of the server",
        "after a restart of the server",
    ]) {
        missing.push("what a caller does when the server restarted");
    }
    let named = comment.split_once("Callers: ").map_or("", |(_, rest)| rest);
    let named = named.split('.').next().unwrap_or_default();
    let named: BTreeSet<&str> = named.split(", ").collect();
    let expected: BTreeSet<&str> = callers
        .iter()
        .map(|caller| match caller {
            Caller::Process(process) => process.name(),
            Caller::Operator => "bulkhead",
        })
        .collect();
    if named != expected {
        missing.push("its callers, all of them and no others");
    }
    missing
}

#[test]
fn a_contract_is_whole_only_with_all_five_parts() {
    let callers = [Caller::Process(Process::SyncLoop)];
    let parts = [
        "Idempotent.",
        "Deadline 5 s.",
        "At most 4 KiB.",
        "Callers: sync-loop.",
        "After a restart of the server: call again.",
    ];
    assert_eq!(missing_from(&parts.join(" "), &callers), [""; 0]);
    for left_out in 0..parts.len() {
        let mut rest = parts.to_vec();
        rest.remove(left_out);
        let missing = missing_from(&rest.join(" "), &callers);
        assert_eq!(missing.len(), 1, "without {}", parts[left_out]);
    }
    let vague = parts.join(" ").replace("4 KiB", "a little");
    assert_eq!(missing_from(&vague, &callers), ["its largest message"]);
}

#[test]
fn who_sees_the_nodes_files_has_mounts_of_its_own_and_little_room_beside_them() {
    for row in PROCESSES {
        let Sight::NodeBut(hidden) = row.sight else {
            continue;
        };
        assert!(row.namespaces.contains(&Namespace::Mount));
        let rooms: u64 = hidden.iter().filter_map(|it| it.room).sum();
        assert!((1..=row.memory_max_bytes / 4).contains(&rooms), "{rooms}");
        for (place, it) in hidden.iter().enumerate() {
            let is_above = |later: &Hidden| it.path.starts_with(&format!("{}/", later.path));
            assert!(!hidden[place..].iter().any(is_above), "{}", it.path);
            assert!(!it.reason.is_empty(), "{}", it.path);
            assert!(it.keeps.iter().all(|kept| kept.starts_with(it.path)));
        }
    }
}

#[test]
fn each_process_names_a_place_once_and_none_of_another() {
    for row in PROCESSES {
        let places: BTreeSet<Place> = row.opens.iter().map(|opened| opened.place).collect();
        assert_eq!(places.len(), row.opens.len(), "{}", row.process);
    }
    let who = |place: Place| -> Vec<Process> {
        let has = |row: &&ProcessRow| row.opens.iter().any(|opened| opened.place == place);
        PROCESSES
            .iter()
            .filter(has)
            .map(|row| row.process)
            .collect()
    };
    for place in [
        Place::RuntimeSocket,
        Place::NodePolicy,
        Place::PullCredentials,
        Place::PodDirectories,
        Place::PodLogs,
        Place::HostPaths,
    ] {
        assert_eq!(who(place), [Process::PodWorkerPool], "{place:?}");
    }
    // Those of processes and those of pods.
    let both = [Process::Supervisor, Process::PodWorkerPool];
    assert_eq!(who(Place::Cgroups), both);
    assert_eq!(who(Place::Manifests), [Process::ConfigSourcer]);
    let speak_tls = [Process::ConfigSourcer, Process::CredentialProvider];
    assert_eq!(who(Place::Authorities), speak_tls);
    let programs = who(Place::CredentialPrograms);
    assert_eq!(programs, [Process::CredentialProvider]);
}

#[test]
fn each_edge_has_a_budget_with_a_reason() {
    for service in PROCESSES.iter().flat_map(|row| row.services) {
        let Budget { at_once, reason } = service.budget;
        assert!((1..=256).contains(&at_once), "{}", service.service);
        assert!(!reason.is_empty(), "{}", service.service);
    }
}

#[test]
fn a_user_is_named_by_its_process_and_root_and_strangers_by_number() {
    let identities = Identities::from_base(61_000).unwrap();
    for process in Process::ALL {
        let uid = identities.uid(process);
        let expected = match row(process).root {
            true => "uid 0",
            false => process.name(),
        };
        assert_eq!(identities.name_of(uid), expected);
    }
    assert_eq!(identities.name_of(1000), "uid 1000");
}
