//! The pods of a scenario, and the manifests that ask for them.

use std::fmt;
use std::time::Duration;

use clock::UnixNanos;
use rand::Rng;

use crate::probe_ports::{ProbeKind, port};
use crate::sizes::{Size, Sizes};

/// The label that tells one version of a pod from all others.
pub(crate) const VERSION_LABEL: &str = "version";

/// Failures in a row of a startup probe, tried every second, that end a container:
/// more than the longest start takes.
const STARTUP_FAILURES: u32 = 10;

/// The longest that a program takes to start, in milliseconds.
const LONGEST_START: u64 = 3000;

/// The container that runs beside `main` as a sidecar.
pub(crate) const SIDECAR: &str = "helper";

/// The ConfigMap that pods have as a volume of the same name, and its only key.
pub(crate) const SETTINGS: &str = "settings";
pub(crate) const SETTINGS_KEY: &str = "value";

/// A pod as a scenario wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    name: String,
    version: u32,
    kind: Kind,
    grace_seconds: u32,
    pulled: bool,
    probes: Probes,
    hooks: Hooks,
    /// Whether it has the ConfigMap as a volume.
    reads_settings: bool,
    /// What its containers may use, of a pod whose manifest pins its UID.
    sizes: Option<Sizes>,
    /// Whether it is never ended or refused because the node is short of something.
    critical: bool,
    /// When its manifest went, or became another one.
    dismissed_at: Option<UnixNanos>,
    /// The grace that it had at least where it was ended because the node is short of
    /// something.
    evicted_with: Option<Duration>,
}

/// How the container `main` of a pod that serves is probed; `second` has a
/// readiness probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probes {
    liveness: bool,
    readiness: bool,
    /// How long the program takes to start, if it is asked.
    startup: Option<Duration>,
    /// Failures in a row of a liveness or readiness probe that count.
    failures: u32,
    /// By a TCP connection, else by HTTP.
    by_tcp: bool,
}

/// Lifecycle hooks of the container `main` of a pod that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hooks {
    /// After its start.
    post_start: Option<PostStart>,
    /// A command before its SIGTERM, and how long that takes in milliseconds.
    pre_stop: Option<u32>,
}

/// What a container does after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostStart {
    /// It waits for so many seconds.
    Sleep(u32),
    /// It runs a command, which takes so many milliseconds.
    Exec(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One container that runs for ever.
    Server,
    /// Two containers that run for ever.
    Pair,
    /// An init container before a server.
    WithInit,
    /// A sidecar beside a server that ignores SIGTERM.
    WithSidecar,
    /// Ends by itself, well or badly, and is never restarted.
    Job,
    /// Ignores SIGTERM.
    Stubborn,
    /// Ends well some time after SIGTERM, and is restarted where it has failed: only who
    /// stopped it knows that it is to be started again.
    Graceful,
}

impl Kind {
    /// Names of the containers that are to run in the end.
    fn servers(self) -> &'static [&'static str] {
        match self {
            Kind::Server | Kind::WithInit | Kind::Stubborn | Kind::Graceful => &["main"],
            Kind::Pair => &["main", "second"],
            Kind::WithSidecar => &[SIDECAR, "main"],
            Kind::Job => &[],
        }
    }
}

impl Desired {
    pub(crate) fn random(name: &str, version: u32, random: &mut impl Rng) -> Desired {
        let kind = match random.random_range(0..7) {
            0 => Kind::Pair,
            1 => Kind::WithInit,
            2 => Kind::Job,
            3 => Kind::Stubborn,
            4 => Kind::WithSidecar,
            5 => Kind::Graceful,
            _ => Kind::Server,
        };
        let grace_seconds = random.random_range(1..=5);
        let servers = kind.servers();
        let is_pinned = !servers.is_empty() && random.random_bool(0.5);
        let sizes = is_pinned.then(|| Sizes::random(servers, random));
        Desired {
            name: name.to_owned(),
            version,
            kind,
            grace_seconds,
            pulled: random.random_bool(0.2),
            probes: Probes::random(random),
            hooks: Hooks::random(random, grace_seconds).of(kind),
            reads_settings: random.random_bool(0.4),
            sizes,
            critical: random.random_bool(0.15),
            dismissed_at: None,
            evicted_with: None,
        }
    }

