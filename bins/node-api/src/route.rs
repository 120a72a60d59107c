//! Which request is which, and which subresource of the Node it needs (kubelet,
//! `pkg/kubelet/server/server.go` and `auth.go`). Pure.

use http::Method;
use percent_encoding::percent_decode_str;

/// A container of a pod, as a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// Empty where the path has none.
    pub(crate) uid: String,
    /// Empty of a session with a pod.
    pub(crate) container: String,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The rest of the path: a check, or nothing for all.
    Health(String),
    Pods,
    RunningPods,
    Configuration,
    Summary,
    ResourceMetrics,
    Logs(Target),
    Exec(Target),
    Attach(Target),
    PortForward(Target),
    Run(Target),
    /// There is nothing at this path.
    Nothing,
    /// There is, for other methods.
    OtherMethod,
}

impl Route {
    pub(crate) fn of(method: &Method, path: &str) -> Route {
        let parts: Vec<String> = path
            .trim_start_matches('/')
            .trim_end_matches('/')
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let route = match parts[..] {
            ["healthz"] => Route::Health(String::new()),
            ["healthz", check] => Route::Health(check.to_owned()),
            ["pods"] => Route::Pods,
            ["runningpods"] => Route::RunningPods,
            ["configz"] => Route::Configuration,
            ["stats", "summary"] => Route::Summary,
            ["metrics", "resource"] => Route::ResourceMetrics,
            ["containerLogs", namespace, pod, container] => {
                Route::Logs(target(namespace, pod, "", container))
            }
            ["portForward", namespace, pod] => Route::PortForward(target(namespace, pod, "", "")),
            ["portForward", namespace, pod, uid] => {
                Route::PortForward(target(namespace, pod, uid, ""))
            }
            [kind, namespace, pod, container] => of_container(kind, namespace, pod, "", container),
            [kind, namespace, pod, uid, container] => {
                of_container(kind, namespace, pod, uid, container)
            }
            _ => Route::Nothing,
        };
        match route.takes(method) {
            true => route,
            false => Route::OtherMethod,
        }
    }

    fn takes(&self, method: &Method) -> bool {
        match self {
            Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => {
                [Method::GET, Method::POST].contains(method)
            }
            Route::Run(_) => method == Method::POST,
            Route::Summary => [Method::GET, Method::POST].contains(method),
            Route::Nothing | Route::OtherMethod => true,
            _ => method == Method::GET,
        }
    }

    /// Whether `enableDebuggingHandlers` switches it off.
    pub(crate) fn is_for_debugging(&self) -> bool {
        matches!(
            self,
            Route::RunningPods
                | Route::Configuration
                | Route::Logs(_)
                | Route::Exec(_)
                | Route::Attach(_)
                | Route::PortForward(_)
                | Route::Run(_)
        )
    }
}

fn of_container(kind: &str, namespace: &str, pod: &str, uid: &str, container: &str) -> Route {
    let target = target(namespace, pod, uid, container);
    match kind {
        "exec" => Route::Exec(target),
        "attach" => Route::Attach(target),
        "run" => Route::Run(target),
        _ => Route::Nothing,
    }
}

fn target(namespace: &str, pod: &str, uid: &str, container: &str) -> Target {
    Target {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        uid: uid.to_owned(),
        container: container.to_owned(),
    }
}

/// The verb that a method stands for; none for methods that nobody may use.
pub(crate) fn verb(method: &Method) -> Option<&'static str> {
    match method.as_str() {
        "POST" => Some("create"),
        "GET" => Some("get"),
        "PUT" => Some("update"),
        "PATCH" => Some("patch"),
        "DELETE" => Some("delete"),
        _ => None,
    }
}

/// The subresources of the Node of which one has to be allowed, in the order in which they are
/// asked for (`KubeletFineGrainedAuthz`).
pub(crate) fn subresources(path: &str) -> &'static [&'static str] {
    let is_below = |top: &str| {
        let rest = path.strip_prefix(top);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let known: [(&str, &[&str]); 10] = [
        ("/pods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/statusz", &["statusz"]),
        ("/flagz", &["configz"]),
    ];
    let found = known.into_iter().find(|(top, _)| is_below(top));
    found.map_or(&["proxy"], |(_, subresources)| subresources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_are_a_kubelets() {
        let container = |uid: &str| target("d", "p", uid, "c");
        for (method, path, expected) in [
            ("GET", "/healthz", Route::Health(String::new())),
            ("GET", "/healthz/ping", Route::Health("ping".to_owned())),
            ("GET", "/pods", Route::Pods),
            ("GET", "/runningpods/", Route::RunningPods),
            ("GET", "/configz", Route::Configuration),
            ("POST", "/stats/summary", Route::Summary),
            ("GET", "/metrics/resource", Route::ResourceMetrics),
            ("GET", "/containerLogs/d/p/c", Route::Logs(container(""))),
            ("POST", "/containerLogs/d/p/c", Route::OtherMethod),
            ("POST", "/exec/d/p/c", Route::Exec(container(""))),
            ("GET", "/exec/d/p/u/c", Route::Exec(container("u"))),
            ("DELETE", "/exec/d/p/c", Route::OtherMethod),
            ("POST", "/attach/d/p/c", Route::Attach(container(""))),
            ("POST", "/run/d/p/c", Route::Run(container(""))),
            ("GET", "/run/d/p/c", Route::OtherMethod),
            (
                "POST",
                "/portForward/d/p",
                Route::PortForward(target("d", "p", "", "")),
            ),
            ("GET", "/", Route::Nothing),
            ("GET", "/exec/d/p", Route::Nothing),
            ("GET", "/exec/d/p/u/c/x", Route::Nothing),
            (
                "POST",
                "/exec/d/%2e%2e/c",
                Route::Exec(target("d", "..", "", "c")),
            ),
        ] {
            let method = method.parse().unwrap();
            assert_eq!(Route::of(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn subresources_are_the_finest_first() {
        for (path, expected) in [
            ("/pods", &["pods", "proxy"][..]),
            ("/podsy", &["proxy"]),
            ("/runningpods/", &["pods", "proxy"]),
            ("/healthz/ping", &["healthz", "proxy"]),
            ("/stats/summary", &["stats"]),
            ("/metrics/resource", &["metrics"]),
            ("/containerLogs/d/p/c", &["proxy"]),
            ("/exec/d/p/c", &["proxy"]),
        ] {
            assert_eq!(subresources(path), expected, "{path}");
        }
    }
}
