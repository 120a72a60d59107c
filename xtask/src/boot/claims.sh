# What has to hold in the booted container: a line "ok CLAIM" or "FAILED CLAIM" for each.

processes="pod-worker-pool status-syncer pleg prober config-sourcer sync-loop"

# claim NAME COMMAND...: whether the command succeeds within 30 s; a guest has longer.
claim() {
    local name="$1"
    shift
    for _ in $(seq "${CLAIM_TRIES:-150}"); do
        if "$@" >/dev/null 2>&1; then
            echo "ok $name"
            return
        fi
        sleep 0.2
    done
    echo "FAILED $name"
    journalctl --no-pager --lines=30 --unit='bulkhead*' | sed 's/^/    /'
}

# Its status is remembered through a reboot, so what runs is looked at, too: the container
# and that of its sandbox.
web_is_ready() { bulkhead pods | grep -q 'web-node-a *1/1' && [ "$(containers | wc -l)" = 2 ]; }

# prove NAME COMMAND...: whether the command succeeds; what it says is shown if it does not.
prove() {
    local name="$1" told
    shift
    if told=$("$@" 2>&1); then
        echo "ok $name"
    else
        echo "FAILED $name"
        echo "$told" | sed 's/^/    /'
    fi
}

# is_confined STARTER PROCESS PID [SUPERVISOR]: whether what /proc tells of it is what its row says.
# The supervisor puts those whom systemd has moved out of their cgroups back within 15 s.
is_confined() {
    for _ in $(seq "${CLAIM_TRIES:-150}"); do
        ! /proof/confined "$@" >/dev/null 2>&1 || break
        sleep 0.2
    done
    prove "$1 confines $2 as the topology says" /proof/confined "$@"
}
# What the machine refuses to everybody of scores and weights, and nothing else of these.
refusals_are_told() { bulkhead status | grep '^degraded: ' | /proof/confined refusals; }
all_are_ready() { bulkhead status && programs_run; }
containers() (
    set -o pipefail
    ctr --namespace=k8s.io tasks ls --quiet | sort
)
containers_are_those_of_before() { [ -n "$before" ] && [ "$(containers)" = "$before" ]; }
no_containers() {
    local all
    all=$(containers) && [ -z "$all" ]
}
pid_of_service() { systemctl show --property=MainPID --value "bulkhead-$1.service"; }
pid_in_status() { bulkhead status | awk -v name="$1" '$1 == name { print $3 }'; }
service_has_another_pid() {
    local now
    now=$(pid_of_service "$1")
    [ "$now" != 0 ] && [ "$now" != "$2" ] && systemctl is-active "bulkhead-$1.service"
}
connections_are_kept() {
    local kept
    kept=$(systemctl show --property=NFileDescriptorStore --value bulkhead-pod-worker-pool.service)
    [ "$kept" -ge 6 ] && [ "$kept" -le 7 ]
}
service_has_pid() { [ "$(pid_of_service "$1")" = "$2" ]; }
process_has_another_pid() {
    local now
    now=$(pid_in_status "$1")
    [ -n "$now" ] && [ "$now" != - ] && [ "$now" != "$2" ] && all_are_ready
}
ends_with_4_as_a_user() {
    setpriv --reuid=65534 --regid=65534 --clear-groups bulkhead "$@" 2> /told
    [ $? = 4 ] && grep -q 'run it as root' /told && is_not grep -q Finished /told
}
top_shows_the_bundle() { bulkhead top --once | grep -q '^pod-worker-pool  *[0-9]'; }
status_is_shown_again() { [ "$(grep -c '^PROCESS ' /watched)" -ge 2 ]; }
crash_is_told() { bulkhead crashes "$1" | grep -q SIGKILL; }
last_killed_is_told_first() { bulkhead crashes | head --lines=1 | grep -q "^$1 .*SIGKILL"; }
log_lines_are_told() { bulkhead crashes "$1" | grep -q '^    [^ ]'; }
# As any user can write into the journal.
forge_crash() {
    runuser --user=nobody -- logger --journald <<'ENTRY'
MESSAGE=bulkhead-pleg.service: Main process exited, code=killed, status=11/SEGV
MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15
UNIT=bulkhead-pleg.service
EXIT_CODE=killed
EXIT_STATUS=11
ENTRY
}
forged_crash_is_in_journal() { journalctl --no-pager UNIT=bulkhead-pleg.service EXIT_STATUS=11 | grep -q SEGV; }
tells_no_forged_crash() { bulkhead crashes pleg > /crashes && is_not grep -q SIGSEGV /crashes; }
# As the kernel does not let it become another user.
kept_privileges_are_told() {
    setpriv --bounding-set=-setgid,-setuid --inh-caps=-setgid,-setuid bulkhead crashes 2>&1 > /dev/null |
        grep -q "goes on with root's privileges"
}
has_no_privileges() {
    local line
    for line in 'Uid:.65534.65534.65534.65534' 'Groups:. *' 'CapPrm:.0*' 'NoNewPrivs:.1'; do
        grep -q "^$line\$" "/proc/$1/status" || return
    done
}
# kill_program PROCESS: whoever has started it.
kill_program() {
    local exe
    for exe in /proc/[0-9]*/exe; do
        [ "$(readlink "$exe")" != "/usr/libexec/bulkhead/$1" ] || kill -KILL "$(echo "$exe" | cut -d / -f 3)"
    done
}
volume_is_mounted() { grep -q 'kubernetes.io~empty-dir/memory tmpfs' /proc/mounts; }

