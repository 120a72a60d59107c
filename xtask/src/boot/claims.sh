# What has to hold in the booted container: a line "ok CLAIM" or "FAILED CLAIM" for each.

processes="pod-worker-pool status-syncer pleg prober config-sourcer sync-loop"

# claim NAME COMMAND...: whether the command succeeds within 30 s.
claim() {
    local name="$1"
    shift
    for _ in $(seq 150); do
        if "$@" >/dev/null 2>&1; then
            echo "ok $name"
            return
        fi
        sleep 0.2
    done
    echo "FAILED $name"
    journalctl --no-pager --lines=30 --unit='bulkhead*' | sed 's/^/    /'
}
# prove NAME COMMAND...: whether the command succeeds at once; what it says is shown if not.
prove() {
    local name="$1" said
    shift
    if said=$("$@" 2>&1); then
        echo "ok $name"
    else
        echo "FAILED $name"
        echo "$said" | sed 's/^/    /'
    fi
}
is_not() { ! "$@"; }

# The package.
install_version() {
    ${installer:-dpkg --install} "/packages/$1.deb" >> /dpkg.log 2>&1
    # No pod or image is to go for want of room on the machine that runs this.
    grep -q '^evictionHard' /etc/bulkhead/kubelet.yaml ||
        printf 'evictionHard: {}\nimageGCHighThresholdPercent: 100\n' >> /etc/bulkhead/kubelet.yaml
}
version_is() { [ "$(dpkg-query --show --showformat='${db:Status-Status} ${Version}' bulkhead)" = "installed $1" ]; }
is_removed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' bulkhead)" = config-files ]; }
users_have_their_numbers() {
    grep '^u ' /usr/lib/sysusers.d/bulkhead.conf | while read -r _ name number _; do
        [ "$(id --user "$name") $(id --group "$name")" = "$number $number" ] || return
    done
}
starts_at_boot() { systemctl is-enabled bulkhead.service || systemctl is-enabled bulkhead.target; }
nothing_is_left() {
    local place
    for place in /etc/bulkhead /var/lib/bulkhead /run/bulkhead /usr/libexec/bulkhead \
        /etc/systemd/logind.conf.d/99-bulkhead.conf; do
        [ ! -e "$place" ] || return
    done
    [ -z "$(systemctl list-unit-files --no-legend 'bulkhead*')" ]
}
# A configuration that cannot be used, and what was before.
spoil() { echo 'noSuchField: 1' >> /etc/bulkhead/kubelet.yaml; }
mend() { sed -i '/^noSuchField/d' /etc/bulkhead/kubelet.yaml; }
# The rules that keep pods off 127.0.0.0/8 of the node.
loopback_is_kept() { systemctl --quiet is-active bulkhead-loopback.service && nft list table ip bulkhead_loopback; }

# Processes.
programs_run() { readlink /proc/[0-9]*/exe | grep '^/usr/libexec/bulkhead/'; }
all_are_ready() { bulkhead status && programs_run; }
status_says() { bulkhead status | grep -q "$1"; }
pid_of_service() { systemctl show --property=MainPID --value "bulkhead-$1.service"; }
pid_in_status() { bulkhead status | awk -v name="$1" '$1 == name { print $3 }'; }
service_has_another_pid() {
    local now
    now=$(pid_of_service "$1")
    [ "$now" != 0 ] && [ "$now" != "$2" ] && systemctl is-active "bulkhead-$1.service"
}
process_has_another_pid() {
    local now
    now=$(pid_in_status "$1")
    [ -n "$now" ] && [ "$now" != - ] && [ "$now" != "$2" ] && all_are_ready
}
pids_of_services() { for process in $processes; do pid_of_service "$process"; done; }
# started_at PROCESS: when its service last started, on a clock that only grows.
started_at() { systemctl show --property=ExecMainStartTimestampMonotonic --value "bulkhead-$1.service"; }
pool_started_last() {
    local process
    for process in $processes; do
        [ "$(started_at "$process")" -le "$(started_at pod-worker-pool)" ] || return
    done
}
# kill_program PROCESS: whoever has started it.
kill_program() {
    local exe
    for exe in /proc/[0-9]*/exe; do
        [ "$(readlink "$exe")" != "/usr/libexec/bulkhead/$1" ] || kill -KILL "$(echo "$exe" | cut -d / -f 3)"
    done
}
# is_confined STARTER PROCESS PID [SUPERVISOR]: whether what /proc has of it is what its row says.
# The supervisor puts those whom systemd has moved out of their cgroups back within 15 s.
is_confined() {
    for _ in $(seq 150); do
        ! /proof/confined "$@" >/dev/null 2>&1 || break
        sleep 0.2
    done
    prove "$1 confines $2 as the topology says" /proof/confined "$@"
}
# What the machine refuses to everybody of scores and weights, and nothing else of these.
refusals_are_said() { bulkhead status | grep '^degraded: ' | /proof/confined refusals; }
# In the words of both ways to run Bulkhead, without the reasons.
machine_lacks() { bulkhead status | sed -n 's/^degraded: \([^:]*\).*/\1/p' | sort; }
machine_lacks_the_same() { [ "$(machine_lacks)" = "$1" ]; }
of_egress='only the processes themselves keep off metadata services'

