#!/bin/bash
# Epilog of Slurm (slurm.conf: Epilog=/usr/local/libexec/nccl-triage/epilog.sh): a post-mortem of each failed job.
#
# Returns at once and always with 0, since Slurm drains a node whose epilog fails and keeps it busy while one runs.
# The work goes on in a session of its own: as the job's owner, at the lowest priority, with limits of time and
# memory. It runs on the job's first node only. What happened stands in the system log under "nccl-triage".
set -u
here=$(dirname "$(readlink -f "$0")")

# Settings; epilog.conf beside this file may change them. Slurm gives an epilog no PATH.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
TRIAGE=/opt/nccl-triage/bin/nccl-triage
OPTIONS=()
TIME_LIMIT=300       # seconds
MEMORY_LIMIT=4194304 # KiB of address space
# shellcheck source=/dev/null
[[ -r $here/epilog.conf ]] && source "$here/epilog.conf"

say() {
    logger -t nccl-triage -- "job ${SLURM_JOB_ID-?}: $*" 2>/dev/null
}

# Tell whether this is the node that the batch script ran on. EpilogSlurmctld runs once in any case.
on_first_node() {
    local nodes=${SLURM_JOB_NODELIST-${SLURM_NODELIST-}} first
    [[ ${SLURM_SCRIPT_CONTEXT-} == epilog_slurmctld || -z $nodes ]] && return 0
    first=$(scontrol show hostnames "$nodes" 2>/dev/null | head -n 1)
    [[ -z $first || $first == "${SLURMD_NODENAME-}" ]]
}

# Triage the job with the rights, and within the rights, of its owner; print what it said.
triage() {
    local become=()
    if ((EUID == 0)); then
        become=(setpriv --reuid "$SLURM_JOB_UID" --regid "$SLURM_JOB_GID" --init-groups --no-new-privs)
    elif ((EUID != SLURM_JOB_UID)); then
        become=(sudo --non-interactive --user "#$SLURM_JOB_UID" --)
    fi
    ulimit -v "$MEMORY_LIMIT"
    cd / || return
    env -i PATH="$PATH" LANG=C.UTF-8 ${SLURM_CONF:+SLURM_CONF="$SLURM_CONF"} \
        nice -n 19 ionice -c 3 timeout --kill-after=10 "$TIME_LIMIT" "${become[@]}" \
        "$here/triage-job.sh" "$SLURM_JOB_ID" --triage "$TRIAGE" --stdout "${SLURM_JOB_STDOUT-}" \
        --stderr "${SLURM_JOB_STDERR-}" --workdir "${SLURM_JOB_WORK_DIR-}" -- "${OPTIONS[@]}" 2>&1
}

if [[ ${1-} == --detached ]]; then
    echo started
    exec </dev/null >/dev/null 2>&1
    said=$(triage)
    code=$?
    ((code == 0)) || said="exit code $code. $said"
    [[ -z $said ]] || say "$said"
elif [[ ${SLURM_JOB_ID-} =~ ^[0-9]+$ && ${SLURM_JOB_UID-} =~ ^[1-9][0-9]*$ && ${SLURM_JOB_GID-} =~ ^[0-9]+$ ]]; then
    # The jobs of root are left alone. Slurm kills the process group of an epilog that has ended: the first line
    # says that the work has left it.
    on_first_node && IFS= read -r -t 10 _ < <(exec setsid "$here/epilog.sh" --detached)
fi
exit 0
