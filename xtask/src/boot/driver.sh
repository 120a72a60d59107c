# What has to hold with the systemd cgroup driver. Read by claims.sh, on a boot of its own
# without an installation.

# manifest NAME RESOURCES [FIELD]: a static pod whose container has these resources, with a
# field more in its spec.
manifest() {
    cat > "/etc/kubernetes/manifests/$1.json" <<MANIFEST
{
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": { "name": "$1" },
  "spec": {
    $3
    "terminationGracePeriodSeconds": 1,
    "containers": [{
      "name": "app",
      "image": "localhost/busybox:test",
      "command": ["sh", "-c", "while :; do sleep 1; done"],
      "resources": $2
    }]
  }
}
MANIFEST
}
is_ready() { bulkhead pods | grep -q "^default  *$1-node-a *1/1"; }
# slice_of NAME CLASS: the slice of a pod; CLASS as in its name, with a dash after it.
slice_of() {
    local uid
    uid=$(bulkhead describe "$1" | sed -n 's/^ *UID: *//p')
    echo "kubepods-$2pod${uid//-/_}.slice"
}
# has SLICE PROPERTY VALUE: what systemd knows of it.
has() { [ "$(systemctl show --property="$2" --value "$1")" = "$3" ]; }
# limits SLICE FILE VALUE: what the kernel has, on cgroups of either version.
limits() { [ "$(cat /sys/fs/cgroup/{,*/}kubepods.slice/{,*/}"$1"/"$2" 2>/dev/null | head --lines=1)" = "$3" ]; }
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    memory=(MemoryMax memory.max) shares=(CPUWeight 20) quota=(cpu.max '25000 100000')
else
    memory=(MemoryLimit memory.limit_in_bytes) shares=(CPUShares 512) quota=(cpu.cfs_quota_us 25000)
fi
# holds SLICE: whether processes are in a scope of the runtime below it.
holds() { systemd-cgls --no-pager --unit "$1" | grep -q 'cri-containerd-.*\.scope'; }
is_active() { systemctl is-active "$1"; }
is_gone() { ! is_active "$1" && [ -z "$(find /sys/fs/cgroup -type d -name "$1")" ]; }

try_driver() {
    cat >> /etc/containerd/config.toml <<'TOML'
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
TOML
    systemctl restart containerd
    until ctr version >/dev/null 2>&1; do sleep 0.1; done
    install_version 3
    sed -i 's/^cgroupDriver: cgroupfs$/cgroupDriver: systemd/' /etc/bulkhead/kubelet.yaml
    manifest guaranteed '{ "limits": { "cpu": "250m", "memory": "64Mi" } }'
    manifest burstable '{ "requests": { "cpu": "500m" }, "limits": { "memory": "96Mi" } }'
    manifest besteffort '{}'

    for starter in bulkhead.service bulkhead.target; do
        systemctl start "$starter"
        for pod in guaranteed burstable besteffort; do
            claim "$starter: a $pod pod runs with the systemd driver" is_ready "$pod"
        done
        guaranteed=$(slice_of guaranteed '')
        burstable=$(slice_of burstable burstable-)
        besteffort=$(slice_of besteffort besteffort-)
        for pod in guaranteed burstable besteffort; do
            claim "$starter: systemd has the slice of the $pod pod" is_active "${!pod}"
            claim "$starter: the runtime puts the containers of the $pod pod into it" holds "${!pod}"
        done
        claim "$starter: systemd knows the quota of a pod" has "$guaranteed" CPUQuotaPerSecUSec 250ms
        claim "$starter: systemd knows the memory limit of a pod" has "$burstable" "${memory[0]}" $((96 << 20))
        claim "$starter: the kernel has the memory limit of a pod" limits "$burstable" "${memory[1]}" $((96 << 20))
        claim "$starter: the class has the shares of its pods" has kubepods-burstable.slice "${shares[@]}"
        systemctl daemon-reload
        claim "$starter: a reload of systemd leaves the limits" limits "$guaranteed" "${quota[@]}"
        before=$(containers)
        kill_program pod-worker-pool
        claim "$starter: after the end of pod-worker-pool every process is ready" all_are_ready
        claim "$starter: no container noticed" containers_are_those_of_before
        systemctl restart dbus.service
        manifest late '{ "limits": { "memory": "32Mi" } }'
        claim "$starter: a pod starts after the bus was restarted" is_ready late
        late=$(slice_of late burstable-)
        claim "$starter: it has its slice" is_active "$late"
        rm /etc/kubernetes/manifests/*.json
        claim "$starter: pods whose manifests are removed are gone" no_containers
        for pod in guaranteed burstable besteffort late; do
            claim "$starter: nothing is left of the slice of the $pod pod" is_gone "${!pod}"
        done
        systemctl stop "$starter"
        manifest guaranteed '{ "limits": { "cpu": "250m", "memory": "64Mi" } }'
        manifest burstable '{ "requests": { "cpu": "500m" }, "limits": { "memory": "96Mi" } }'
        manifest besteffort '{}'
    done
    rm /etc/kubernetes/manifests/*.json
}
