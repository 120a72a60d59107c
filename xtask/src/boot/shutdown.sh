# What has to hold of a graceful shutdown of the node. Read by claims.sh at the end of the
# third boot, which it ends under the supervisor; on the fourth one, which it ends in the
# bundle; and on the fifth one.

# noting NAME PRIORITY POLICY: a static pod that notes when it is asked to end, takes 2 s for
# it, and ends well, which no restart policy but Always restarts by itself.
noting() {
    cat > "/etc/kubernetes/manifests/$1.json" <<MANIFEST
{
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": { "name": "$1" },
  "spec": {
    "priority": $2,
    "restartPolicy": "$3",
    "terminationGracePeriodSeconds": 30,
    "volumes": [{ "name": "notes", "hostPath": { "path": "/notes" } }],
    "containers": [{
      "name": "app",
      "image": "localhost/busybox:test",
      "command": ["sh", "-c", "now() { read up rest < /proc/uptime; echo \${up%.*}\${up#*.}; }; trap 'now > /notes/asked-$1; sleep 2; now > /notes/ended-$1; exit 0' TERM; while :; do sleep 0.1; done"],
      "volumeMounts": [{ "name": "notes", "mountPath": "/notes" }]
    }]
  }
}
MANIFEST
}
inhibits() { systemd-inhibit --list --no-legend | grep -q '^bulkhead .*shutdown.*delay'; }
waits_long_enough() { [ "$(busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec)" = 't 35000000' ]; }
is_asked() { [ -s "/notes/asked-$1" ]; }
has_ended() { [ -s "/notes/ended-$1" ]; }
# comes_before FILE FILE: the time in the first, in hundredths of a second since the boot of
# the machine, is before that in the second.
comes_before() { [ "$(cat "/notes/$1")" -lt "$(cat "/notes/$2")" ]; }
begins_a_new_series() { grep -q "^0 [0-9]* $(tr -d - < /proc/sys/kernel/random/boot_id)\$" "/var/lib/bulkhead/$1/restarts"; }

# begin_shutdown STARTER: which is to start with the next boot as well.
begin_shutdown() {
    mkdir -p /notes
    rm -f /notes/*
    grep -q '^shutdownGracePeriod:' /etc/bulkhead/kubelet.yaml || cat >> /etc/bulkhead/kubelet.yaml <<'SETTINGS'
shutdownGracePeriod: 20s
shutdownGracePeriodCriticalPods: 8s
SETTINGS
    noting usual 0 OnFailure
    noting critical 2000001000 Never
    bulkhead policy grant /etc/kubernetes/manifests/*.json > /etc/bulkhead/policy.toml
    systemctl enable --quiet --now "$1"
    claim "$1: a usual pod runs before the shutdown" is_ready usual
    claim "$1: a critical pod runs before the shutdown" is_ready critical
    claim "$1: a shutdown of the node is delayed" inhibits
    claim "$1: logind waits as long as the pods may take" waits_long_enough
    # It then reads who delays a shutdown. That the lock is still kept for pod-worker-pool as
    # well shows when that is killed.
    systemctl restart systemd-logind.service
    claim "$1: a shutdown is delayed after a restart of logind" inhibits
    systemctl --no-block poweroff
    claim "$1: the shutdown asks the usual pod to end" is_asked usual
    kill_program pod-worker-pool
    claim "$1: the lock of the shutdown outlives pod-worker-pool" inhibits
    # What follows is told after the next boot.
    echo end
    sleep 60
}

# after_shutdown STARTER
after_shutdown() {
    for pod in usual critical; do
        claim "$1: the $pod pod had its time to end" has_ended "$pod"
    done
    claim "$1: critical pods are asked to end once usual ones have ended" comes_before ended-usual asked-critical
    for pod in usual critical; do
        claim "$1: the $pod pod that ended with the node starts with its next boot" is_ready "$pod"
    done
    [ "$1" = bulkhead.service ] || for process in $processes; do
        claim "$1: that $process ended with the node is no crash" begins_a_new_series "$process"
    done
    systemctl disable --quiet --now "$1"
}

purge_after_shutdowns() {
    rm -f /etc/bulkhead/policy.toml /etc/kubernetes/manifests/*
    dpkg --purge bulkhead >> /dpkg.log 2>&1
    claim "a purge leaves logind as it was" test ! -e /etc/systemd/logind.conf.d/99-bulkhead.conf
}
