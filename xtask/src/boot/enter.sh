# Boots the tree $1, in a cgroup of its own in every hierarchy, whose name is $2.
for hierarchy in /sys/fs/cgroup/*/; do
    mkdir -p "$hierarchy/$2" 2>/dev/null || continue
    for file in cpus mems; do
        [ ! -e "$hierarchy/cpuset.$file" ] || cat "$hierarchy/cpuset.$file" > "$hierarchy/$2/cpuset.$file"
    done
    [ ! -e "$hierarchy/cgroup.clone_children" ] || echo 1 > "$hierarchy/$2/cgroup.clone_children"
    echo $$ > "$hierarchy/$2/cgroup.procs"
done 2>/dev/null
exec systemd-nspawn --quiet --directory="$1" --register=no --keep-unit --private-network \
    --kill-signal=SIGRTMIN+3 --console=pipe --capability=CAP_SYS_PTRACE \
    --system-call-filter="bpf keyctl add_key request_key landlock_create_ruleset landlock_add_rule landlock_restrict_self" \
    /begin
