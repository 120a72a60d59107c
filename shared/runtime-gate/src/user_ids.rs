//! The user namespace that a request asks for, and the ids that it is to have.

use cri::v1;

use crate::denial::Denial;

const FIELD: &str = "namespace_options.userns_options";

/// Ids of the node: none below this, and no fewer than this. Users of the node's own
/// programs have lower ones.
const LOWEST: u32 = 65_536;

/// The ids of the node that a pod with users of its own has; the first is its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserIds {
    first: u32,
    count: u32,
}

/// The ids that namespace options ask for; `None`: the node's own users.
pub(crate) fn asked(options: &v1::NamespaceOption) -> Result<Option<UserIds>, Denial> {
    let Some(own) = &options.userns_options else {
        return Ok(None);
    };
    let not_judged = || Denial::not_judged(FIELD, format!("{own:?}"));
    match v1::NamespaceMode::try_from(own.mode) {
        Ok(v1::NamespaceMode::Node) if own.uids.is_empty() && own.gids.is_empty() => {
            return Ok(None);
        }
        Ok(v1::NamespaceMode::Pod) => {}
        _ => return Err(not_judged()),
    }
    let ids = one(&own.uids).filter(|_| own.uids == own.gids);
    let ids = ids.ok_or_else(not_judged)?;
    // Whoever owns a namespace of the node's could do there what its root can.
    let of_node = [options.network, options.pid, options.ipc];
    if of_node.contains(&v1::NamespaceMode::Node.into()) {
        return Err(not_judged());
    }
    Ok(Some(ids))
}

/// The refusal of ids, or of the node's own users, that a pod is not to have.
pub(crate) fn not_the_pods(found: Option<UserIds>) -> Denial {
    Denial::not_the_pods(FIELD, format!("{found:?}"))
}

/// Owners in a mount are seen as the pod's users are, or not at all.
pub(crate) fn of_mount(mount: &v1::Mount, own: Option<UserIds>) -> Result<(), Denial> {
    for (field, mappings) in [
        ("mounts.uid_mappings", &mount.uid_mappings),
        ("mounts.gid_mappings", &mount.gid_mappings),
    ] {
        let is_own = || own.is_some() && one(mappings) == own;
        if !mappings.is_empty() && !is_own() {
            return Err(Denial::not_the_pods(field, format!("{mappings:?}")));
        }
    }
    Ok(())
}

/// The ids of a single mapping that begins with root and has none of the node's own users.
fn one(mappings: &[v1::IdMapping]) -> Option<UserIds> {
    let [mapping] = mappings else {
        return None;
    };
    let v1::IdMapping {
        host_id: first,
        container_id,
        length: count,
    } = *mapping;
    let is_whole = container_id == 0 && first >= LOWEST && count >= LOWEST;
    let exists = first.checked_add(count).is_some();
    (is_whole && exists).then_some(UserIds { first, count })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn mapping(host_id: u32, container_id: u32, length: u32) -> v1::IdMapping {
        v1::IdMapping {
            host_id,
            container_id,
            length,
        }
    }

    pub(crate) fn options(uids: &[v1::IdMapping], gids: &[v1::IdMapping]) -> v1::NamespaceOption {
        v1::NamespaceOption {
            pid: v1::NamespaceMode::Container.into(),
            userns_options: Some(v1::UserNamespace {
                mode: v1::NamespaceMode::Pod.into(),
                uids: uids.to_vec(),
                gids: gids.to_vec(),
            }),
            ..v1::NamespaceOption::default()
        }
    }

    #[test]
    fn only_one_range_beside_the_nodes_users_is_a_pods_own() {
        const UNIT: u32 = 65_536;
        let own = mapping(2 * UNIT, 0, UNIT);
        let found = asked(&options(&[own], &[own])).unwrap().unwrap();
        assert_eq!((found.first, found.count), (2 * UNIT, UNIT));
        for (uids, gids) in [
            (vec![], vec![]),
            (vec![own], vec![]),
            (vec![own], vec![mapping(3 * UNIT, 0, UNIT)]),
            (vec![own, own], vec![own, own]),
        ] {
            assert!(asked(&options(&uids, &gids)).is_err(), "{uids:?} {gids:?}");
        }
        for wrong in [
            mapping(0, 0, UNIT),
            mapping(UNIT - 1, 0, UNIT),
            mapping(UNIT, 1, UNIT),
            mapping(UNIT, 0, UNIT - 1),
            mapping(u32::MAX - UNIT + 1, 0, UNIT),
        ] {
            assert!(asked(&options(&[wrong], &[wrong])).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_nodes_users_come_without_mappings_and_other_modes_not_at_all() {
        let own = mapping(65_536, 0, 65_536);
        let with = |mode: i32, ids: &[v1::IdMapping]| {
            let mut options = options(ids, ids);
            options.userns_options.as_mut().unwrap().mode = mode;
            asked(&options)
        };
        assert_eq!(asked(&v1::NamespaceOption::default()), Ok(None));
        assert_eq!(with(v1::NamespaceMode::Node.into(), &[]), Ok(None));
        assert!(with(v1::NamespaceMode::Node.into(), &[own]).is_err());
        assert!(with(v1::NamespaceMode::Container.into(), &[own]).is_err());
        assert!(with(v1::NamespaceMode::Target.into(), &[own]).is_err());
        assert!(with(9, &[own]).is_err());
    }

    #[test]
    fn a_pod_with_users_of_its_own_has_no_namespace_of_the_nodes() {
        let own = mapping(65_536, 0, 65_536);
        let node = i32::from(v1::NamespaceMode::Node);
        let changes: [fn(&mut v1::NamespaceOption, i32); 3] = [
            |options, mode| options.network = mode,
            |options, mode| options.pid = mode,
            |options, mode| options.ipc = mode,
        ];
        for change in changes {
            let mut options = options(&[own], &[own]);
            change(&mut options, node);
            assert!(asked(&options).is_err(), "{options:?}");
        }
    }

    #[test]
    fn owners_in_a_mount_are_the_pods_or_unknown() {
        let (own, other) = (mapping(65_536, 0, 65_536), mapping(131_072, 0, 65_536));
        let ids = one(&[own]);
        for (uids, gids, ids, expected) in [
            (&[][..], &[][..], None, true),
            (&[], &[], ids, true),
            (&[own], &[own], ids, true),
            (&[own], &[own], None, false),
            (&[other], &[own], ids, false),
            (&[own], &[other], ids, false),
            (&[mapping(0, 0, 65_536)], &[own], ids, false),
            (&[own, own], &[own], ids, false),
            (&[mapping(0, 0, 65_536)], &[], None, false),
        ] {
            let mount = v1::Mount {
                uid_mappings: uids.to_vec(),
                gid_mappings: gids.to_vec(),
                ..v1::Mount::default()
            };
            assert_eq!(of_mount(&mount, ids).is_ok(), expected, "{mount:?}");
        }
    }
}
