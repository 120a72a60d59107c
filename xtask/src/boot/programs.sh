# What has to hold of processes that end otherwise than by a signal, and of those that start
# programs, as systemd starts, ends and confines them. Read by claims.sh.

# said_of_pleg WORDS: how often systemd has said that.
said_of_pleg() { journalctl --no-pager --output=cat UNIT=bulkhead-pleg.service | grep -c "$1"; }
says_more() { [ "$(said_of_pleg "$1")" -gt "$2" ]; }
bad_configuration() {
    local ends starts scheduled before
    ends=$(said_of_pleg 'status=78/CONFIG')
    scheduled=$(said_of_pleg 'Scheduled restart')
    # What it remembers of its starts, so that it does not wait at once.
    rm -f "$(state_of pleg)/restarts"
    runs_instead pleg '/usr/libexec/bulkhead/pleg --node-config /etc/hostname'
    starts=$(said_of_pleg '^Starting ')
    systemctl restart --no-block bulkhead-pleg.service
    claim "who cannot use its configuration ends with 78" says_more 'status=78/CONFIG' "$ends"
    claim "then its socket starts it again" says_more '^Starting ' $((starts + 4))
    prove "systemd does not by itself" test "$(said_of_pleg 'Scheduled restart')" = "$scheduled"
    before=$(said_of_pleg '^Starting ')
    sleep 6
    prove "and not all the time" test $(($(said_of_pleg '^Starting ') - before)) -le 8
    runs_itself pleg
    claim "with its configuration every process is ready" all_are_ready
}

kills_what_is_left() { [ "$(systemctl show --property=KillMode --value "bulkhead-$1.service")" = mixed ]; }
left_runs() { readlink /proc/[0-9]*/exe | grep '^/slow/left$'; }
leaves_a_child() {
    mkdir -p /slow
    cp /bin/sleep /slow/left
    # It ends by no signal that can be ignored.
    printf '#!/bin/sh\ntrap "" TERM\nsetsid /slow/left 1000 &\nsleep 5\n' > /slow/leaves
    chmod 755 /slow/leaves
    runs_instead pleg /slow/leaves
    systemctl restart --no-block bulkhead-pleg.service
    claim "a process can leave another one behind, in a session of its own" left_runs
    runs_itself pleg
    claim "after it every process is ready" all_are_ready
    prove "what a process has left is gone before its next run" is_not left_runs
    prove "systemd does not wait for it to end by itself" kills_what_is_left pleg
}

asked() { grep -q '"image":"a.io/x"' "$(state_of credential-provider)/asked"; }
pull_is_tried() { bulkhead describe private | grep -q 'ErrImagePull\|ImagePullBackOff'; }
accusation_is_shown() { bulkhead status | grep -q 'credential-provider refused uid 0 .*foreign-service'; }
program_failed() { bulkhead events | grep -q FailedCredentialProvider; }
# It notes what it was asked, in the one directory where it may write, accuses
# pod-worker-pool, which asks its starter, and answers. Its accuser lives on for a second:
# who accuses is known by the service that its pid is in.
gives_credentials() {
    local pool run='/usr/libexec/bulkhead/supervisor --config=/etc/bulkhead/kubelet.yaml --image-credential-provider-config=/credentials/config.json --image-credential-provider-bin-dir=/credentials/programs --prepare'
    rm -f "$(state_of credential-provider)/asked"
    mkdir -p /credentials/programs
    cat > /credentials/programs/program <<'PROGRAM'
#!/bin/sh
cat > /var/lib/bulkhead/credential-provider/asked
perl -MSocket -e 'socket(S, PF_UNIX, SOCK_DGRAM, 0); send(S, "X_BULKHEAD_REFUSED=0 POOL foreign-service 2", 0, pack_sockaddr_un("/run/bulkhead/watch/credential-provider.notify")) for 1, 2; sleep 1'
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{}}'
PROGRAM
    cat > /credentials/config.json <<'CONFIG'
{
  "apiVersion": "kubelet.config.k8s.io/v1",
  "kind": "CredentialProviderConfig",
  "providers": [{
    "name": "program",
    "matchImages": ["a.io"],
    "defaultCacheDuration": "0s",
    "apiVersion": "credentialprovider.kubelet.k8s.io/v1"
  }]
}
CONFIG
    chmod 755 /credentials/programs/program
    chmod 600 /credentials/config.json
    drop_in bulkhead-prepare.service "ExecStart=\nExecStart=$run\nExecReload=\nExecReload=$run --again"
    bulkhead reload >/dev/null
    claim "with a program that gives credentials every process is ready" all_are_ready
    pool=$(pid_of_service pod-worker-pool)
    sed -i "s/POOL/$pool/" /credentials/programs/program
    cat > /etc/kubernetes/manifests/private.json <<'MANIFEST'
{
  "apiVersion": "v1",
  "kind": "Pod",
  "metadata": { "name": "private" },
  "spec": {
    "terminationGracePeriodSeconds": 1,
    "containers": [{ "name": "app", "image": "a.io/x:1" }]
  }
}
MANIFEST
    claim "in the bundle the program is asked for an image of its registry" asked
    is_confined systemd credential-provider "$(pid_of_service credential-provider)"
    claim "after its answer the image is pulled" pull_is_tried
    prove "its answer counts" is_not program_failed
    claim "what a program says in the name of its starter is shown" accusation_is_shown
    prove "and nobody is ended for it" service_has_pid pod-worker-pool "$pool"
    rm /etc/kubernetes/manifests/private.json
    no_drop_in bulkhead-prepare.service
    bulkhead reload >/dev/null
    claim "without the program every process is ready" all_are_ready
    claim "no container noticed the program" containers_are_those_of_before
}