# Containers and pods.
containers() (
    set -o pipefail
    ctr --namespace=k8s.io tasks ls --quiet | sort
)
containers_are_those_of_before() { [ -n "$before" ] && [ "$(containers)" = "$before" ]; }
no_containers() {
    local all
    all=$(containers) && [ -z "$all" ]
}
is_ready() { bulkhead pods | grep -q "^default  *$1-node-a *1/1"; }
# Its status is remembered through a reboot, so the container and that of its sandbox are
# looked at, too.
web_is_ready() { is_ready web && [ "$(containers | wc -l)" = 2 ]; }
# pod NAME FIELDS_OF_SPEC FIELDS_OF_CONTAINER [SCRIPT]: a static pod.
pod() {
    cat > "/etc/kubernetes/manifests/$1.json" <<MANIFEST
{
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": { "name": "$1" },
  "spec": {
    $2
    "containers": [{
      "name": "app",
      "image": "localhost/busybox:test",
      $3
      "command": ["sh", "-c", "${4:-trap exit TERM; while :; do sleep 0.1; done}"]
    }]
  }
}
MANIFEST
}
# With a volume in memory, and ready once a probe has succeeded.
web_pod() {
    pod web '"volumes": [{ "name": "memory", "emptyDir": { "medium": "Memory" } }],' \
        '"readinessProbe": { "exec": { "command": ["true"] }, "periodSeconds": 1, "timeoutSeconds": 10 },
         "volumeMounts": [{ "name": "memory", "mountPath": "/memory" }],'
}
volume_is_mounted() { grep -q 'kubernetes.io~empty-dir/memory tmpfs' /proc/mounts; }

try_installation() {
    # As the README says.
    installer='apt-get install --yes' install_version 1
    claim "the package can be installed" version_is 1
    claim "its users have the numbers of the topology" users_have_their_numbers
    systemctl preset --quiet bulkhead.service bulkhead.target
    claim "an installation starts nothing" is_not programs_run
    claim "nor does the next boot" is_not starts_at_boot
}

try_bundle() {
    local pid
    web_pod
    systemctl start bulkhead.target
    claim "in the bundle every process is ready" all_are_ready
    claim "in the bundle a pod runs" web_is_ready
    claim "the runtime sees what pod-worker-pool mounts in the bundle" volume_is_mounted
    claim "in the bundle pods are kept off the node's loopback" loopback_is_kept
    before=$(containers)
    for process in $processes; do
        pid=$(pid_of_service "$process")
        kill_program "$process"
        claim "systemd starts $process again" service_has_another_pid "$process" "$pid"
    done
    # Its limit, if it had one, would be five starts within 10 s.
    for _ in $(seq 12); do
        kill_program pleg
        sleep 0.5
    done
    claim "however often a process ends, every process is ready again" all_are_ready
    claim "no container noticed" containers_are_those_of_before
}

# Tried from outside, as the test command tries it of those that the supervisor has started.
prove_bundle() {
    local pids
    for process in $processes; do is_confined systemd "$process" "$(pid_of_service "$process")"; done
    claim "the bundle says what the machine refuses" refusals_are_said
    for process in $processes credential-provider api-gateway node-api; do
        prove "$process does not escape from its unit" /proof/prove-escapes "$process"
    done
    claim "an escape from a weakened unit is noticed" is_not /proof/prove-escapes pleg files
    pids=$(pids_of_services)
    prove "in the bundle only the edges of the topology can be called" /proof/prove-edges
    # Their first callers have started them.
    for process in credential-provider api-gateway; do
        is_confined systemd "$process" "$(pid_of_service "$process")"
    done
    prove "all processes of the bundle live on" test "$(pids_of_services)" = "$pids"
    claim "no container noticed the calls" containers_are_those_of_before
}