is_not() { ! "$@"; }
# The rules that keep pods off 127.0.0.0/8 of the node.
loopback_is_kept() { systemctl --quiet is-active bulkhead-loopback.service && nft list table ip bulkhead_loopback; }
# kernel_is VALUES...: of the settings that the package has, in their order.
kernel_is() { [ "$(cat /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic /proc/sys/kernel/panic_on_oops | xargs)" = "$*" ]; }
settings_are_read() { /usr/lib/systemd/systemd-sysctl --cat-config | grep -q '^-kernel.panic_on_oops = 1$'; }
# A container's kernel is that of the machine, which is not to be changed from here.
has_own_kernel() { ! systemd-detect-virt --quiet --container; }
starts_at_boot() { systemctl is-enabled bulkhead.service || systemctl is-enabled bulkhead.target; }
install_version() {
    ${installer:-dpkg --install} "/packages/$1.deb" >> /dpkg.log 2>&1
    # No pod is to go for want of room on the machine that runs this.
    grep -q '^evictionHard' /etc/bulkhead/kubelet.yaml || echo 'evictionHard: {}' >> /etc/bulkhead/kubelet.yaml
}
version_is() { [ "$(dpkg-query --show --showformat='${db:Status-Status} ${Version}' bulkhead)" = "installed $1" ]; }
is_removed() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' bulkhead)" = config-files ]; }
has_users() {
    local process
    for process in $processes credential-provider; do
        [ "$process" = pod-worker-pool ] || getent passwd "bulkhead-$process" || return
    done
}
have_their_numbers() {
    grep '^u ' /usr/lib/sysusers.d/bulkhead.conf | while read -r _ name number _; do
        has_number "$name" "$number" || return
    done
}
# has_number NAME NUMBER: as user and as group.
has_number() {
    [ "$(id --user "$1")" = "$2" ] && [ "$(id --group "$1")" = "$2" ] && [ "$(getent group "$1" | cut -d : -f 3)" = "$2" ]
}
# A purge leaves users, which may own something.
remove_users() {
    local process
    for process in $processes credential-provider; do userdel "bulkhead-$process" 2>/dev/null; done
}
# Since $removed_at, by whoever asked systemd to.
unit_was_stopped() { journalctl --since="$removed_at" UNIT=bulkhead.service | grep -q ': Stopping '; }
programs_run() { readlink /proc/[0-9]*/exe | grep '^/usr/libexec/bulkhead/'; }
# started_at PROCESS: when its service last started, on a clock that only grows.
started_at() { systemctl show --property=ExecMainStartTimestampMonotonic --value "bulkhead-$1.service"; }
pool_started_last() {
    local process last
    last=$(started_at pod-worker-pool)
    for process in $processes; do
        [ "$(started_at "$process")" -le "$last" ] || return
    done
}
configuration_is_ours() { grep -q '^# ours$' /etc/bulkhead/kubelet.yaml; }
nothing_is_left() {
    local place
    for place in /etc/bulkhead /var/lib/bulkhead /var/log/bulkhead /run/bulkhead /usr/libexec/bulkhead; do
        [ ! -e "$place" ] || return
    done
    [ -z "$(systemctl list-unit-files --no-legend 'bulkhead*')" ]
}

