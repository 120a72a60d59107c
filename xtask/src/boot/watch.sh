# What has to hold of who watches the processes of the bundle. Read by claims.sh.

watch_is_active() { systemctl is-active bulkhead-watch.service; }
is_told() { bulkhead status | grep -q "$1"; }
state_of() { echo "/var/lib/bulkhead/$1"; }
ends_are_told() { journalctl --no-pager --unit=bulkhead-watch.service | grep -q "$1"; }
anybody_reads_the_status() { runuser --user=nobody -- bulkhead status | grep -q '^pod-worker-pool .*ready'; }
# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL, and in no set more.
has_four_capabilities() {
    [ "$(grep -c '^Cap\(Prm\|Eff\|Bnd\):.0*2b$' "/proc/$1/status")" = 3 ] &&
        [ "$(grep -c '^Cap\(Inh\|Amb\):.0*\(2b\)\?$' "/proc/$1/status")" = 2 ]
}
unit_of_watch_gives() { [ "$(systemctl show --property=CapabilityBoundingSet --value bulkhead-watch.service)" = "$*" ]; }
status_has() { grep -q "^$2\$" "/proc/$1/status"; }
filters_of() { sed -n 's/^Seccomp_filters:[[:space:]]*//p' "/proc/$1/status"; }
# By itself each process of ours installs two.
has_filters_of_its_unit() { [ "$(filters_of "$1")" -gt "$(($(filters_of 1) + 2))" ]; }
# sees PID PATH: whether a process sees something, in its own mounts.
sees() { nsenter --target "$1" --mount test -e "$2"; }

# runs_instead PROCESS COMMAND: in the place of a process, from its next start on.
runs_instead() {
    mkdir -p "/run/systemd/system/bulkhead-$1.service.d"
    printf '[Service]\nExecStart=\nExecStart=%s\n' "$2" > "/run/systemd/system/bulkhead-$1.service.d/instead.conf"
    systemctl daemon-reload
}
runs_itself() {
    rm "/run/systemd/system/bulkhead-$1.service.d/instead.conf"
    systemctl daemon-reload
}

