# What has to hold of the bundle while things happen to its processes, and while one of them
# is a malicious server of the others. Read by claims.sh, after driver.sh, on a
# boot of its own.

# Pods of which nothing may change: one whose readiness is asked in its container, and nine
# that are asked over the network.
steady=(web steady-1 steady-2 steady-3 steady-4 steady-5 steady-6 steady-7 steady-8 steady-9)

# notes NAME COMMAND PROBES: a static pod whose container notes in /notes when it starts, after
# the command, and when it is asked to end, in seconds since the machine's start.
notes() {
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
      "command": ["sh", "-c", "note() { read now _ < /proc/uptime; echo \$1 \$now >> /notes/$1; }; trap 'note asked; exit' TERM; $2; note started; sleep 1000000 & wait"],
      $3,
      "volumeMounts": [{ "name": "notes", "mountPath": "/notes" }]
    }],
    "volumes": [{ "name": "notes", "hostPath": { "path": "/notes" } }]
  }
}
MANIFEST
}
steady_manifests() {
    local name probe
    web_manifest
    for name in "${steady[@]:1}"; do
        probe="{ \"httpGet\": { \"port\": 8080, \"path\": \"/$name\" }, \"periodSeconds\": 1, \"timeoutSeconds\": 10 }"
        notes "$name" 'httpd -p 8080 -h /notes' "\"readinessProbe\": $probe, \"livenessProbe\": $probe"
    done
}
# Its liveness probe fails from when /notes/fails is there until it is started again.
failing_manifest() {
    notes failing 'rm -f /notes/fails' \
        '"livenessProbe": { "exec": { "command": ["test", "!", "-e", "/notes/fails"] }, "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 30 }'
}
# noted NAME WORD: how often.
noted() { grep -c "^$2 " "/notes/$1"; }
uptime_now() { cut -d ' ' -f 1 /proc/uptime; }
# Of a pod that is ready.
restarts_of() { bulkhead pods "$1" | awk -v name="$1-node-a" '$2 == name && $3 == "1/1" { print $5 }'; }
# How often they were started counts what earlier boots have left of their logs.
steady_run() { [ "$(bulkhead pods "${steady[@]}" | grep -c ' 1/1  *Running ')" = "${#steady[@]}" ]; }
# The first of two failures is seen after $failing_since, the second one a second later.
was_not_asked_early() {
    awk -v since="$failing_since" '$1 == "asked" { at = $2 } END { exit !(at - since >= 0.9) }' /notes/failing
}
# failing_was_restarted TIMES: since the case began, and was asked to end as often.
failing_was_restarted() {
    [ "$(restarts_of failing)" = "$((failing_restarts + $1))" ] &&
        [ "$(noted failing started)" = "$((failing_starts + $1))" ] &&
        [ "$(noted failing asked)" = "$((failing_ends + $1))" ]
}

# How many containers run beside those of before, all of which do. Those of the pod that
# fails are beside them.
runs_beside() {
    local now
    now=$(containers)
    [ -z "$(comm -23 <(echo "$before") <(echo "$now"))" ] && [ "$(comm -13 <(echo "$before") <(echo "$now") | wc -l)" = "$1" ]
}

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
    esac && all_are_ready && steady_run || return
    case "$4" in
        starts) is_ready beside && runs_beside 4 && failing_was_restarted 0 ;;
        probe-fails) runs_beside 2 && failing_was_restarted 1 && was_not_asked_early ;;
        *) runs_beside 2 && failing_was_restarted 0 ;;
    esac
}
# play PROCESS FAULT PHASE: the fault, while the node does that.
play() {
    local pid begin
    # What it remembers of its starts, so that it does not wait: that is claimed elsewhere.
    rm -f "$(state_of "$1")/restarts"
    systemctl start "bulkhead-$1.service"
    pid=$(pid_of_service "$1")
    failing_starts=$(noted failing started)
    failing_ends=$(noted failing asked)
    failing_restarts=$(restarts_of failing)
    case "$3" in
        starts) manifest beside '{}' ;;
        stops) rm /etc/kubernetes/manifests/beside.json ;;
        probe-fails)
            failing_since=$(uptime_now)
            touch /notes/fails ;;
        runtime-is-down) systemctl stop containerd ;;
    esac
    /proof/strike "$1" "$2" "$pid" || echo "FAILED $1, $2 does not happen"
    if [ "$3" = runtime-is-down ]; then
        systemctl start containerd
        until ctr version >/dev/null 2>&1; do sleep 0.1; done
    fi
    begin=$(date +%s%3N)
    claim "$1, $2, $3: no container notices" has_recovered "$1" "$2" "$pid" "$3"
    echo "$(($(date +%s%3N) - begin)) $1, $2, $3" >> /seen/recoveries
}
# recovery PHASE: how long it took after the fault, and after the runtime was back, until a
# case of this phase, or any, held.
recovery() {
    grep "$1\$" /seen/recoveries | sort --numeric-sort | awk -v phase="${1:-all phases}" '
        { took[NR] = $1; longest = $0 }
        END { print "    " phase ": of " NR " cases half held within " took[int((NR + 1) / 2)] " ms, the slowest: " longest }'
}

