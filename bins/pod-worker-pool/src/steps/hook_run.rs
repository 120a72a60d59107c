//! Carries out one lifecycle hook, or waits for one that an earlier process has begun.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use clock::UnixNanos;
use cri::{EXEC_SYNC, RuntimeChanges, RuntimeError};
use pod::PodIdentity;
use pod_lifecycle::hook::{Hook, HttpHook};
use tokio::time::Instant;

use super::context::StepContext;
use super::hooks::HookResult;
use crate::http_hooks::{HookError, HttpHooks};
use crate::observe;

/// Longest postStart hook. The kubelet sets no end to it; a connection is not kept for
/// ever here.
pub(super) const POST_START: Within = Within {
    begun: Duration::from_secs(24 * 3600),
    ended: Duration::from_secs(24 * 3600),
};

/// Wait between two looks at an instance: whose hook an earlier process has begun, or about
/// which the runtime did not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Who a hook is for.
pub(super) struct HookOf<'a> {
    pub(super) pod: &'a PodIdentity,
    pub(super) container: &'a str,
    /// The instance.
    pub(super) id: &'a str,
    /// Where the pod answers.
    pub(super) pod_ip: &'a str,
}

/// Until when a hook is of use.
#[derive(Clone, Copy)]
pub(super) struct Within {
    /// A command is not tried again after this time: a preStop hook does not begin when its
    /// container has had its SIGTERM.
    pub(super) begun: Duration,
    /// The longest that it may take, unless it is a sleep.
    pub(super) ended: Duration,
}

/// Carries out a hook. One to a host that it names is carried out only while the node policy
/// permits its pod, as a command is only by the gate.
pub(super) fn carry_out(
    context: &StepContext,
    of: &HookOf<'_>,
    hook: &Hook,
    within: Within,
) -> impl Future<Output = HookResult> + Send + 'static {
    let runtime = Arc::clone(&context.runtime.changes);
    let http = context.http_hooks.clone();
    let (id, mut hook) = (of.id.to_owned(), hook.clone());
    let names_a_host = matches!(&hook, Hook::HttpGet(get) if get.host.is_some());
    if names_a_host && context.policy.refuses(of.pod.uid()) {
        hook = Hook::Impossible("the node policy refuses the pod, whose hook names a host".into());
    }
    let request = match &hook {
        Hook::HttpGet(get) => http_hook(of, get, within.ended),
        Hook::Exec(_) | Hook::Sleep(_) | Hook::Impossible(_) => v1::HttpHook::default(),
    };
    run(runtime, http, (id, request), hook, within)
}

fn http_hook(of: &HookOf<'_>, get: &HttpHook, limit: Duration) -> v1::HttpHook {
    let headers = get.headers.iter();
    v1::HttpHook {
        pod: Some(of.pod.into()),
        container_name: of.container.to_owned(),
        pod_ip: of.pod_ip.to_owned(),
        host: get.host.clone().unwrap_or_default(),
        port: get.port.into(),
        tls: get.tls,
        path: get.path.clone(),
        headers: headers
            .map(|(name, value)| v1::HttpHeader {
                name: name.clone(),
                value: value.clone(),
            })
            .collect(),
        timeout_seconds: u32::try_from(limit.as_secs()).unwrap_or(u32::MAX),
        ..v1::HttpHook::default()
    }
}

async fn run(
    runtime: Arc<dyn RuntimeChanges>,
    http: HttpHooks,
    (id, request): (String, v1::HttpHook),
    hook: Hook,
    within: Within,
) -> HookResult {
    match hook {
        Hook::Sleep(length) => {
            tokio::time::sleep(length).await;
            Ok(())
        }
        Hook::Exec(command) => match execute(&*runtime, &id, &command, within).await {
            Ok(answer) if answer.exit_code == 0 => Ok(()),
            Ok(answer) => failed(format!("the command exited with {}", answer.exit_code)),
            Err(error) => failed(telemetry::chain(&error)),
        },
        Hook::HttpGet(_) => {
            let limit = within.ended;
            match tokio::time::timeout(limit, http.carry_out(request)).await {
                Ok(result) => result,
                Err(_) => failed(format!("no answer within {limit:?}")),
            }
        }
        Hook::Impossible(why) => failed(why),
    }
}

fn failed(why: String) -> HookResult {
    Err(HookError::Failed(why))
}

/// Runs a command in an instance. The gate looks at an instance that this process has not
/// made before it lets a command through: where the runtime does not answer that, the
/// command did not run, no hook has failed, and it is tried again.
async fn execute(
    runtime: &dyn RuntimeChanges,
    id: &str,
    command: &[String],
    within: Within,
) -> Result<cri::v1::ExecSyncResponse, RuntimeError> {
    let begun = Instant::now();
    loop {
        let left = within.ended.saturating_sub(begun.elapsed());
        match runtime.exec_sync(id, command.to_vec(), left).await {
            Err(error) if was_not_sent(&error) && begun.elapsed() + LOOK_AGAIN < within.begun => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            answered => return answered,
        }
    }
}

