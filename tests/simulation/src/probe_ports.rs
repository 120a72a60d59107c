//! The port of each probe of each version of a pod.

/// Port of the first probe of the first pod.
const FIRST_PORT: u32 = 10_000;

/// Ports of one version of a pod: those of two containers.
const PORTS_PER_POD: u32 = 8;

/// Ports of a container: one for each kind of probe, and one that nobody asks.
const PORTS_PER_CONTAINER: u32 = 4;

/// Containers that are probed, in the order of their ports.
const CONTAINERS: [&str; 2] = ["main", "second"];

/// Kinds of probes, in the order of their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    Liveness,
    Readiness,
    Startup,
}

const KINDS: [ProbeKind; 3] = [
    ProbeKind::Liveness,
    ProbeKind::Readiness,
    ProbeKind::Startup,
];

/// The port of a probe.
pub(crate) fn port(version: u32, container: &str, kind: ProbeKind) -> u32 {
    let container = CONTAINERS.iter().position(|name| *name == container);
    let container = container.map_or(0, |index| index as u32);
    FIRST_PORT + version * PORTS_PER_POD + container * PORTS_PER_CONTAINER + kind as u32
}

/// Whose port it is.
pub(crate) fn owner(port: u16) -> Option<(u32, &'static str, ProbeKind)> {
    let number = u32::from(port).checked_sub(FIRST_PORT)?;
    let (version, rest) = (number / PORTS_PER_POD, number % PORTS_PER_POD);
    let container = CONTAINERS.get((rest / PORTS_PER_CONTAINER) as usize)?;
    let kind = KINDS.get((rest % PORTS_PER_CONTAINER) as usize)?;
    Some((version, container, *kind))
}
