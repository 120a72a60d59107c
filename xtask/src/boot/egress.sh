# What has to hold of where processes connect to, as the kernel holds them to it from
# outside: systemd does that on cgroup version 2. Read by claims.sh, on a boot of its own.

metadata=169.254.169.254
other=10.98.0.1

# group_of UNIT: its cgroup; of the supervisor's that of prober below it.
group_of() {
    local group
    group="/sys/fs/cgroup$(systemctl show --property=ControlGroup --value "$1")"
    case "$1" in
        bulkhead.service) find "$group" -mindepth 1 -type d -name prober ;;
        *) echo "$group" ;;
    esac
}
# inside UNIT COMMAND...: in the cgroup of a unit, and with nothing else of it.
inside() {
    local group
    group=$(group_of "$1")
    shift
    (echo "$BASHPID" > "$group/cgroup.procs" && exec "$@")
}
# connects UNIT ADDRESS: over TCP to a server that is there.
connects() { inside "$1" timeout 2 bash -c "exec 3<>/dev/tcp/$2/80"; }
# sends UNIT ADDRESS: a datagram, of which the kernel says at once where it may not go.
sends() { inside "$1" bash -c "echo > /dev/udp/$2/53"; }
may_not_send() { sends "$@" 2>&1 | grep -q 'Operation not permitted'; }

try_egress() {
    ip link set lo up
    for address in "$metadata/32" 168.63.129.16/32 fd00:ec2::254/128; do
        ip address add "$address" dev lo
    done
    /bin/busybox httpd -p 80 -h /images
    # Of an earlier package, and of somebody else.
    useradd --system --uid 901 --user-group bulkhead-prober
    groupadd --gid 60803 somebody
    useradd --uid 60803 --gid 60803 somebody 2>/dev/null
    install_version 3
    claim "a user of an earlier package keeps its number" has_number bulkhead-prober 901
    claim "who has a number of ours keeps it" has_number somebody 60803
    claim "the user that was to have it has another" is_not has_number bulkhead-pleg 60803
    claim "the others have theirs" has_number bulkhead-sync-loop 60806
    systemctl start bulkhead.target
    claim "on cgroup version 2 every process of the bundle is ready" all_are_ready
    claim "a metadata service can be reached from the node" timeout 2 bash -c "exec 3<>/dev/tcp/$metadata/80"
    claim "in the bundle it is not told that nothing keeps processes off metadata services" is_not is_told "$of_egress"
    lacks=$(machine_lacks)
    systemctl start bulkhead.service
    claim "on cgroup version 2 the supervisor takes over" all_are_ready
    refuses bulkhead.service
    claim "on cgroup version 2 both tell the same of the machine" machine_lacks_the_same "$lacks"
    systemctl start bulkhead.target
    claim "on cgroup version 2 the bundle takes over" all_are_ready
    for process in prober config-sourcer; do refuses "bulkhead-$process.service"; done
    for process in pleg pod-worker-pool status-syncer sync-loop watch; do
        claim "bulkhead-$process.service sends nothing anywhere" may_not_send "bulkhead-$process.service" "$other"
    done
    mkdir -p /etc/systemd/system/bulkhead-prober.service.d
    sed "s/^IPAddressAllow=.*/IPAddressAllow=$metadata/" /usr/share/doc/bulkhead/examples/systemd/resolver.conf \
        > /etc/systemd/system/bulkhead-prober.service.d/resolver.conf
    systemctl daemon-reload
    systemctl restart bulkhead-prober.service
    claim "a drop-in lets prober send to a resolver at such an address" sends bulkhead-prober.service "$metadata"
    claim "and to no other" may_not_send bulkhead-prober.service 168.63.129.16
    rm -r /etc/systemd/system/bulkhead-prober.service.d
    try_lacks
    dpkg --purge bulkhead >> /dpkg.log 2>&1
    userdel somebody
}

refuses() {
    local address
    claim "$1 reaches a usual address" connects "$1" "$other"
    for address in "$metadata" 168.63.129.16 fd00:ec2::254; do
        claim "$1 sends nothing to $address" may_not_send "$1" "$address"
    done
    claim "$1 does not connect to $metadata" is_not connects "$1" "$metadata"
}