    /// Whether the ConfigMap is a volume of its containers.
    pub(crate) fn reads_settings(&self) -> bool {
        self.reads_settings
    }

    /// What its containers may use, if its UID is pinned.
    pub(crate) fn sizes(&self) -> Option<&Sizes> {
        self.sizes.as_ref()
    }

    /// Whether it is never ended or refused because the node is short of something.
    pub(crate) fn is_critical(&self) -> bool {
        self.critical
    }

    /// Notes that it may have been ended with this grace at any time from now on.
    pub(crate) fn evict(&mut self, from: UnixNanos, grace: Duration) {
        self.dismissed_at = Some(self.dismissed_at.map_or(from, |at| at.min(from)));
        self.evicted_with = Some(grace);
    }

    /// Its UID, if its manifest says it.
    pub(crate) fn pinned_uid(&self) -> Option<String> {
        let version = self.version;
        self.sizes.is_some().then(|| format!("pinned-{version}"))
    }

    /// Gives a container another size from now on.
    pub(crate) fn resize(&mut self, container: &'static str, size: Size, now: UnixNanos) {
        if let Some(sizes) = &mut self.sizes {
            sizes.set(container, size, now);
        }
    }

    /// Since when a container may have been stopped to be started again for its size.
    pub(crate) fn resize_restarts_since(&self, container: &str) -> Option<UnixNanos> {
        self.sizes.as_ref()?.restarts_since(container)
    }

    pub(crate) fn grace(&self) -> Duration {
        let own = Duration::from_secs(self.grace_seconds.into());
        self.evicted_with.map_or(own, |grace| grace.min(own))
    }

    pub(crate) fn dismissed_at(&self) -> Option<UnixNanos> {
        self.dismissed_at
    }

    /// Whether a container that hangs is to be restarted for it.
    pub(crate) fn has_liveness(&self, container: &str) -> bool {
        container == "main" && !self.servers().is_empty() && self.probes.liveness
    }

    /// Failures in a row that make a container not ready, if it is asked.
    pub(crate) fn readiness_threshold(&self, container: &str) -> Option<u32> {
        let asked = match container {
            "main" => !self.servers().is_empty() && self.probes.readiness,
            SIDECAR => false,
            _ => self.servers().contains(&container),
        };
        asked.then_some(self.probes.failures)
    }

    /// Failures in a row of a liveness probe that end a container.
    pub(crate) fn liveness_threshold(&self) -> usize {
        self.probes.failures as usize
    }

    /// Failures in a row of a startup probe that end a container, if it is asked.
    pub(crate) fn startup_threshold(&self) -> Option<usize> {
        let asked = self.start_time().is_some();
        asked.then_some(STARTUP_FAILURES as usize)
    }

    /// How long its program takes to start, if it is asked.
    pub(crate) fn start_time(&self) -> Option<Duration> {
        self.probes.startup
    }

    /// Whether it is probed by TCP connections, else by HTTP.
    pub(crate) fn by_tcp(&self) -> bool {
        self.probes.by_tcp
    }

    /// The fields of a container that say how it is probed.
    fn probe_fields(&self, container: &str) -> String {
        let field = |name: &str, kind, failures: u32| {
            let port = port(self.version, container, kind);
            let action = if self.probes.by_tcp {
                "tcpSocket"
            } else {
                "httpGet"
            };
            format!(
                r#","{name}":{{"{action}":{{"port":{port}}},"periodSeconds":1,"failureThreshold":{failures}}}"#
            )
        };
        let mut fields = String::new();
        if self.has_liveness(container) {
            fields += &field("livenessProbe", ProbeKind::Liveness, self.probes.failures);
        }
        if let Some(failures) = self.readiness_threshold(container) {
            fields += &field("readinessProbe", ProbeKind::Readiness, failures);
        }
        if container == "main" && self.probes.startup.is_some() {
            fields += &field("startupProbe", ProbeKind::Startup, STARTUP_FAILURES);
        }
        fields
    }

