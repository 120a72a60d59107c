#!/bin/sh
# Before it is removed, it is stopped; containers go on.
set -e
[ "$1" = remove ] || exit 0
[ -d /run/systemd/system ] || exit 0
systemctl disable --now --quiet bulkhead.service bulkhead.target
systemctl stop --quiet 'bulkhead-*.service' 'bulkhead-*.socket'
