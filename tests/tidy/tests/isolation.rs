//! docs/isolation.md says what each process may do and who may call whom. It must say
//! what the topology says; and a row that permits more than the document must show.

use tidy::read;
use topology::{
    Access, Caller, Capability, Namespace, Need, PROCESSES, Place, PlaceRow, Process, ProcessRow,
    ServiceRow,
};

/// The part of a document below a heading, up to the next heading.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, rest) = document
        .split_once(&format!("{heading}\n"))
        .unwrap_or_else(|| panic!("there is no heading {heading:?}"));
    rest.split("\n#").next().unwrap_or_default()
}

/// The lines of the table below a heading, without its head.
fn table<'a>(document: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = section(document, heading).lines();
    lines
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .collect()
}

fn places(rows: &[ProcessRow]) -> Vec<String> {
    let opened = rows
        .iter()
        .flat_map(|row| row.opens.iter().map(move |opened| (row.process, opened)));
    opened
        .map(|(process, opened)| {
            let (place, access) = (opened.place.name(), opened.access.name());
            format!("| {process} | {place} | {access} | {} |", opened.reason)
        })
        .collect()
}

fn needs(rows: &[ProcessRow]) -> Vec<String> {
    let needed = rows
        .iter()
        .flat_map(|row| row.needs.iter().map(move |needed| (row.process, needed)));
    needed
        .map(|(process, (need, reason))| format!("| {process} | {} | {reason} |", need.name()))
        .collect()
}

fn namespaces(rows: &[ProcessRow]) -> Vec<String> {
    let own = rows.iter().filter(|row| !row.namespaces.is_empty());
    own.map(|row| {
        let names: Vec<_> = row.namespaces.iter().map(|kind| kind.name()).collect();
        format!("| {} | {} |", row.process, names.join(", "))
    })
    .collect()
}

fn limits(rows: &[ProcessRow]) -> Vec<String> {
    let row = |row: &ProcessRow| {
        format!(
            "| {} | {} MiB | {} | {} | {} | {} |",
            row.process,
            row.memory_max_bytes >> 20,
            row.tasks_max,
            row.cpu_weight,
            row.io_weight,
            row.oom_score_adj
        )
    };
    rows.iter().map(row).collect()
}

/// Each process's capabilities, below the first line, which has its name; and at last those
/// who have none.
fn capabilities(rows: &[ProcessRow]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let user = if row.root { "root" } else { "its own" };
        let mut begin = format!("| {} | {user} |", row.process);
        for (capability, reason) in row.capabilities {
            lines.push(format!("{begin} {} | {reason} |", capability.0));
            begin = "| | |".to_owned();
        }
    }
    let others = rows
        .iter()
        .filter(|row| !row.root && row.capabilities.is_empty());
    let others: Vec<&str> = others.map(|row| row.process.name()).collect();
    lines.push(format!("| {} | their own | none | |", others.join(", ")));
    lines
}

/// Services with their callers.
fn services(rows: &[ProcessRow]) -> Vec<(&str, String)> {
    let services = rows.iter().flat_map(|row| row.services);
    services
        .map(|service| {
            let name = service.service.rsplit('.').next().unwrap_or_default();
            let callers: Vec<String> = service
                .callers
                .iter()
                .map(|caller| match caller {
                    Caller::Process(process) => process.to_string(),
                    Caller::Operator => "bulkhead".to_owned(),
                })
                .collect();
            (name, callers.join(", "))
        })
        .collect()
}