connections_are_kept() {
    local kept
    kept=$(systemctl show --property=NFileDescriptorStore --value bulkhead-pod-worker-pool.service)
    [ "$kept" -ge 6 ] && [ "$kept" -le 7 ]
}
# What this node does not run without, and that nothing gives on cgroup version 1.
ask_for_egress() {
    local run='/usr/libexec/bulkhead/supervisor --config=/etc/bulkhead/kubelet.yaml --bulkhead-config=/bulkhead.yaml --prepare'
    printf 'apiVersion: bulkhead/v1\nkind: BulkheadConfiguration\nminimumConfinement: [egress]\n' > /bulkhead.yaml
    mkdir -p /run/systemd/system/bulkhead-prepare.service.d
    printf '[Service]\nExecStart=\nExecStart=%s\nExecReload=\nExecReload=%s --again\n' "$run" "$run" \
        > /run/systemd/system/bulkhead-prepare.service.d/minimum.conf
    systemctl daemon-reload
}
try_commands() {
    local pid pids
    pid=$(pid_of_service pleg)
    bulkhead restart pleg >/dev/null
    claim "bulkhead restarts a process of the bundle" service_has_another_pid pleg "$pid"
    for _ in 1 2 3 4 5 6 7 8 9; do bulkhead restart pod-worker-pool >/dev/null; done
    claim "of the connections of many runs systemd keeps the newest" connections_are_kept
    pid=$(pid_of_service pleg)
    bulkhead reload >/dev/null
    claim "bulkhead has the bundle read its configuration" service_has_another_pid pleg "$pid"
    pids=$(pids_of_services)
    spoil
    prove "that fails with a wrong one" is_not bulkhead reload
    mend
    ask_for_egress
    prove "and with one that asks for what nothing gives here" is_not bulkhead reload
    prove "neither ends a process" test "$(pids_of_services)" = "$pids"
    claim "what nothing gives is said" status_says "$of_egress"
    systemctl restart bulkhead.target
    claim "with a minimum that is not met nothing starts" status_says 'nothing starts: bulkhead-prepare.service has failed'
    rm -r /run/systemd/system/bulkhead-prepare.service.d
    systemctl daemon-reload
    mv /var/lib/bulkhead /var/lib/bulkhead.aside
    touch /var/lib/bulkhead
    systemctl restart bulkhead.target
    claim "without a directory preparation is tried again" status_says 'bulkhead-prepare.service has failed, and is tried again'
    rm /var/lib/bulkhead
    mv /var/lib/bulkhead.aside /var/lib/bulkhead
    claim "once it is there every process starts by itself" all_are_ready
    claim "no container noticed any of that" containers_are_those_of_before
}

try_upgrade_of_bundle() {
    local pids
    declare -A old
    pids=$(pids_of_services)
    spoil
    install_version 2
    claim "an upgrade succeeds where the configuration cannot be used" version_is 2
    prove "it ends nobody" test "$(pids_of_services)" = "$pids"
    mend
    for process in $processes; do old[$process]=$(pid_of_service "$process"); done
    install_version 1
    for process in $processes; do
        claim "with another version $process is new" service_has_another_pid "$process" "${old[$process]}"
    done
    claim "pod-worker-pool is restarted last" pool_started_last
    install_version 2
    claim "after an upgrade every process is ready" all_are_ready
    claim "no container noticed the upgrades" containers_are_those_of_before
    claim "an upgrade keeps the node's own configuration" grep -q '^evictionHard' /etc/bulkhead/kubelet.yaml
    # Each of these flushes all rules.
    systemctl start nftables.service
    for verb in restart reload; do
        systemctl "$verb" nftables.service
        claim "a $verb of the node's other rules leaves those of loopback" loopback_is_kept
    done
    systemctl stop nftables.service
    systemctl restart bulkhead-loopback.service
}

