//! Probes and hooks that are sent to another host than the pod.

use pod::core::{HTTPGetAction, TCPSocketAction};

use super::list::{ContainerView, Demands};
use crate::demand::Demand;

pub(super) fn demands(container: &ContainerView<'_>, demands: &mut Demands) {
    let probes = container.probes.iter().filter_map(|(name, probe)| {
        let probe = (*probe)?;
        Some((
            (*name).to_owned(),
            hosts(&probe.http_get, &probe.tcp_socket),
        ))
    });
    let lifecycle = container.lifecycle.into_iter();
    let hooks = lifecycle.flat_map(|lifecycle| {
        let hooks = [
            ("lifecycle.postStart", &lifecycle.post_start),
            ("lifecycle.preStop", &lifecycle.pre_stop),
        ];
        hooks.into_iter().filter_map(|(name, handler)| {
            let handler = handler.as_ref()?;
            Some((
                name.to_owned(),
                hosts(&handler.http_get, &handler.tcp_socket),
            ))
        })
    });
    let found: Vec<_> = probes.chain(hooks).collect();
    for (name, hosts) in found {
        for (action, host) in hosts.into_iter().flatten() {
            let field = format!("{name}.{action}.host");
            demands.of_container(container, &field, Demand::ProbeHost(host.to_owned()));
        }
    }
}

type NamedHost<'a> = (&'static str, &'a str);

fn hosts<'a>(
    http: &'a Option<HTTPGetAction>,
    tcp: &'a Option<TCPSocketAction>,
) -> [Option<NamedHost<'a>>; 2] {
    let http = http.as_ref().and_then(|action| action.host.as_deref());
    let tcp = tcp.as_ref().and_then(|action| action.host.as_deref());
    let named = |action, host: Option<&'a str>| {
        let host = host.filter(|host| !host.is_empty())?;
        Some((action, host))
    };
    [named("httpGet", http), named("tcpSocket", tcp)]
}