/// What the document does not say of these rows.
fn not_told(rows: &[ProcessRow]) -> Vec<String> {
    let isolation = read("docs/isolation.md");
    let mut missing = Vec::new();
    for (heading, listed) in [
        ("## What each process opens", places(rows)),
        ("## Files and system calls", needs(rows)),
        ("## Namespaces", namespaces(rows)),
        ("## Cgroups", limits(rows)),
        ("## Users and capabilities", capabilities(rows)),
    ] {
        let told = table(&isolation, heading);
        if told != listed {
            missing.push(format!("{heading}: {listed:#?}"));
        }
    }
    let calls = section(&isolation, "## Who may call whom");
    for (name, callers) in services(rows) {
        let is_of_it = |line: &&str| {
            let cell = line.split('|').nth(2).unwrap_or_default().trim();
            cell.split(':').next() == Some(name)
        };
        let row = calls.lines().find(is_of_it).unwrap_or_default();
        if !row.ends_with(&format!("| {callers} |")) {
            missing.push(format!("{name} is called by {callers}"));
        }
    }
    missing
}

/// Who has no row in the table of what a break-in gives.
fn without_what_a_break_in_gives(isolation: &str) -> Vec<String> {
    let rows = table(isolation, "## What a break-in gives");
    let processes = PROCESSES.iter().map(|row| row.process.name());
    processes
        .map(|name| format!("| **{name}**"))
        .filter(|begin| !rows.iter().any(|row| row.starts_with(begin)))
        .collect()
}

#[test]
fn it_says_what_a_break_in_into_each_process_gives() {
    let isolation = read("docs/isolation.md");
    assert_eq!(without_what_a_break_in_gives(&isolation), [""; 0]);
    let without = isolation.replace("\n| **pleg** |", "\n| **peg** |");
    assert_eq!(without_what_a_break_in_gives(&without), ["| **pleg**"]);
}

#[test]
fn it_says_what_the_topology_says() {
    assert_eq!(not_told(PROCESSES), Vec::<String>::new());
}

/// The table with one row changed.
fn with(process: Process, change: impl Fn(&mut ProcessRow)) -> Vec<ProcessRow> {
    let mut rows = PROCESSES.to_vec();
    let mut of_it = rows.iter_mut().filter(|row| row.process == process);
    of_it.by_ref().for_each(change);
    rows
}

/// With the first service of a process changed.
fn with_service(process: Process, change: impl Fn(&mut ServiceRow)) -> Vec<ProcessRow> {
    with(process, |row| {
        let mut services = row.services.to_vec();
        services.iter_mut().take(1).for_each(&change);
        row.services = services.leak();
    })
}

#[test]
fn a_weaker_row_shows() {
    const STRANGER: &[Caller] = &[Caller::Process(Process::Pleg), Caller::Operator];
    const NETWORK: &[(Need, &str)] = &[(Need::Internet, "for whatever")];
    const PROGRAMS: &[(Need, &str)] = &[(Need::Programs, "for whatever")];
    const CAPABILITY: &[(Capability, &str)] = &[(Capability("CAP_NET_RAW"), "for whatever")];
    const NODE: &[PlaceRow] = &[PlaceRow {
        place: Place::HostPaths,
        access: Access::Write,
        reason: "for whatever",
    }];
    const IPC: &[Namespace] = &[Namespace::Ipc];
    let weaker = [
        with(Process::Pleg, |row| row.needs = NETWORK),
        with(Process::SyncLoop, |row| row.needs = PROGRAMS),
        with(Process::Prober, |row| row.capabilities = CAPABILITY),
        with(Process::StatusSyncer, |row| row.opens = NODE),
        with(Process::ConfigSourcer, |row| row.root = true),
        with(Process::Pleg, |row| row.namespaces = IPC),
        with(Process::PodWorkerPool, |row| row.namespaces = &[]),
        with(Process::Prober, |row| row.memory_max_bytes *= 16),
        with(Process::CredentialProvider, |row| row.tasks_max = u16::MAX),
        with(Process::StatusSyncer, |row| row.oom_score_adj = -1000),
        with_service(Process::PodWorkerPool, |it| it.callers = STRANGER),
        with_service(Process::Supervisor, |it| it.callers = STRANGER),
    ];
    for (number, rows) in weaker.iter().enumerate() {
        assert_ne!(not_told(rows), Vec::<String>::new(), "number {number}");
    }
}
