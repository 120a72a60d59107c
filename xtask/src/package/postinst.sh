#!/bin/sh
# Makes the users. After an upgrade, whatever runs is restarted; containers go on.
set -e
if [ "$1" != configure ]; then
    # dpkg aborted an upgrade. prerm had stopped the watch service.
    if [ -d /run/systemd/system ] && systemctl --quiet is-active bulkhead.target; then
        systemctl start bulkhead-watch.service
    fi
    exit 0
fi
# One that does not start at once, since the runtime is away for example, is started again
# by systemd; the others are restarted all the same.
restart() {
    systemctl try-restart "$1" || echo "bulkhead: $1 has not started yet" >&2
}
systemd-sysusers bulkhead.conf
mkdir -p /etc/kubernetes/manifests
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# An upgrade, and not the first installation.
if [ -n "$2" ]; then
    restart bulkhead.service
    if systemctl --quiet is-active bulkhead.target; then
        systemctl reload bulkhead-prepare.service
        systemctl restart bulkhead-watch.service
        # One after the other, whom the others call last.
        for process in @PROCESSES@; do
            restart "bulkhead-$process.service"
        done
    fi
fi
