# What has to hold of an upgrade from a package of an earlier commit, with pods. Read by
# claims.sh, on a boot of its own. Version 1 is that of the earlier commit.

began_again() {
    for process in "$@"; do
        claim "$starter: the upgrade makes $process new" "$is_new" "$process" "${pids[$process]}"
    done
}

# works_mixed WHICH: whether pods come and go while these processes are of the later version,
# and the others of the earlier.
works_mixed() {
    claim "with $1 of the later version every process is ready" all_are_ready
    probed_manifest mixed
    claim "with $1 of the later version a pod starts and is probed" is_ready mixed
    rm /etc/kubernetes/manifests/mixed.json
    claim "with $1 of the later version it goes, and no other container has noticed" containers_are_those_of_before
}

# As dpkg does it, but with time for pods after each step: first the files, then the node is
# prepared anew, then one process after the other is restarted.
upgrade_in_steps() {
    local process later="none"
    dpkg --unpack /packages/2.deb >> /dpkg.log 2>&1
    systemd-sysusers bulkhead.conf
    systemctl daemon-reload
    prove "the later version prepares the node while the earlier runs" systemctl reload bulkhead-prepare.service
    systemctl restart bulkhead-watch.service
    claim "the later version watches the earlier" watch_is_active
    works_mixed "$later"
    for process in "$@"; do
        [ "$later" = none ] && later="$process" || later="$later, $process"
        systemctl try-restart "bulkhead-$process.service"
        works_mixed "$later"
    done
}

try_upgrade() {
    declare -A pids
    for starter in bulkhead.target bulkhead.service; do
        install_version 1
        claim "$starter: the earlier package is installed" version_is 1
        web_manifest
        systemctl start "$starter"
        claim "$starter: a pod runs with the earlier version" web_is_ready
        claim "$starter: with the earlier version every process is ready" all_are_ready
        before=$(containers)
        case "$starter" in
            *.target)
                # The order of an upgrade, and the other way round.
                upgrade_in_steps $(tac --separator=' ' <<< "$processes ")
                install_version 1
                claim "$starter: the earlier package is installed again" version_is 1
                claim "$starter: then every process is ready" all_are_ready
                upgrade_in_steps $processes
                install_version 1
                claim "$starter: then every process is ready once more" all_are_ready
                for process in $processes; do pids[$process]=$(pid_of_service "$process"); done
                is_new=service_has_another_pid ;;
            *)
                for process in supervisor $processes; do pids[$process]=$(pid_in_status "$process"); done
                is_new=process_has_another_pid ;;
        esac
        install_version 2
        claim "$starter: the package of now is installed over it" version_is 2
        began_again $processes
        claim "$starter: after the upgrade every process is ready" all_are_ready
        claim "$starter: the pod is ready after the upgrade" web_is_ready
        claim "$starter: after the upgrade pods are kept off the node's loopback" loopback_is_kept
        claim "$starter: no container noticed the upgrade" containers_are_those_of_before
        [ "$starter" = bulkhead.service ] || claim "$starter: after the upgrade somebody watches" watch_is_active
        rm /etc/kubernetes/manifests/web.json
        claim "$starter: a pod of the earlier version can be removed" no_containers
        web_manifest
        claim "$starter: a pod of the version of now runs" web_is_ready
        before=$(containers)
        install_version 1
        claim "$starter: the earlier package can be installed again" version_is 1
        claim "$starter: after going back every process is ready" all_are_ready
        claim "$starter: no container noticed the way back" containers_are_those_of_before
        rm /etc/kubernetes/manifests/web.json
        claim "$starter: a pod of the later version can be removed by the earlier" no_containers
        dpkg --purge bulkhead >> /dpkg.log 2>&1
        claim "$starter: a purge of the earlier version leaves nothing" nothing_is_left
    done
}
