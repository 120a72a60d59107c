#!/bin/sh
# What a purge removes is Bulkhead's alone: not pods, their directories or their logs.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" = purge ]; then
    rm -rf /var/lib/bulkhead /run/bulkhead
    # pod-worker-pool makes it where a shutdown of the node waits for pods.
    rm -f /etc/systemd/logind.conf.d/99-bulkhead.conf
fi
