#!/bin/bash
# Write a post-mortem of one Slurm job beside its output, unless the job completed.
#
#   triage-job.sh JOBID [--stdout FILE] [--stderr FILE] [--workdir DIR] [--triage COMMAND] [--scripts DIR] [-- OPTIONS]
#
# Runs as the owner of the job. The paths are asked of scontrol; those given here serve when it does not know the
# job any more. They may hold %j (the job) and %% only. OPTIONS go to nccl-triage. Exit code: that of nccl-triage,
# 0 where there was nothing to do, 2 for a wrong call.
#
# A job submitted with --comment=nccl-triage-requeue=N is requeued up to N times, if its diagnosis says that a restart
# helps; nodes that are to blame are excluded first (requeue.py in the folder of --scripts, that of this file without it:
# Slurm runs a copy of a batch script).
set -u

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

# Print one field of the job's record. Only a line that begins with it counts, since job names and comments are
# anybody's text; an array shows all its tasks, a paragraph each.
field() {
    awk -v RS= -v id="$job" 'index($0, "JobId=" id " ") == 1' <<<"$record" | sed -n "s/^ *$1=//p" | tail -n 1
}

# Print the value of a field that ends at the next space.
word() {
    local value
    value=$(field "$1")
    printf '%s' "${value%% *}"
}

# Print what tells the job's files from those of others: its number, that of an array's task as 123_4.
label() {
    local identity
    identity=$(field JobId | sed -n 's/^[0-9]* ArrayJobId=\([0-9]*\) ArrayTaskId=\([0-9]*\) .*/\1_\2/p')
    printf '%s' "${identity:-$job}"
}

# Fill in the patterns of a file name that need nothing but the job's number; others cannot be known here.
expand() {
    local name=$1
    name=${name//%%/$'\001'}
    name=${name//%j/$job}
    [[ $name == *%* ]] && return
    printf '%s' "${name//$'\001'/%}"
}

# Print, each followed by a NUL, files and folders near the job's output with the job's number in their name, such
# as those of "srun --output=logs/%j-%t.log", written since the job started (clocks of file servers differ).
named_after_job() {
    local folder since=()
    [[ $started == *T* ]] && since=(-newermt "$started 60 seconds ago")
    for folder in "$@"; do
        find "$folder" -mindepth 1 -maxdepth 2 -regextype posix-extended \
            -regex ".*/([^/]*[^0-9/])?$label([^0-9/][^/]*)?" \
            ! -name 'post-mortem-*' \( -type d -o -type f -size +0 \) -readable "${since[@]}" -prune -print0 2>/dev/null
    done
}

job=${1-}
[[ $job =~ ^[0-9]+$ ]] || usage
shift
stdout='' stderr='' workdir='' triage=nccl-triage scripts=$(dirname "$(readlink -f "$0")")
while (($#)) && [[ $1 != -- ]]; do
    (($# > 1)) || usage
    case $1 in
    --stdout) stdout=$2 ;;
    --stderr) stderr=$2 ;;
    --workdir) workdir=$2 ;;
    --triage) triage=$2 ;;
    --scripts) scripts=$2 ;;
    *) usage ;;
    esac
    shift 2
done
(($#)) && shift

for _ in 1 2 3 4 5; do
    record=$(scontrol show job "$job" 2>/dev/null)
    state=$(word JobState)
    [[ $state == COMPLETING ]] || break
    sleep 2
done
if [[ $state == COMPLETED ]]; then
    exit 0
elif [[ -n $state ]]; then
    stdout=$(field StdOut) stderr=$(field StdErr) workdir=$(field WorkDir)
    started=$(word StartTime)
    label=$(label)
    requeue=$(word Comment)
else
    stdout=$(expand "${stdout:-$workdir/slurm-%j.out}") stderr=$(expand "$stderr")
    started='' label=$job
fi

home=${stdout%/*}
[[ -d $home && -w $home ]] || home=$workdir
[[ -d $home && -w $home ]] || {
    echo "job $job: no folder for the report: neither that of '$stdout' nor '$workdir' can be written" >&2
    exit 0
}
logs=()
declare -A seen=()
take() {
    [[ -n $1 && -z ${seen[$1]-} ]] || return
    seen[$1]=yes
    logs+=("$1")
}
for log in "$stdout" "$stderr"; do
    [[ -f $log && -r $log && -s $log ]] && take "$log"
done
folders=("$home")
[[ -d $workdir ]] && folders+=("$workdir")
while IFS= read -r -d '' log; do
    take "$log"
done < <(named_after_job "${folders[@]}")
if ((${#logs[@]} == 0)); then
    echo "job $job: its output is missing or empty" >&2
    exit 0
fi

# The report as JSON, of which the text is made, where the decision is needed.
[[ ${requeue-} =~ ^nccl-triage-requeue=([0-9]{1,2})$ ]] && requeue=${BASH_REMATCH[1]} || requeue=0
suffix=txt
((requeue > 0)) && suffix=json

# A job of unknown end gets a report only if its log shows a failure.
report=$home/post-mortem-$label
[[ -n $state ]] || set -- --exit-code "$@"
"$triage" diagnose "${logs[@]}" --no-config --verify never --force --quiet \
    --report "$report.html" --output "$report.$suffix" "$@"
code=$?
if [[ -z $state ]]; then
    case $code in
    0) rm -f -- "$report.html" "$report.txt" && exit 0 ;;
    1 | 3) code=0 ;;
    esac
fi
((code == 0)) || exit "$code"
echo "job $job${state:+ ($state)}: $report.html"
if ((requeue > 0)); then
    "$triage" render "$report.json" --output "$report.txt" --force --quiet --no-config
    # In a second job, another one has to wait for the next failure; an epilog runs by itself.
    if "$scripts/requeue.py" "$job" "$requeue" <"$report.json" && [[ -n ${SLURM_JOB_ID-} ]]; then
        "$scripts/sbatch-triage" --for "$job"
    fi
fi
exit 0