try_supervisor() {
    local lacks pid
    lacks=$(machine_lacks)
    systemctl start bulkhead.service
    claim "the supervisor takes over from the bundle" all_are_ready
    for process in supervisor $processes; do
        is_confined supervisor "$process" "$(pid_in_status "$process")" "$(pid_in_status supervisor)"
    done
    claim "the supervisor says what the machine refuses" refusals_are_said
    claim "both say the same of the machine" machine_lacks_the_same "$lacks"
    claim "the bundle has stopped" test "$(systemctl is-active bulkhead-pleg.service)" != active
    pid=$(pid_in_status pleg)
    kill_program pleg
    claim "the supervisor starts a process again" process_has_another_pid pleg "$pid"
    systemctl restart bulkhead.service
    claim "after a restart of its unit every process is ready" all_are_ready
    systemctl start bulkhead.target
    claim "the bundle takes over from the supervisor" all_are_ready
    claim "no container noticed who starts the processes" containers_are_those_of_before
    rm /etc/kubernetes/manifests/web.json
    claim "a pod whose manifest is removed is gone" no_containers
}

# noting NAME PRIORITY POLICY: a static pod that notes when it is asked to end, takes 2 s for
# it, and ends well, which no restart policy but Always restarts by itself.
noting() {
    pod "$1" "\"priority\": $2, \"restartPolicy\": \"$3\", \"volumes\": [{ \"name\": \"notes\", \"hostPath\": { \"path\": \"/notes\" } }]," \
        '"volumeMounts": [{ "name": "notes", "mountPath": "/notes" }],' \
        "now() { read up rest < /proc/uptime; echo \${up%.*}\${up#*.}; }; trap 'now > /notes/asked-$1; sleep 2; now > /notes/ended-$1; exit 0' TERM; while :; do sleep 0.1; done"
}
inhibits() { systemd-inhibit --list --no-legend | grep -q '^bulkhead .*shutdown.*delay'; }
waits_long_enough() { [ "$(busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec)" = 't 35000000' ]; }
# comes_before FILE FILE: the time in the first, in hundredths of a second since the boot of
# the machine, is before that in the second.
comes_before() { [ "$(cat "/notes/$1")" -lt "$(cat "/notes/$2")" ]; }

# begin_shutdown STARTER: which is to start with the next boot as well. The boot ends.
begin_shutdown() {
    mkdir -p /notes
    rm -f /notes/*
    grep -q '^shutdownGracePeriod:' /etc/bulkhead/kubelet.yaml ||
        printf 'shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 8s\n' >> /etc/bulkhead/kubelet.yaml
    noting usual 0 OnFailure
    noting critical 2000001000 Never
    bulkhead policy grant /etc/kubernetes/manifests/*.json > /etc/bulkhead/policy.toml
    systemctl enable --quiet "$1"
    systemctl restart "$1"
    claim "$1: a usual pod runs before the shutdown" is_ready usual
    claim "$1: a critical pod runs before the shutdown" is_ready critical
    claim "$1: a shutdown of the node is delayed" inhibits
    claim "$1: logind waits as long as the pods may take" waits_long_enough
    # It then reads who delays a shutdown. That the lock is still kept for pod-worker-pool as
    # well shows when that is killed.
    systemctl restart systemd-logind.service
    claim "$1: a shutdown is delayed after a restart of logind" inhibits
    systemctl --no-block poweroff
    claim "$1: the shutdown asks the usual pod to end" test -s /notes/asked-usual
    kill_program pod-worker-pool
    claim "$1: the lock of the shutdown outlives pod-worker-pool" inhibits
    # What follows is claimed after the next boot.
    echo end
    sleep 60
}
# after_shutdown STARTER
after_shutdown() {
    for pod in usual critical; do
        claim "$1: the $pod pod had its time to end" test -s "/notes/ended-$pod"
    done
    claim "$1: critical pods are asked to end once usual ones have ended" comes_before ended-usual asked-critical
    for pod in usual critical; do
        claim "$1: the $pod pod that ended with the node starts with its next boot" is_ready "$pod"
    done
    claim "$1: after a boot pods are kept off the node's loopback" loopback_is_kept
    rm /etc/kubernetes/manifests/{usual,critical}.json
    claim "$1: pods whose manifests are removed are gone" no_containers
    systemctl disable --quiet --now "$1"
}

# slice_of NAME CLASS: the slice of a pod; CLASS as in its name, with a dash after it.
slice_of() {
    local uid
    uid=$(bulkhead describe "$1" | sed -n 's/^ *UID: *//p')
    echo "kubepods-$2pod${uid//-/_}.slice"
}
has_quota() { [ "$(systemctl show --property=CPUQuotaPerSecUSec --value "$1")" = "$2" ]; }
# limits SLICE FILE VALUE: what the kernel has.
limits() { [ "$(cat /sys/fs/cgroup/*/kubepods.slice/{,*/}"$1"/"$2" 2>/dev/null | head --lines=1)" = "$3" ]; }
# holds SLICE: whether processes are in a scope of the runtime below it.
holds() { systemd-cgls --no-pager --unit "$1" | grep -q 'cri-containerd-.*\.scope'; }
is_gone() { ! systemctl is-active "$1" && [ -z "$(find /sys/fs/cgroup -type d -name "$1")" ]; }

