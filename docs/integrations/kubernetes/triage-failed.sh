#!/bin/bash
# Write a post-mortem of every training job of this namespace that has a failed pod and no post-mortem yet.
#
#   triage-failed.sh LABEL FOLDER [OPTIONS OF nccl-triage]
#
# LABEL is the label whose value names the job, such as training.kubeflow.org/job-name. FOLDER keeps the reports.
set -u
if (($# < 2)) || [[ ! $1 =~ ^[A-Za-z0-9./_-]+$ ]]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
label=$1 folder=$2
shift 2

# Print what all containers of a job have said, those before a restart first. Unless told otherwise kubectl gives the
# last 10 lines of each, and stops at the first container that never restarted.
logs() {
    local choice=(--selector "$label=$1" --all-containers --prefix --timestamps --tail=-1 --ignore-errors)
    kubectl logs "${choice[@]}" --previous | grep -v '^error: previous terminated container'
    kubectl logs "${choice[@]}"
}

failed=$(kubectl get pods --selector "$label" --field-selector status.phase=Failed --output \
    "jsonpath={range .items[*]}{.metadata.labels.${label//./\\.}} {.metadata.uid}{\"\\n\"}{end}") || exit
code=0
declare -A seen=()
while read -r job pod; do
    [[ -n $job && -z ${seen[$job]-} ]] || continue
    seen[$job]=yes
    report=$folder/$job-${pod%%-*}
    [[ -e $report.html ]] && continue
    if logs "$job" | nccl-triage diagnose - --no-config --verify never --force --quiet \
        --report "$report.html" --output "$report.txt" "$@"; then
        printf '%s: %s.html\n' "$job" "$report"
        cat "$report.txt"
    else
        code=1
    fi
done <<<"$failed"
exit "$code"
