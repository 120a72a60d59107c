# What has to be told of what the machine does not give, and of what a service has been
# weakened by. Read by claims.sh.

# In the words of both ways to run Bulkhead, without the reasons.
machine_lacks() { bulkhead status | sed -n 's/^degraded: \([^:]*\).*/\1/p' | sort; }
machine_lacks_the_same() { [ "$(machine_lacks)" = "$1" ]; }
of_egress='only the processes themselves keep off metadata services'
says_of_landlock() { [ "$(bulkhead status | grep -c 'Landlock cannot')" = "$1" ]; }
prepare_ended_with() { [ "$(systemctl show --property=ExecMainStatus --value bulkhead-prepare.service)" = "$1" ]; }
# systemd runs the supervisor's program for each service that does not start, once.
processes_run() { programs_run | grep -v '/supervisor$'; }
prepare_says() { journalctl --no-pager --unit=bulkhead-prepare.service | grep -q "$1"; }

# drop_in SERVICE SETTINGS: from its next start on.
drop_in() {
    mkdir -p "/run/systemd/system/$1.d"
    printf '[Service]\n%b\n' "$2" >> "/run/systemd/system/$1.d/lacks.conf"
    systemctl daemon-reload
}
no_drop_in() {
    rm -r "/run/systemd/system/$1.d"
    systemctl daemon-reload
}

# In the bundle.
try_lacks() {
    local before
    before=$(bulkhead status | grep -c 'Landlock cannot')
    # As a kernel without Landlock answers who prepares.
    drop_in bulkhead-prepare.service 'SystemCallFilter=~landlock_create_ruleset\nSystemCallErrorNumber=EPERM'
    bulkhead reload >/dev/null
    claim "the bundle runs without what is not asked for" all_are_ready
    claim "in the bundle it is told that Landlock is lacking" says_of_landlock 1
    printf 'apiVersion: bulkhead/v1\nkind: BulkheadConfiguration\nminimumConfinement: [landlock]\n' > /etc/bulkhead/bulkhead.yaml
    local run='/usr/libexec/bulkhead/supervisor --config=/etc/bulkhead/kubelet.yaml --bulkhead-config=/etc/bulkhead/bulkhead.yaml --prepare'
    drop_in bulkhead-prepare.service "ExecStart=\nExecStart=$run\nExecReload=\nExecReload=$run"
    claim "in the bundle a reload that asks for what is lacking is refused" is_not bulkhead reload
    claim "and every process is ready still" all_are_ready
    systemctl stop bulkhead.target
    claim "the bundle stops" is_not programs_run
    systemctl start bulkhead.target
    claim "a minimum that cannot be met ends what prepares as it ends the supervisor" prepare_ended_with 17
    claim "it says what is lacking" prepare_says 'minimumConfinement .* asks for landlock'
    prove "no process starts then" is_not processes_run
    claim "that nothing starts is told" is_told 'nothing starts: bulkhead-prepare.service has failed'
    no_drop_in bulkhead-prepare.service
    systemctl restart bulkhead.target
    claim "with what it asks for every process is ready" all_are_ready
    claim "what is given again is told no longer" says_of_landlock "$before"
    drop_in bulkhead-prober.service 'CapabilityBoundingSet=CAP_NET_RAW'
    systemctl restart bulkhead-prober.service
    claim "what a service may do that is not for it is told" is_told 'prober may have CAP_NET_RAW'
    no_drop_in bulkhead-prober.service
    systemctl restart bulkhead-prober.service
    claim "and no longer once it may not" is_not is_told 'prober may have'
}