try_driver() {
    local starter guaranteed burstable late
    cat >> /etc/containerd/config.toml <<'TOML'
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
TOML
    systemctl restart containerd
    until ctr version >/dev/null 2>&1; do sleep 0.1; done
    sed -i 's/^cgroupDriver: cgroupfs$/cgroupDriver: systemd/' /etc/bulkhead/kubelet.yaml
    for starter in bulkhead.service bulkhead.target; do
        pod guaranteed '' '"resources": { "limits": { "cpu": "250m", "memory": "64Mi" } },'
        pod burstable '' '"resources": { "requests": { "cpu": "500m" }, "limits": { "memory": "96Mi" } },'
        systemctl start "$starter"
        for pod in guaranteed burstable; do
            claim "$starter: a $pod pod runs with the systemd driver" is_ready "$pod"
        done
        guaranteed=$(slice_of guaranteed '')
        burstable=$(slice_of burstable burstable-)
        for pod in guaranteed burstable; do
            claim "$starter: the runtime puts the containers of the $pod pod into its slice" holds "${!pod}"
        done
        claim "$starter: systemd knows the quota of a pod" has_quota "$guaranteed" 250ms
        systemctl daemon-reload
        claim "$starter: the kernel has the quota after a reload of systemd" limits "$guaranteed" cpu.cfs_quota_us 25000
        claim "$starter: the kernel has the memory limit after it" limits "$burstable" memory.limit_in_bytes $((96 << 20))
        before=$(containers)
        kill_program pod-worker-pool
        claim "$starter: after the end of pod-worker-pool every process is ready" all_are_ready
        claim "$starter: no container noticed" containers_are_those_of_before
        systemctl restart dbus.service
        pod late '' '"resources": { "limits": { "memory": "32Mi" } },'
        claim "$starter: a pod starts after the bus was restarted" is_ready late
        late=$(slice_of late burstable-)
        rm /etc/kubernetes/manifests/*.json
        claim "$starter: pods whose manifests are removed are gone" no_containers
        for pod in guaranteed burstable late; do
            claim "$starter: nothing is left of the slice of the $pod pod" is_gone "${!pod}"
        done
        systemctl stop "$starter"
    done
}

try_upgrade_of_supervisor() {
    local pid
    web_pod
    systemctl start bulkhead.service
    claim "a pod runs under the supervisor" web_is_ready
    before=$(containers)
    pid=$(pid_in_status supervisor)
    install_version 3
    claim "a package of a higher version is installed while the supervisor runs" version_is 3
    claim "the upgrade makes the supervisor new" process_has_another_pid supervisor "$pid"
    spoil
    install_version 3
    claim "an upgrade says that the supervisor's unit has failed" grep -q 'bulkhead.service has failed' /dpkg.log
    claim "it says why" grep -q 'noSuchField' /dpkg.log
    mend
    systemctl start bulkhead.service
    claim "with the configuration mended the supervisor starts every process" all_are_ready
}

# Since $removed_at, by whoever asked systemd to.
unit_was_stopped() { journalctl --since="$removed_at" UNIT=bulkhead.service | grep -q ': Stopping '; }
try_removal() {
    local removed_at
    removed_at=$(date +'%F %T.%6N')
    dpkg --remove bulkhead >> /dpkg.log 2>&1
    claim "the package can be removed while the supervisor runs" is_removed
    claim "a removal stops the unit, which does not end for want of its programs" unit_was_stopped
    claim "a removal ends every process" is_not programs_run
    claim "a removal keeps the node's own configuration" grep -q '^evictionHard' /etc/bulkhead/kubelet.yaml
    install_version 3
    claim "after a removal an installation starts nothing" is_not programs_run
    systemctl start bulkhead.target
    claim "installed again it has the same pod" web_is_ready
    claim "no container noticed upgrades, removal and installation" containers_are_those_of_before
    rm /etc/kubernetes/manifests/web.json
    claim "a pod whose manifest is removed is gone" no_containers
    rm -f /etc/bulkhead/policy.toml
    dpkg --purge bulkhead >> /dpkg.log 2>&1
    claim "a purge ends every process" is_not programs_run
    claim "a purge leaves nothing" nothing_is_left
    claim "a purge leaves no rules of the firewall" is_not nft list table ip bulkhead_loopback
}

metadata=169.254.169.254
# inside UNIT COMMAND...: in the cgroup of a unit, of the supervisor's in that of prober
# below it, and with nothing else of it.
inside() {
    local group
    group="/sys/fs/cgroup$(systemctl show --property=ControlGroup --value "$1")"
    [ "$1" != bulkhead.service ] || group=$(find "$group" -mindepth 1 -type d -name prober)
    shift
    (echo "$BASHPID" > "$group/cgroup.procs" && exec "$@")
}
# connects UNIT ADDRESS: over TCP to a server that is there.
connects() { inside "$1" timeout 2 bash -c "exec 3<>/dev/tcp/$2/80"; }
# A datagram, of which the kernel says at once where it may not go.
may_not_send() { inside "$1" bash -c "echo > /dev/udp/$2/53" 2>&1 | grep -q 'Operation not permitted'; }
refuses() {
    claim "$1 reaches a usual address" connects "$1" 10.98.0.1
    claim "$1 sends nothing to $metadata" may_not_send "$1" "$metadata"
    claim "$1 does not connect to it" is_not connects "$1" "$metadata"
}
# Where processes connect to, as systemd holds them to it from outside.
try_egress() {
    ip link set lo up
    ip address add "$metadata/32" dev lo
    /bin/busybox httpd -p 80 -h /images
    install_version 3
    systemctl start bulkhead.service
    claim "on cgroup version 2 every process under the supervisor is ready" all_are_ready
    refuses bulkhead.service
    systemctl start bulkhead.target
    claim "on cgroup version 2 every process of the bundle is ready" all_are_ready
    claim "it is not said that nothing keeps processes off metadata services" is_not status_says "$of_egress"
    for process in prober config-sourcer; do refuses "bulkhead-$process.service"; done
    for process in pleg pod-worker-pool status-syncer sync-loop; do
        claim "bulkhead-$process.service sends nothing anywhere" may_not_send "bulkhead-$process.service" 10.98.0.1
    done
    dpkg --purge bulkhead >> /dpkg.log 2>&1
}

# Where a boot was cut off, something may be left.
clean() {
    dpkg --purge bulkhead >/dev/null 2>&1
    rm -rf /etc/bulkhead /etc/kubernetes/manifests/* /var/lib/bulkhead.aside
    ctr --namespace=k8s.io tasks ls --quiet | xargs --no-run-if-empty --max-args=1 ctr --namespace=k8s.io tasks rm --force
    ctr --namespace=k8s.io containers ls --quiet | xargs --no-run-if-empty ctr --namespace=k8s.io containers rm
    for archive in /images/*.tar; do ctr --namespace=k8s.io images import "$archive" >/dev/null; done
}

until ctr version >/dev/null 2>&1; do sleep 0.1; done
case "$(cat /boot-number)" in
    first)
        clean
        try_installation
        try_bundle
        prove_bundle
        try_commands
        try_upgrade_of_bundle
        try_supervisor
        begin_shutdown bulkhead.target
        exit ;;
    second)
        after_shutdown bulkhead.target
        try_driver
        begin_shutdown bulkhead.service
        exit ;;
    third)
        after_shutdown bulkhead.service
        try_upgrade_of_supervisor
        try_removal ;;
    unified)
        clean
        try_egress ;;
esac
echo end
