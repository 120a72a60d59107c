//! Static pods, as the API server shows them.

use anyhow::Result;
use cluster::condition::condition;
use cluster::{Cluster, Grace};
use serde_json::Value;

#[test]
fn a_static_pod_has_a_mirror_that_comes_again_and_goes_with_it() -> Result<()> {
    let cluster = Cluster::start()?;
    let name = cluster.ground.full_name("web");
    let mirror = || cluster.plane.get("pod", &name);
    let until_ready = || {
        cluster.until("the mirror to be ready", || {
            Ok(condition(&mirror()?, "Ready") == "True")
        })
    };
    let spec = cluster.ground.app("web", &["--http", "8080"]);
    cluster.ground.apply("web", spec)?;
    until_ready()?;
    let first = mirror()?;
    let containers = |pod: &Value| pod["status"]["containerStatuses"].clone();
    let own = cluster.ground.ready("web")?;
    let hash = &first["metadata"]["annotations"]["kubernetes.io/config.mirror"];
    assert_eq!(*hash, own["metadata"]["uid"]);
    assert_eq!(first["status"]["startTime"], own["status"]["startTime"]);

    cluster.plane.delete("pod", &name, Grace::Own)?;
    cluster.until("another mirror", || {
        Ok(mirror()?["metadata"]["uid"] != first["metadata"]["uid"])
    })?;
    until_ready()?;
    let second = mirror()?;
    assert_eq!(containers(&second), containers(&first));

    cluster.ground.remove("web")?;
    cluster.until("the mirror to be gone", || {
        let pods = cluster.plane.list("pod")?;
        Ok(pods.iter().all(|pod| pod["metadata"]["name"] != *name))
    })
}
