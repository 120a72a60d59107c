//! What the API server asks the node for: logs, commands, ports.

use anyhow::Result;
use cluster::Cluster;
use cluster::workload::{pod, template};
use serde_json::json;
use test_support::images::BUSYBOX;

#[test]
fn a_log_is_read_through_the_api_server() -> Result<()> {
    let cluster = Cluster::start()?;
    let mut template = template("talker", &[]);
    let script = "for i in 1 2 3 4 5; do echo line $i; done; exec sleep 1000";
    template["spec"]["containers"][0] =
        json!({"name": "talker", "image": BUSYBOX, "command": ["/bin/sh", "-c", script]});
    cluster.plane.apply(&pod("talker", &template))?;
    cluster.until_ready("talker", 1)?;
    let logs = |words: &[&str]| {
        let all = ["logs", "talker"].iter().chain(words).copied();
        cluster.plane.kubectl(&all.collect::<Vec<_>>())
    };
    assert_eq!(logs(&["--tail=2"])?, "line 4\nline 5");
    Ok(())
}