web_manifest() { probed_manifest web; }
# probed_manifest NAME: a static pod with a volume in memory, ready once a probe has succeeded.
probed_manifest() {
    cat > "/etc/kubernetes/manifests/$1.json" <<MANIFEST
{
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": { "name": "$1" },
  "spec": {
    "terminationGracePeriodSeconds": 1,
    "containers": [{
      "name": "app",
      "image": "localhost/busybox:test",
      "command": ["sh", "-c", "while :; do sleep 1; done"],
      "readinessProbe": { "exec": { "command": ["true"] }, "periodSeconds": 1, "timeoutSeconds": 10 },
      "volumeMounts": [{ "name": "memory", "mountPath": "/memory" }]
    }],
    "volumes": [{ "name": "memory", "emptyDir": { "medium": "Memory" } }]
  }
}
MANIFEST
}

. /lacks.sh
. /programs.sh

until ctr version >/dev/null 2>&1; do sleep 0.1; done

if [ "$(cat /boot-number)" = second ]; then
    claim "after a reboot the supervisor's unit brings the pod back" web_is_ready
    claim "after a reboot what pods may not reach of the node's loopback is kept from them" loopback_is_kept
    before=$(containers)
    declare -A pids
    for process in supervisor $processes; do pids[$process]=$(pid_in_status "$process"); done
    install_version 3
    claim "a package of a higher version is installed while the supervisor runs" version_is 3
    for process in supervisor $processes; do
        claim "the upgrade makes $process new" process_has_another_pid "$process" "${pids[$process]}"
    done
    claim "no container noticed the upgrade" containers_are_those_of_before
    echo 'noSuchField: 1' >> /etc/bulkhead/kubelet.yaml
    install_version 3
    claim "an upgrade tells that the supervisor's unit has failed" grep -q 'bulkhead.service has failed' /dpkg.log
    claim "it tells why" grep -q 'noSuchField' /dpkg.log
    sed -i '/^noSuchField/d' /etc/bulkhead/kubelet.yaml
    systemctl start bulkhead.service
    claim "with the configuration mended the supervisor starts every process" all_are_ready
    claim "no container noticed the failed upgrade" containers_are_those_of_before
    removed_at=$(date +'%F %T.%6N')
    dpkg --remove bulkhead >> /dpkg.log 2>&1
    claim "the package can be removed while the supervisor runs" is_removed
    claim "a removal stops the unit, which does not end for want of its programs" unit_was_stopped
    claim "a removal ends every process" is_not programs_run
    claim "no container noticed the removal" containers_are_those_of_before
    claim "a removal keeps the node's own configuration" configuration_is_ours
    install_version 3
    claim "after a removal an installation starts nothing" is_not programs_run
    systemctl start bulkhead.target
    claim "installed again it has the same pod" web_is_ready
    claim "no container noticed the time without Bulkhead" containers_are_those_of_before
    rm /etc/kubernetes/manifests/web.json
    claim "a pod whose manifest is removed is gone" no_containers
    dpkg --purge bulkhead >> /dpkg.log 2>&1
    claim "a purge ends every process" is_not programs_run
    claim "a purge leaves nothing" nothing_is_left
    claim "a purge leaves no rules of the firewall" is_not nft list table ip bulkhead_loopback
    echo end
    exit
fi

if [ "$(cat /boot-number)" = fourth ]; then
    . /driver.sh
    . /shutdown.sh
    after_shutdown bulkhead.service
    begin_shutdown bulkhead.target
    exit
fi

