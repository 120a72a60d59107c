#!/bin/sh
# Before it is removed, it is stopped; containers go on.
set -e
[ -d /run/systemd/system ] && [ "$1" = remove ] || exit 0
systemctl disable --now --quiet bulkhead.service bulkhead.target
for process in @PROCESSES@; do
    systemctl stop --quiet "bulkhead-$process.socket" "bulkhead-$process.service"
done
systemctl stop --quiet bulkhead-prepare.service bulkhead-loopback.service
