#!/bin/sh
# Makes the users. After an upgrade, whatever runs is restarted; containers go on.
set -e
[ "$1" = configure ] || exit 0
# One that does not start at once, since the runtime is away for example, is started again
# by systemd; the others are restarted all the same. One that has failed waits for somebody.
job() {
    if systemctl "$1" "$2"; then
        return
    fi
    if systemctl --quiet is-failed "$2"; then
        echo "bulkhead: $2 has failed; once what it says is mended, \`systemctl start $2\` has it run:" >&2
        said_last "$2" >&2 || true
    else
        echo "bulkhead: $2 has not started yet" >&2
    fi
}
# What a unit has said in its last run, and nobody else of it.
said_last() {
    journalctl --sync
    journalctl --lines=3 --output=cat --no-pager "_SYSTEMD_UNIT=$1" \
        "_SYSTEMD_INVOCATION_ID=$(systemctl show --property=InvocationID --value "$1")"
}
# That is no failure of the package, which is installed: the file can be mended later.
unusable() {
    echo "bulkhead: $1; journalctl --unit=bulkhead-prepare.service says why, and once that is mended, \`bulkhead reload\` does the rest" >&2
}
systemd-sysusers bulkhead.conf
mkdir -p /etc/kubernetes/manifests
[ -d /run/systemd/system ] || exit 0
# What else is set for these in sysctl.d counts, too. A container may not set them.
/usr/lib/systemd/systemd-sysctl --prefix=vm/overcommit_memory --prefix=kernel/panic \
    --prefix=kernel/panic_on_oops || true
systemctl daemon-reload
# The first installation, and not an upgrade.
[ -n "$2" ] || exit 0
if systemctl --quiet is-active bulkhead.service || systemctl --quiet is-active bulkhead.target; then
    systemctl reload-or-restart bulkhead-loopback.service || true
fi
job try-restart bulkhead.service
# It is active for as long as the bundle runs or comes up.
if systemctl --quiet is-active bulkhead-prepare.service; then
    if systemctl reload bulkhead-prepare.service; then
        # One after the other, whom the others call last.
        for process in @PROCESSES@; do
            job try-restart "bulkhead-$process.service"
        done
    else
        unusable "the node could not be prepared anew, so what runs goes on with the configuration of before"
    fi
elif systemctl --quiet is-active bulkhead.target; then
    # It could not be prepared, so nothing of it runs; perhaps it can be by the new version.
    systemctl restart bulkhead.target || true
    systemctl --quiet is-active bulkhead-prepare.service || unusable "nothing runs still"
fi
