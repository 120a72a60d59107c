# What has to hold of who watches the processes of the bundle. Read by claims.sh.

watch_is_active() { systemctl is-active bulkhead-watch.service; }
is_told() { bulkhead status | grep -q "$1"; }
state_of() { echo "/var/lib/bulkhead/$1"; }
ends_are_told() { journalctl --no-pager --unit=bulkhead-watch.service | grep -q "$1"; }
anybody_reads_the_status() { runuser --user=nobody -- bulkhead status | grep -q '^pod-worker-pool .*ready'; }
capabilities_are() { grep -q "^CapEff:.0*$2\$" "/proc/$(pid_of_service "$1")/status"; }
# sees PID PATH: whether a process sees something, in its own mounts.
sees() { nsenter --target "$1" --mount test -e "$2"; }

watch_bundle() {
    local pid watch
    claim "in the bundle somebody watches the processes" watch_is_active
    watch=$(pid_of_service watch)
    # CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL
    claim "who watches has three capabilities" capabilities_are watch 23
    claim "who watches does not see the system bus" is_not sees "$watch" /run/dbus/system_bus_socket
    claim "who watches does not see the container runtime" is_not sees "$watch" /run/containerd/containerd.sock
    claim "who is not root reads the status of the bundle" anybody_reads_the_status

    pid=$(pid_of_service prober)
    head --bytes=200M /dev/zero > "$(state_of prober)/more"
    claim "in the bundle who keeps too much is started anew" service_has_another_pid prober "$pid"
    claim "what it kept is removed" test ! -e "$(state_of prober)/more"
    claim "that it kept too much is told" ends_are_told 'prober keeps 200 MiB'
    head --bytes=200M /dev/zero > "$(state_of pod-worker-pool)/more"
    claim "of pod-worker-pool it is only told" is_told 'pod-worker-pool keeps 200 MiB'
    rm "$(state_of pod-worker-pool)/more"
    claim "and no longer once it is gone" is_not is_told 'pod-worker-pool keeps'

    # A program of an attacker in the place of pleg, which calls what is not for it.
    mkdir -p /run/systemd/system/bulkhead-pleg.service.d
    cat > /run/systemd/system/bulkhead-pleg.service.d/hostile.conf <<'UNIT'
[Service]
ExecStart=
ExecStart=/proof/hostile-pleg --node-config /run/bulkhead/node.json
UNIT
    systemctl daemon-reload
    systemctl restart bulkhead-pleg.service
    pid=$(pid_of_service pleg)
    claim "in the bundle who is cut off again is started anew" service_has_another_pid pleg "$pid"
    claim "what was refused to it is told" is_told 'pod-worker-pool refused pleg .*foreign-service'
    claim "a server that has a caller ended again and again is not believed for ever" is_told 'pod-worker-pool has had pleg restarted 3 times'
    rm /run/systemd/system/bulkhead-pleg.service.d/hostile.conf
    systemctl daemon-reload
    systemctl restart bulkhead-pleg.service
    claim "with its own program again every process is ready" all_are_ready

    kill -KILL "$watch"
    claim "systemd starts who watches again" service_has_another_pid watch "$watch"
    systemctl stop bulkhead-watch.service
    claim "that nobody watches is told" is_told 'nobody looks at what the processes keep'
    systemctl start bulkhead-watch.service
    claim "and no longer once somebody does" is_not is_told 'nobody looks'
    claim "no container noticed who watches" containers_are_those_of_before
}

# A program that ends at once, in the place of pleg.
loops_slowly() { [ "$(systemctl show --property=NRestarts --value bulkhead-pleg.service)" -ge 8 ]; }
crash_loop() {
    mkdir -p /run/systemd/system/bulkhead-pleg.service.d
    printf '[Service]\nExecStart=\nExecStart=/bin/false\n' > /run/systemd/system/bulkhead-pleg.service.d/ends.conf
    systemctl daemon-reload
    systemctl restart --no-block bulkhead-pleg.service
    claim "who ends at once is started again and again" loops_slowly
    # 12 restarts a second without a wait; the longest is 4 s.
    local restarts
    restarts=$(systemctl show --property=NRestarts --value bulkhead-pleg.service)
    sleep 10
    prove "after a while it is started every 4 s" test "$(systemctl show --property=NRestarts --value bulkhead-pleg.service)" -le $((restarts + 6))
    rm /run/systemd/system/bulkhead-pleg.service.d/ends.conf
    systemctl daemon-reload
    claim "once its program is good again every process is ready" all_are_ready
}