# Each task of the runtime that runs: its id and pid.
running_tasks() (
    set -o pipefail
    ctr --namespace=k8s.io tasks ls | awk '$3 == "RUNNING" { print $1, $2 }' | sort
)
# lacks_task TASKS: those of the steady pods that are not among them.
lacks_task() { comm -23 <(echo "$steady_tasks") <(echo "$1"); }
# Asks nobody but the runtime. While it goes down it leaves some out.
look_at_runtime() {
    local now
    now=$(running_tasks 2>/dev/null) || return
    echo >> /seen/looks-at-runtime
    [ "$(wc -l <<< "$now")" -le "$most_tasks" ] || echo "too many run: $now" >> /seen/wrong-in-runtime
    # A runtime that starts or stops may tell of some only; one that has ended never comes back.
    for _ in $(seq 30); do
        [ -n "$(lacks_task "$now")" ] || return
        sleep 0.3
        now=$(running_tasks 2>/dev/null) || return
    done
    lacks_task "$now" >> /seen/wrong-in-runtime
}
# With since when they are ready: readiness that was lost and found shows there.
published() { bulkhead pods --output json "${steady[@]}"; }
# Calls wait for a process that is away. Where sync-loop does not answer all the same, bulkhead
# only says so.
look_at_status() {
    local now
    if ! now=$(published 2> /seen/told); then
        { echo "a call failed:"; cat /seen/told; } >> /seen/unanswered
        return
    fi
    echo >> /seen/looks-at-status
    [ "$now" = "$steady_status" ] || diff <(echo "$steady_status") <(echo "$now") >> /seen/wrong-in-status
}
# looks_on COMMAND: again and again.
looks_on() { until [ -e /seen/enough ]; do "$1"; sleep 0.3; done; }
# saw_nothing WHERE: shows the begin of what was seen.
saw_nothing() { [ ! -s "/seen/$1" ] || { head --lines=40 "/seen/$1"; false; }; }
harm_is_seen() {
    look_at_runtime
    look_at_status
    [ -s /seen/wrong-in-runtime ] && [ -s /seen/wrong-in-status ]
}
noted_one_start() {
    local name
    for name in "${steady[@]:1}"; do
        [ "$(cut -d ' ' -f 1 "/notes/$name")" = started ] || { cat "/notes/$name"; return 1; }
    done
}
try_faults() {
    local process fault phase all watched watchers=() phases=(idle starts stops probe-fails runtime-is-down)
    all=$(/proof/strike)
    # Of seven processes, nine each.
    prove "what can happen to whom is known" test "$(wc -l <<< "$all")" = 63
    steady_tasks=$(running_tasks)
    steady_status=$(published)
    failing_manifest
    claim "a pod runs whose probe is to fail" is_ready failing
    # Its two, and the two of the pod that starts and stops.
    most_tasks=$(($(wc -l <<< "$steady_tasks") + 4))
    for watched in runtime status; do
        looks_on "look_at_$watched" &
        watchers+=($!)
    done
    while read -r process fault <&3; do
        for phase in "${phases[@]}"; do play "$process" "$fault" "$phase"; done
    done 3<<< "$all"
    touch /seen/enough
    wait "${watchers[@]}"
    for phase in "${phases[@]}" ''; do recovery "$phase"; done
    echo "    $(wc -l < /seen/looks-at-runtime) looks at the runtime, $(wc -l < /seen/looks-at-status) at what is published"
    prove "the runtime was looked at, and what is published" test -s /seen/looks-at-runtime -a -s /seen/looks-at-status
    prove "in the runtime the same processes of the pods ran all the time, and none twice" saw_nothing wrong-in-runtime
    prove "what is published of the pods never changed, nor did their readiness" saw_nothing wrong-in-status
    prove "every call for it was answered" saw_nothing unanswered
    prove "the containers were started once and never asked to end" noted_one_start
    rm /notes/steady-1
    claim "who looks on notices a container that does not answer its probes" harm_is_seen
    rm /etc/kubernetes/manifests/{failing,steady-*}.json
    claim "with the other pods gone one is left" web_is_ready
    before=$(containers)
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
    rm -rf /notes /seen
    mkdir /notes /seen
    install_version 1
    # A pod is to be started again at once as often as its probe fails.
    echo 'crashLoopBackOff: { maxContainerRestartPeriod: 1s }' >> /etc/bulkhead/kubelet.yaml
    echo 'grants = [{ pods = ["default/*"], hostPaths = [{ prefix = "/notes" }] }]' > /etc/bulkhead/policy.toml
    steady_manifests
    systemctl start bulkhead.target
    claim "in the bundle ten pods run" steady_run
    before=$(containers)
    try_faults
    try_hostile_servers
    rm /etc/kubernetes/manifests/*.json
    claim "pods whose manifests are removed are gone" no_containers
    dpkg --purge bulkhead >> /dpkg.log 2>&1
}