if [ "$(cat /boot-number)" = fifth ]; then
    . /driver.sh
    . /shutdown.sh
    after_shutdown bulkhead.target
    purge_after_shutdowns
    echo end
    exit
fi

# Where a boot was cut off, something may be left.
dpkg --purge bulkhead >/dev/null 2>&1
remove_users
rm -rf /etc/bulkhead /etc/kubernetes/manifests/* /var/lib/bulkhead.aside
for archive in /images/*.tar; do ctr --namespace=k8s.io images import "$archive" >/dev/null; done
if [ "$(cat /boot-number)" = third ]; then
    . /driver.sh
    . /shutdown.sh
    try_driver
    begin_shutdown bulkhead.service
    exit
fi
# What a unit that an earlier boot left enabled has started meanwhile.
ctr --namespace=k8s.io tasks ls --quiet | xargs --no-run-if-empty --max-args=1 ctr --namespace=k8s.io tasks rm --force
ctr --namespace=k8s.io containers ls --quiet | xargs --no-run-if-empty ctr --namespace=k8s.io containers rm
case "$(cat /boot-number)" in
    unified)
        . /egress.sh
        try_egress
        echo end
        exit ;;
    fire)
        . /driver.sh
        . /fire.sh
        try_fire
        echo end
        exit ;;
    upgrade)
        . /driver.sh
        . /upgrade.sh
        try_upgrade
        echo end
        exit ;;
    kills)
        install_version 1
        web_manifest
        systemctl start bulkhead.target
        claim "in the bundle a pod runs" web_is_ready
        before=$(containers)
        /proof/bench --only bundle-kills --kills "$(cat /kills)"
        claim "after the kills every process is ready" all_are_ready
        claim "no container noticed the kills" containers_are_those_of_before
        rm /etc/kubernetes/manifests/web.json
        claim "a pod whose manifest is removed is gone" no_containers
        dpkg --purge bulkhead >> /dpkg.log 2>&1
        echo end
        exit ;;
esac
kernel=$(cat /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic /proc/sys/kernel/panic_on_oops | xargs)
# As the README says it.
installer='apt-get install --yes' install_version 1
claim "the package can be installed" version_is 1
claim "a boot reads the kernel's settings of the package" settings_are_read
if has_own_kernel; then
    claim "an installation sets the kernel as a kubelet does" kernel_is 1 10 1
else
    claim "an installation in a container leaves the machine's kernel alone" kernel_is $kernel
fi
claim "an installation makes no rules of the firewall" is_not nft list table ip bulkhead_loopback
claim "an installation makes the users" has_users
claim "they have the numbers of the topology" have_their_numbers
claim "an installation starts nothing" is_not programs_run
claim "an installation has nothing start at the next boot" is_not starts_at_boot
systemctl preset --quiet bulkhead.service bulkhead.target
claim "the preset enables nothing" is_not starts_at_boot
echo '# ours' >> /etc/bulkhead/kubelet.yaml
web_manifest

systemctl start bulkhead.target
claim "in the bundle every process is ready" all_are_ready
claim "in the bundle a pod runs" web_is_ready
claim "in the bundle what pods may not reach of the node's loopback is kept from them" loopback_is_kept
for process in $processes; do is_confined systemd "$process" "$(pid_of_service "$process")"; done
claim "the bundle tells what the machine refuses" refusals_are_told
# So that it is seen what was not asked for above.
/proof/confined refusals < /dev/null | sed 's/^/    /'
claim "the runtime sees what pod-worker-pool mounts in the bundle" volume_is_mounted
claim "bulkhead top shows the processes of the bundle" top_shows_the_bundle
bulkhead status --watch > /watched &
watched=$!
before=$(containers)
for process in $processes; do
    pid=$(pid_of_service "$process")
    kill -KILL "$pid"
    claim "systemd starts $process again" service_has_another_pid "$process" "$pid"
    claim "the end of $process is told" crash_is_told "$process"
done
claim "in the bundle every process is ready again" all_are_ready
claim "a watched status is shown again when a process was killed" status_is_shown_again
kill "$watched"
claim "no container noticed" containers_are_those_of_before
. /proof.sh
prove_bundle
claim "the last crash is told first" last_killed_is_told_first sync-loop
claim "the log lines before a crash are told" log_lines_are_told pleg
forge_crash
claim "a user writes into the journal what looks like a crash" forged_crash_is_in_journal
claim "nobody but systemd tells of crashes" tells_no_forged_crash
harmed_sockets
second_agent
watch_bundle
crash_loop
bad_configuration
leaves_a_child
gives_credentials
mkdir -p /slow
printf '#!/bin/sh\nexec sleep 1000\n' > /slow/journalctl
chmod 755 /slow/journalctl
PATH="/slow:$PATH" bulkhead crashes 2> /slow/told &
claim "bulkhead has no privileges while it reads the journal" has_no_privileges $!
wait $!
prove "where bulkhead cannot give up root's privileges it says so" kept_privileges_are_told
claim "bulkhead does not wait for a journal that hangs" grep -q 'not answered within 10 s' /slow/told
# The first question is whether the bundle runs, which is answered.
printf '#!/bin/sh\n[ "$2" != --property=ActiveState,Job ] || exec /bin/systemctl "$@"\nexec sleep 1000\n' > /slow/systemctl
chmod 755 /slow/systemctl
PATH="/slow:$PATH" bulkhead status > /dev/null 2>&1 &
claim "bulkhead has no privileges while it reads what systemd tells" has_no_privileges $!
wait $!
rm /slow/systemctl
declare -A pids
pid=$(pid_of_service pleg)
bulkhead restart pleg >/dev/null
claim "bulkhead restarts a process of the bundle" service_has_another_pid pleg "$pid"
for words in 'restart pleg' reload; do
    prove "who is not root is told so of $words" ends_with_4_as_a_user $words
done
systemctl stop bulkhead.target
drop_in bulkhead-pleg.service 'ExecStartPre=/bin/sleep 5'
systemctl start --no-block bulkhead.target
claim "while the bundle comes up its processes are shown" is_told '^pleg  *starting'
prove "then its target is not reached yet" is_not systemctl --quiet is-active bulkhead.target
no_drop_in bulkhead-pleg.service
claim "it comes up" all_are_ready
# Systemd keeps eight, and refuses the newest.
for _ in 1 2 3 4 5 6 7 8 9; do bulkhead restart pod-worker-pool >/dev/null; done
claim "of the connections of many runs systemd keeps the newest" connections_are_kept
for process in $processes; do pids[$process]=$(pid_of_service "$process"); done
cp /etc/bulkhead/kubelet.yaml /slow/kubelet.yaml
echo 'noSuchField: 1' >> /etc/bulkhead/kubelet.yaml
claim "a reload of a wrong configuration fails" is_not bulkhead reload
bulkhead reload 2> /slow/told || true
claim "it is told what is wrong" grep -q noSuchField /slow/told
for process in $processes; do
    claim "a wrong configuration ends $process not" service_has_pid "$process" "${pids[$process]}"
done
cp /slow/kubelet.yaml /etc/bulkhead/kubelet.yaml
bulkhead reload >/dev/null
claim "after a reload every process is ready" all_are_ready
claim "no container noticed the reload" containers_are_those_of_before
hostname renamed
bulkhead reload >/dev/null
prove "a reload keeps the name of the node" is_not grep -q renamed /run/bulkhead/node.json
hostname node-a
claim "every process is ready with it" all_are_ready
claim "no container noticed that the host was renamed" containers_are_those_of_before
systemctl stop bulkhead.target
# It is stopped last, after the command has come back.
claim "what has prepared the node stops with the bundle" is_not systemctl --quiet is-active bulkhead-prepare.service
prove "pods are kept off the node's loopback while nothing of it runs" loopback_is_kept
mv /var/lib/bulkhead /var/lib/bulkhead.aside
touch /var/lib/bulkhead
systemctl start bulkhead.target
claim "nothing is prepared without a directory for it" prepare_ended_with 16
claim "that it is tried again is told" is_told 'bulkhead-prepare.service has failed, and is tried again'
prove "nothing runs meanwhile" is_not processes_run
rm /var/lib/bulkhead
mv /var/lib/bulkhead.aside /var/lib/bulkhead
claim "once the directory is there every process starts by itself" all_are_ready
claim "no container noticed that nothing could be prepared" containers_are_those_of_before
/var/lib/dpkg/info/bulkhead.prerm upgrade 2
/var/lib/dpkg/info/bulkhead.postinst abort-upgrade 2
claim "after an aborted upgrade the watch service runs" systemctl --quiet is-active bulkhead-watch.service
for process in $processes; do pids[$process]=$(pid_of_service "$process"); done
echo 'noSuchField: 1' >> /etc/bulkhead/kubelet.yaml
install_version 1
claim "an upgrade succeeds where the configuration cannot be used" version_is 1
claim "after it the watch service runs" systemctl --quiet is-active bulkhead-watch.service
for process in $processes; do
    claim "it ends $process not" service_has_pid "$process" "${pids[$process]}"
done
systemctl restart bulkhead.target
claim "the bundle starts nothing with a wrong configuration" is_not processes_run
install_version 1
claim "an upgrade succeeds where nothing could be prepared" version_is 1
cp /slow/kubelet.yaml /etc/bulkhead/kubelet.yaml
install_version 1
claim "with the configuration mended an upgrade brings every process back" all_are_ready
claim "no container noticed the upgrades with a wrong configuration" containers_are_those_of_before
for process in $processes; do pids[$process]=$(pid_of_service "$process"); done
install_version 2
claim "a package of a higher version is installed while the bundle runs" version_is 2
for process in $processes; do
    claim "the upgrade of the bundle makes $process new" service_has_another_pid "$process" "${pids[$process]}"
done
claim "the upgrade of the bundle restarts pod-worker-pool last" pool_started_last
claim "after the upgrade every process is ready" all_are_ready
claim "no container noticed the upgrade of the bundle" containers_are_those_of_before
claim "after the upgrade of the bundle pods are kept off the node's loopback" loopback_is_kept
nft delete table ip bulkhead_loopback
systemctl reload bulkhead-loopback.service
claim "rules that somebody has removed can be loaded again" loopback_is_kept
# Each of these flushes all rules.
systemctl start nftables.service
systemctl restart bulkhead-loopback.service
for verb in restart reload; do
    nft add table ip other
    systemctl "$verb" nftables.service
    claim "a $verb of nftables.service removes all rules" is_not nft list table ip other
    claim "a $verb of nftables.service brings them back" loopback_is_kept
done
systemctl stop nftables.service
systemctl restart bulkhead-loopback.service
claim "an upgrade keeps the node's own configuration" configuration_is_ours

claim "it is told that nothing keeps processes off metadata services on cgroup version 1" is_told "$of_egress"
lacks=$(machine_lacks)
systemctl start bulkhead.service
claim "the supervisor takes over from the bundle" all_are_ready
for process in supervisor $processes credential-provider; do
    pid=$(pid_in_status "$process")
    [ -z "$pid" ] || is_confined supervisor "$process" "$pid" "$(pid_in_status supervisor)"
done
claim "the supervisor tells what the machine refuses" refusals_are_told
claim "both tell the same of the machine" machine_lacks_the_same "$lacks"
claim "the bundle has stopped" test "$(systemctl is-active bulkhead-pleg.service)" != active
claim "no container noticed that the supervisor took over" containers_are_those_of_before
for process in $processes; do
    pid=$(pid_in_status "$process")
    kill -KILL "$pid"
    claim "the supervisor starts $process again" process_has_another_pid "$process" "$pid"
done
systemctl restart bulkhead.service
claim "after a restart of its unit every process is ready" all_are_ready
claim "the pod is ready under the supervisor" web_is_ready
claim "no container noticed all that" containers_are_those_of_before
systemctl start bulkhead.target
claim "the bundle takes over from the supervisor" all_are_ready
claim "no container noticed that the bundle took over" containers_are_those_of_before
systemctl stop bulkhead.target
systemctl enable --quiet bulkhead.service
echo end
