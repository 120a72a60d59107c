# What has to hold of an upgrade from a package of an earlier commit, with pods. Read by
# claims.sh, on a boot of its own. Version 1 is that of the earlier commit.

began_again() {
    for process in "$@"; do
        claim "$starter: the upgrade makes $process new" "$is_new" "$process" "${pids[$process]}"
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
