# What has to hold of the processes as systemd confines them, tried from outside as the
# test command tries it of those that the supervisor has started. Read by claims.sh.

pids_of_services() { for process in $processes; do pid_of_service "$process"; done; }

prove_bundle() {
    local pids provider
    for process in $processes credential-provider; do
        prove "$process does not escape from its unit" /proof/prove-escapes "$process"
    done
    claim "an escape from a weakened unit is noticed" is_not /proof/prove-escapes pleg files
    claim "a unit whose state can be run is noticed" is_not /proof/prove-escapes prober no-exec-paths
    pids=$(pids_of_services)
    prove "in the bundle only the edges of the topology can be called" /proof/prove-edges
    # Its first caller has started it.
    claim "credential-provider runs once it is called" service_has_another_pid credential-provider 0
    provider=$(pid_of_service credential-provider)
    claim "all processes of the bundle live on" test "$(pids_of_services)" = "$pids"
    claim "so does credential-provider" service_has_pid credential-provider "$provider"
    claim "after that every process of the bundle is ready" all_are_ready
    claim "no container noticed the calls" containers_are_those_of_before
}