    /// The field of a container that has its hooks.
    fn hook_fields(&self, container: &str) -> String {
        if container != "main" {
            return String::new();
        }
        let post_start = self.hooks.post_start.map(|hook| match hook {
            PostStart::Sleep(seconds) => {
                format!(r#""postStart":{{"sleep":{{"seconds":{seconds}}}}}"#)
            }
            PostStart::Exec(millis) => {
                let command = post_start_command(millis).map(|word| format!("{word:?}"));
                let words = command.join(",");
                format!(r#""postStart":{{"exec":{{"command":[{words}]}}}}"#)
            }
        });
        let pre_stop = self
            .hooks
            .pre_stop
            .map(|millis| format!(r#""preStop":{{"exec":{{"command":["hook","{millis}","0"]}}}}"#));
        let hooks: Vec<String> = post_start.into_iter().chain(pre_stop).collect();
        format!(r#","lifecycle":{{{}}}"#, hooks.join(","))
    }

    /// The command that is run in each instance of `main` after its start, if any.
    pub(crate) fn command_after_start(&self) -> Option<[String; 3]> {
        match self.hooks.post_start? {
            PostStart::Exec(millis) if !self.servers().is_empty() => {
                Some(post_start_command(millis))
            }
            PostStart::Exec(_) | PostStart::Sleep(_) => None,
        }
    }

    /// The fields of a container and of the pod that have the ConfigMap as a volume.
    fn volume_fields(&self) -> (String, String) {
        if !self.reads_settings {
            return Default::default();
        }
        let mounts =
            format!(r#","volumeMounts":[{{"name":"{SETTINGS}","mountPath":"/settings"}}]"#);
        let volumes =
            format!(r#","volumes":[{{"name":"{SETTINGS}","configMap":{{"name":"{SETTINGS}"}}}}]"#);
        (mounts, volumes)
    }

    /// What has to have started, and what to have ended well, before `main` is started.
    pub(crate) fn before_main(&self) -> (Option<&'static str>, Option<&'static str>) {
        match self.kind {
            Kind::WithSidecar => (Some(SIDECAR), None),
            Kind::WithInit => (None, Some("prepare")),
            Kind::Server | Kind::Pair | Kind::Job | Kind::Stubborn | Kind::Graceful => (None, None),
        }
    }

    /// The name in its manifest.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its number among all versions of all pods.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Notes when its manifest went, or became another one.
    pub(crate) fn dismiss(&mut self, at: UnixNanos) {
        self.dismissed_at = Some(at);
    }

    /// Value of the label that tells this version from all others.
    pub(crate) fn version_label(&self) -> String {
        format!("v{}", self.version)
    }

    /// Names of the containers that are to run in the end.
    pub(crate) fn servers(&self) -> &'static [&'static str] {
        self.kind.servers()
    }

    /// Names of the containers that run once.
    pub(crate) fn once(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::WithInit => &["prepare"],
            Kind::Job => &["main"],
            _ => &[],
        }
    }

    /// The manifest, as JSON.
    pub(crate) fn manifest(&self) -> String {
        let image = if self.pulled {
            "localhost/pulled:test"
        } else {
            "localhost/busybox:test"
        };
        let (mounts, volumes) = self.volume_fields();
        let container = |name: &str, command: &str, more: &str| {
            let words: Vec<String> = command.split(' ').map(|word| format!("{word:?}")).collect();
            let sizes = self.sizes.as_ref();
            let sizes = sizes.map(|sizes| sizes.fields(name)).unwrap_or_default();
            format!(
                r#"{{"name":"{name}","image":"{image}","command":[{}]{mounts}{sizes}{more}}}"#,
                words.join(",")
            )
        };
        let server = |name: &str, command| {
            let fields = self.probe_fields(name) + &self.hook_fields(name);
            container(name, command, &fields)
        };
        let (init, containers, restart) = match self.kind {
            Kind::Server => (String::new(), server("main", "serve"), "Always"),
            Kind::Pair => {
                let both = [server("main", "serve"), server("second", "serve")];
                (String::new(), both.join(","), "Always")
            }
            Kind::WithInit => {
                let init = container("prepare", "exit 0 150", "");
                (init, server("main", "serve"), "Always")
            }
            Kind::Job => {
                // Every other one fails.
                let command = format!("exit {} 400", self.version % 2);
                (String::new(), container("main", &command, ""), "Never")
            }
            Kind::Stubborn => (String::new(), server("main", "ignore-term"), "Always"),
            Kind::Graceful => (String::new(), server("main", "well-term 900"), "OnFailure"),
            Kind::WithSidecar => {
                let sidecar = container(SIDECAR, "serve", r#","restartPolicy":"Always""#);
                (sidecar, server("main", "ignore-term"), "Always")
            }
        };
        let class = match self.critical {
            true => r#""priorityClassName":"system-node-critical","#,
            false => "",
        };
        let uid = self.pinned_uid();
        let uid = uid.map(|uid| format!(r#","uid":"{uid}""#));
        let uid = uid.unwrap_or_default();
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{}"{uid},"labels":{{"{VERSION_LABEL}":"v{}"}}}},
"spec":{{{class}"restartPolicy":"{restart}","terminationGracePeriodSeconds":{},"initContainers":[{init}],"containers":[{containers}]{volumes}}}}}"#,
            self.name, self.version, self.grace_seconds
        )
    }
}

/// A command that takes so many milliseconds, and ends well; no other hook has the same.
fn post_start_command(millis: u32) -> [String; 3] {
    ["hook".to_owned(), format!("0{millis}"), "0".to_owned()]
}

impl Hooks {
    /// A sleep is no longer than the grace, or the manifest would be refused.
    fn random(random: &mut impl Rng, grace_seconds: u32) -> Hooks {
        let seconds = random.random_range(0..=grace_seconds.min(2));
        let millis = random.random_range(0..=8000);
        let post_start = match random.random_range(0..10) {
            0 | 1 => Some(PostStart::Sleep(seconds)),
            2 | 3 => Some(PostStart::Exec(500 * seconds)),
            _ => None,
        };
        Hooks {
            post_start,
            pre_stop: random.random_bool(0.4).then_some(millis),
        }
    }

    /// Those that a pod of this kind may have.
    fn of(self, kind: Kind) -> Hooks {
        let post_start = self.post_start.filter(|hook| match hook {
            PostStart::Sleep(_) => true,
            // Stopped because that failed it would end well, and be done for good.
            PostStart::Exec(_) => kind != Kind::Graceful,
        });
        Hooks { post_start, ..self }
    }
}

impl Probes {
    fn random(random: &mut impl Rng) -> Probes {
        let start = Duration::from_millis(random.random_range(0..=LONGEST_START));
        Probes {
            liveness: random.random_bool(0.5),
            readiness: random.random_bool(0.5),
            startup: random.random_bool(0.3).then_some(start),
            failures: random.random_range(1..=2),
            by_tcp: random.random_bool(0.3),
        }
    }
}

impl fmt::Display for Desired {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} v{} {:?}, grace {} s{}{}{}, {:?}, {:?}, {:?}",
            self.name,
            self.version,
            self.kind,
            self.grace_seconds,
            if self.pulled { ", pulled" } else { "" },
            if self.reads_settings {
                ", with settings"
            } else {
                ""
            },
            if self.critical { ", critical" } else { "" },
            self.probes,
            self.hooks,
            self.sizes
        )
    }
}
