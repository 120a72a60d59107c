//! A pod that runs is told from a changed one by a hash of what it was started with, and
//! most of what a pod is comes from defaults.

use pod_manifest::{Origin, static_pods};

/// Relies on every kind of default that pods of manifests commonly rely on.
const MANIFEST: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  initContainers:
  - {name: init, image: i, command: [prepare]}
  containers:
  - name: app
    image: registry/app:v1
    ports: [{containerPort: 80}]
    env:
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    resources: {limits: {cpu: 1500m, memory: 1Gi}}
    livenessProbe: {httpGet: {port: 80}}
    readinessProbe: {exec: {command: [ready]}}
    startupProbe: {tcpSocket: {port: 80}}
    volumeMounts:
    - {name: cache, mountPath: /cache}
    - {name: node, mountPath: /node, readOnly: true}
  - {name: side, image: 'i@sha256:0123456789012345678901234567890123456789012345678901234567890123'}
  volumes:
  - {name: cache, emptyDir: {}}
  - {name: node, hostPath: {path: /srv}}
";

/// With another hash under the same version every such pod is stopped and started anew
/// by an upgrade. Whoever adds a default, or a field that one fills in, lets `VERSION` in
/// `pod::update` grow and puts the new hash here.
#[test]
fn an_upgrade_starts_no_pod_anew_because_of_its_defaults() {
    let pods = static_pods(
        MANIFEST.as_bytes(),
        Origin::File("/manifests/web.yaml"),
        &"node".into(),
    );
    let pods = pods.unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!(
        pod::update::started_with(&pods[0]),
        "1-5835fd4b8642d5ee82e1d593e7f2bd8b8a413bd727008f0f9a3ca3715d77d5f8"
    );
}
