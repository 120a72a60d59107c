# What has to hold of the bundle while things happen to its processes, and while one of them
# is a malicious server of the others. Read by claims.sh, after driver.sh, on a
# boot of its own.

# How many containers run beside those of before, all of which do.
runs_beside() {
    local now
    now=$(containers)
    [ -z "$(comm -23 <(echo "$before") <(echo "$now"))" ] && [ "$(comm -13 <(echo "$before") <(echo "$now") | wc -l)" = "$1" ]
}
# How often it was started counts what earlier boots have left of its logs.
web_runs() { bulkhead pods | grep -q '^default  *web-node-a *1/1 *Running '; }

# has_recovered PROCESS FAULT PID PHASE: whether all is as it should be after a fault.
has_recovered() {
    case "$2 $1" in
        Fork\ credential-provider) service_has_another_pid "$1" "$3" ;;
        Fork\ *) service_has_pid "$1" "$3" ;;
        ShortStop\ *) ;;
        # Nobody but a person, or a pod that there is not, calls these.
        ExitBadConfiguration\ sync-loop | ExitBadConfiguration\ credential-provider)
            systemctl start "bulkhead-$1.service" && service_has_another_pid "$1" "$3" ;;
        *) service_has_another_pid "$1" "$3" ;;
    esac && all_are_ready && web_runs || return
    case "$4" in
        starts) is_ready beside && runs_beside 2 ;;
        *) runs_beside 0 ;;
    esac
}
# play PROCESS FAULT PHASE: the fault, while the node does that.
play() {
    local pid
    # What it remembers of its starts, so that it does not wait: that is claimed elsewhere.
    rm -f "$(state_of "$1")/restarts"
    systemctl start "bulkhead-$1.service"
    pid=$(pid_of_service "$1")
    case "$3" in
        starts) manifest beside '{}' ;;
        stops) rm /etc/kubernetes/manifests/beside.json ;;
        runtime-is-down) systemctl stop containerd ;;
    esac
    /proof/strike "$1" "$2" "$pid" || echo "FAILED $1, $2 does not happen"
    if [ "$3" = runtime-is-down ]; then
        systemctl start containerd
        until ctr version >/dev/null 2>&1; do sleep 0.1; done
    fi
    claim "$1, $2, $3: no container notices" has_recovered "$1" "$2" "$pid" "$3"
}
try_faults() {
    local process fault phase all
    all=$(/proof/strike)
    # Of seven processes, nine each.
    prove "what can happen to whom is known" test "$(wc -l <<< "$all")" = 63
    while read -r process fault <&3; do
        for phase in idle starts stops runtime-is-down; do play "$process" "$fault" "$phase"; done
    done 3<<< "$all"
}

# order MANNER: how the program in the place of a process answers from now on.
order() {
    printf '{ "manner": "%s", "pods": [["%s", "default", "web-node-a", "%s"]] }' "$1" "$web_uid" "$web_container" > /proof/new
    mv /proof/new /proof/hostile-server.orders
}
status_text() { systemctl show --property=StatusText --value "bulkhead-$1.service"; }
# was_called PROCESS MANNER MESSAGES: whether it has sent so many at least.
was_called() {
    local manner calls messages
    read -r manner calls messages _ <<< "$(status_text "$1")"
    [ "$manner" = "$2" ] && [ "$calls" -ge 1 ] && [ "$messages" -ge "$3" ]
}
pids_but_that_of() {
    local process
    for process in $processes; do [ "$process" = "$1" ] || pid_of_service "$process"; done
}
try_hostile_servers() {
    local server manner messages pids web_uid web_container
    web_uid=$(bulkhead describe web | sed -n 's/^ *UID: *//p')
    web_container=$(bulkhead describe web | sed -n 's/^ *Container ID: *//p')
    prove "the pod to lie about is known" test -n "$web_uid" -a -n "$web_container"
    # sync-loop has nobody but the command line as a caller.
    for server in pleg prober config-sourcer status-syncer pod-worker-pool; do
        order endless
        runs_instead "$server" '/proof/hostile-server --node-config /run/bulkhead/node.json'
        systemctl restart "bulkhead-$server.service"
        pids=$(pids_but_that_of "$server")
        for manner in endless unfinished at-the-bound beyond-the-bound malformed of-others resets silent no-http; do
            order "$manner"
            # A pod that is not admitted, which status-syncer is told.
            manifest "$manner" '{}' '"nodeSelector": { "no": "such-node" },'
            # Those of status-syncer are single.
            case "$server $manner" in
                status-syncer\ * | *\ malformed | *\ resets | *\ silent | *\ no-http | *\ beyond-the-bound) messages=0 ;;
                *\ at-the-bound) messages=5 ;;
                *) messages=1000 ;;
            esac
            claim "$server is a malicious server: $manner" was_called "$server" "$manner" "$messages"
            prove "$server, $manner: its callers live on" test "$(pids_but_that_of "$server")" = "$pids"
            prove "$server, $manner: no container notices" containers_are_those_of_before
            rm "/etc/kubernetes/manifests/$manner.json"
        done
        runs_itself "$server"
        systemctl restart "bulkhead-$server.service"
        claim "with the true $server every process is ready" all_are_ready
        prove "its callers have outlived the malicious $server" test "$(pids_but_that_of "$server")" = "$pids"
        manifest beside '{}'
        claim "with the true $server a pod starts" is_ready beside
        rm /etc/kubernetes/manifests/beside.json
        claim "with the true $server it stops, and no container has noticed" containers_are_those_of_before
    done
}

try_fire() {
    install_version 1
    web_manifest
    systemctl start bulkhead.target
    claim "in the bundle a pod runs" web_is_ready
    before=$(containers)
    try_faults
    try_hostile_servers
    rm /etc/kubernetes/manifests/*.json
    claim "pods whose manifests are removed are gone" no_containers
    dpkg --purge bulkhead >> /dpkg.log 2>&1
}
