//! Carries out one lifecycle hook, or waits for one that an earlier process has begun.

use std::sync::Arc;
use std::time::Duration;

use clock::UnixNanos;
use cri::ContainerRuntime;
use pod_lifecycle::hook::Hook;

use super::context::Steps;
use super::hooks::HookResult;
use crate::observe;

/// Longest postStart hook. The kubelet sets no end to it; a connection is not kept for
/// ever here.
pub(super) const POST_START_MAY_TAKE: Duration = Duration::from_secs(24 * 3600);

/// Wait between two looks at an instance whose hook an earlier process has begun.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Carries out a hook, within `limit` where it is a command.
pub(super) async fn carry_out(
    runtime: Arc<dyn ContainerRuntime>,
    id: String,
    hook: Hook,
    limit: Duration,
) -> HookResult {
    match hook {
        Hook::Sleep(length) => {
            tokio::time::sleep(length).await;
            Ok(())
        }
        Hook::Exec(command) => match runtime.exec_sync(&id, command, limit).await {
            Ok(answer) if answer.exit_code == 0 => Ok(()),
            Ok(answer) => Err(format!("the command exited with {}", answer.exit_code)),
            Err(error) => Err(telemetry::chain(&error)),
        },
        Hook::HttpGet(_) => Err("a hook by httpGet cannot be carried out yet".to_owned()),
        Hook::Impossible(why) => Err(why),
    }
}

/// Waits for the end of a preStop hook that an earlier process has begun. How long a
/// sleep takes is known. Of another one nobody can tell whether it runs still: it has the
/// time that it was promised, which is until the caller gives up, or until the instance
/// has ended.
pub(super) async fn await_earlier(steps: &Steps, id: &str, hook: &Hook, begun_at: UnixNanos) {
    let left = match hook {
        Hook::Sleep(length) => length.saturating_sub(steps.clock.now().since(begun_at)),
        Hook::Impossible(_) => Duration::ZERO,
        Hook::Exec(_) | Hook::HttpGet(_) => Duration::MAX,
    };
    let has_ended = async {
        loop {
            let status = steps.runtime.container_status(id).await;
            match status {
                Ok(status) if !observe::state_of(&status).may_run() => return,
                Err(error) if error.is_not_found() => return,
                Ok(_) | Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    };
    // Either the time is over or the instance has ended.
    let _ = tokio::time::timeout(left, has_ended).await;
}