/// Whether a command was not sent because another call failed before it.
fn was_not_sent(error: &RuntimeError) -> bool {
    !error.is_of(EXEC_SYNC) && !error.is_not_found()
}

/// Waits for the end of a preStop hook that an earlier process has begun, or of its
/// instance. How long a sleep takes is known. Which commands run the runtime says, if it
/// can; the hook is one of those that run at the first look. The end of anything else
/// cannot be known, and is not waited for: what is left of the grace belongs to the program.
pub(super) async fn await_earlier(
    context: &StepContext,
    id: &str,
    hook: &Hook,
    begun_at: UnixNanos,
) {
    match hook {
        Hook::Sleep(length) => {
            let left = length.saturating_sub(context.clock.now().since(begun_at));
            // Either the time is over or the instance has ended.
            let _ = tokio::time::timeout(left, await_end(context, id)).await;
        }
        Hook::Exec(_) => await_commands(context, id).await,
        Hook::HttpGet(_) | Hook::Impossible(_) => {}
    }
}

async fn await_end(context: &StepContext, id: &str) {
    loop {
        match context.runtime.reads.container_status(id).await {
            Ok(status) if !observe::state_of(&status).may_run() => return,
            Err(error) if error.is_not_found() => return,
            Ok(_) | Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

async fn await_commands(context: &StepContext, id: &str) {
    let (runtime, mut awaited) = (&context.runtime.reads, None);
    while let Some(still) = awaited_after(awaited, runtime.running_commands(id).await) {
        awaited = still;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Commands that are waited for; none before the first answer.
type Awaited = Option<BTreeSet<String>>;

/// What is waited for after another look at the commands that run; `None`: nothing any
/// more, because all have ended, or because the runtime cannot say.
fn awaited_after(
    awaited: Awaited,
    looked: Result<BTreeSet<String>, RuntimeError>,
) -> Option<Awaited> {
    match looked {
        Ok(running) => {
            let left = match awaited {
                Some(awaited) => &awaited & &running,
                None => running,
            };
            (!left.is_empty()).then_some(Some(left))
        }
        Err(error) if error.is_no_answer() => Some(awaited),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use cri::RuntimeErrorKind;

    use super::*;

    #[test]
    fn a_command_is_tried_again_only_if_it_was_not_sent() {
        for (method, kind, again) in [
            ("ContainerStatus", RuntimeErrorKind::Unavailable, true),
            ("ContainerStatus", RuntimeErrorKind::Other, true),
            // It has ended.
            ("ContainerStatus", RuntimeErrorKind::NotFound, false),
            // It may have run.
            (EXEC_SYNC, RuntimeErrorKind::Unavailable, false),
            (EXEC_SYNC, RuntimeErrorKind::Other, false),
        ] {
            let error = RuntimeError::new(method, kind, "");
            assert_eq!(was_not_sent(&error), again, "{method} {kind:?}");
        }
    }

    #[test]
    fn a_command_of_an_earlier_process_is_awaited_while_the_runtime_says_that_it_runs() {
        let set = |words: &str| -> BTreeSet<String> {
            words.split_whitespace().map(str::to_owned).collect()
        };
        let fails = |kind| Err(RuntimeError::new("ListPids", kind, ""));
        for (awaited, looked, expected) in [
            // The first look: what runs is awaited. What has ended is over.
            (None, Ok(set("hook")), Some(Some(set("hook")))),
            (None, Ok(set("hook probe")), Some(Some(set("hook probe")))),
            (None, Ok(set("")), None),
            // Later ones: what has begun meanwhile is another one.
            (
                Some(set("hook probe")),
                Ok(set("hook other")),
                Some(Some(set("hook"))),
            ),
            (Some(set("hook")), Ok(set("other")), None),
            // No answer says nothing.
            (None, fails(RuntimeErrorKind::Unavailable), Some(None)),
            (
                Some(set("hook")),
                fails(RuntimeErrorKind::DeadlineExceeded),
                Some(Some(set("hook"))),
            ),
            // It has ended, or nobody can say.
            (Some(set("hook")), fails(RuntimeErrorKind::NotFound), None),
            (None, fails(RuntimeErrorKind::Unimplemented), None),
            (None, fails(RuntimeErrorKind::Other), None),
        ] {
            let case = format!("{awaited:?} {looked:?}");
            assert_eq!(awaited_after(awaited, looked), expected, "{case}");
        }
    }
}