watch_bundle() {
    local pid watch
    claim "in the bundle somebody watches the processes" watch_is_active
    watch=$(pid_of_service watch)
    claim "who watches has four capabilities" has_four_capabilities "$watch"
    claim "its unit gives it these" unit_of_watch_gives cap_chown cap_dac_override cap_fowner cap_kill
    claim "who watches gets no more from a program" status_has "$watch" 'NoNewPrivs:.1'
    claim "system calls of who watches are filtered" status_has "$watch" 'Seccomp:.2'
    claim "they are by its unit, too" has_filters_of_its_unit "$watch"
    claim "who watches sees the sockets of the processes" sees "$watch" /run/bulkhead/pleg.sock
    claim "who watches does not see the system bus" is_not sees "$watch" /run/dbus/system_bus_socket
    claim "who watches does not see the container runtime" is_not sees "$watch" /run/containerd/containerd.sock
    claim "who is not root reads the status of the bundle" anybody_reads_the_status

    pid=$(pid_of_service prober)
    # As only its user, and who has CAP_FOWNER, may remove what is in it.
    install --directory --owner=bulkhead-prober --mode=1700 "$(state_of prober)/sticky"
    install --owner=bulkhead-prober /dev/null "$(state_of prober)/sticky/file"
    head --bytes=200M /dev/zero > "$(state_of prober)/more"
    claim "in the bundle who keeps too much is started anew" service_has_another_pid prober "$pid"
    claim "what it kept is removed" test ! -e "$(state_of prober)/more"
    claim "so is a directory with the sticky bit" test ! -e "$(state_of prober)/sticky"
    claim "that it kept too much is told" ends_are_told 'prober keeps [0-9]* MiB'
    head --bytes=200M /dev/zero > "$(state_of pod-worker-pool)/more"
    claim "of pod-worker-pool it is only told" is_told 'pod-worker-pool keeps 200 MiB'
    rm "$(state_of pod-worker-pool)/more"
    claim "and no longer once it is gone" is_not is_told 'pod-worker-pool keeps'

    # A program of an attacker in the place of pleg, which calls what is not for it.
    runs_instead pleg '/proof/hostile-pleg --node-config /run/bulkhead/node.json'
    systemctl restart bulkhead-pleg.service
    pid=$(pid_of_service pleg)
    claim "in the bundle who is cut off again is started anew" service_has_another_pid pleg "$pid"
    claim "what was refused to it is told" is_told 'pod-worker-pool refused pleg .*foreign-service'
    claim "a server that has a caller ended again and again is not believed for ever" is_told 'pod-worker-pool has had pleg restarted 3 times'
    runs_itself pleg
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

waits_before_start() { journalctl --no-pager --unit=bulkhead-pleg.service | grep -q 'has ended again and again'; }
repairs() { journalctl --no-pager --unit=bulkhead-repair@pleg.service | grep -q "$1"; }
starts() { journalctl --no-pager --output=cat UNIT=bulkhead-pleg.service | grep -c '^Starting '; }
accepts_nobody() {
    is_not perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); exit !connect(S, pack_sockaddr_un("/run/bulkhead/pleg.sock"))'
}
# Whether of nine callers that do not wait one is turned away.
queue_is_short() {
    perl -MSocket=:DEFAULT,SOCK_NONBLOCK -e 'for (1 .. 9) { socket($s[$_], PF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0); connect($s[$_], pack_sockaddr_un("/run/bulkhead/pleg.sock")) or exit !$!{EAGAIN} } exit 1'
}
# O_ASYNC, of the open file that all runs share.
sends_signals() {
    local flags
    flags=$(sed -n 's/^flags:[[:space:]]*//p' "/proc/$(pid_of_service pleg)/fdinfo/3")
    [ "$((0$flags & 020000))" != 0 ]
}
# harms_its_socket CALL: what runs in the place of pleg does so to its socket, and waits.
harms_its_socket() {
    # What it remembers of its starts, so that its next run does not wait.
    rm -f "$(state_of pleg)/restarts"
    runs_instead pleg "/usr/bin/perl -e 'open(S, \"+<&=3\"); $1; sleep 1000'"
    systemctl restart --no-block bulkhead-pleg.service
}
runs_itself_at_once() {
    runs_itself pleg
    kill -KILL "$(pid_of_service pleg)"
}
harmed_sockets() {
    rm /run/bulkhead/pleg.sock
    kill_program pleg
    claim "systemd makes a socket anew that has lost its name" test -S /run/bulkhead/pleg.sock
    claim "with its socket anew every process is ready" all_are_ready
    perl -MSocket -e 'unlink($p = "/run/bulkhead/pleg.sock"); socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un($p)); listen(S, 1)'
    claim "the name of a socket can be that of somebody who is gone" accepts_nobody
    kill_program pleg
    claim "systemd makes a socket anew whose name is another one's" is_not accepts_nobody
    claim "then every process is ready" all_are_ready
    harms_its_socket 'shutdown(S, 2)'
    claim "a process can shut its socket down" accepts_nobody
    runs_itself_at_once
    claim "a process whose socket was shut down is started with another" all_are_ready
    claim "who had it made anew says why" repairs 'status="\?69'
    harms_its_socket 'listen(S, 0)'
    # Each try leaves callers in a queue that nobody empties.
    CLAIM_TRIES=50 claim "a process can make the queue of its socket short" queue_is_short
    runs_itself_at_once
    claim "after a run that made its queue short every process is ready" all_are_ready
    claim "the next run makes it as long as it was" is_not queue_is_short
    # F_SETFL, O_ASYNC
    harms_its_socket 'fcntl(S, 4, 8192)'
    claim "a process can have its socket send signals" sends_signals
    runs_itself_at_once
    claim "after a run whose socket sends signals every process is ready" all_are_ready
    claim "that of the next run sends none" is_not sends_signals
}
# ends_with_13 COMMAND...
ends_with_13() {
    local code=0
    timeout 20 "$@" || code=$?
    [ "$code" = 13 ]
}
second_agent() {
    local files="stat --format=%n:%i:%y /run/bulkhead /run/bulkhead/*.*" before_it
    before_it=$($files)
    prove "a supervisor beside the bundle is refused" ends_with_13 /usr/libexec/bulkhead/supervisor --config=/etc/bulkhead/kubelet.yaml
    claim "it has changed no file" test "$($files)" = "$before_it"
    claim "the bundle goes on" web_is_ready
    claim "no container noticed the supervisor beside it" containers_are_those_of_before
}
crash_loop() {
    local round pid before
    for round in 1 2 3 4 5; do
        pid=$(pid_of_service pleg)
        kill -KILL "$pid"
        claim "pleg is started again after kill $round right after its start" service_has_another_pid pleg "$pid"
    done
    claim "who ends soon after its start waits before the next one" waits_before_start
    # One that ends before it could wait.
    runs_instead pleg /bin/false
    systemctl restart --no-block bulkhead-pleg.service
    claim "who ends before its wait comes to the limit of starts" repairs start-limit-hit
    # 25 starts, then 10 s without.
    before=$(starts)
    sleep 12
    prove "then it is started again, and not all the time" test "$(($(starts) - before))" -le 50
    runs_itself pleg
    claim "once its program is good again every process is ready" all_are_ready
}
