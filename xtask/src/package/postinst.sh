#!/bin/sh
# Makes the users. After an upgrade, whatever runs is restarted; containers go on.
set -e
[ "$1" = configure ] || exit 0
systemd-sysusers bulkhead.conf
mkdir -p /etc/kubernetes/manifests
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# An upgrade, and not the first installation.
if [ -n "$2" ]; then
    systemctl try-restart bulkhead.service
    if systemctl --quiet is-active bulkhead.target; then
        systemctl reload bulkhead-prepare.service
        systemctl restart bulkhead-watch.service
        # One after the other, whom the others call last.
        for process in @PROCESSES@; do
            systemctl try-restart "bulkhead-$process.service"
        done
    fi
fi
