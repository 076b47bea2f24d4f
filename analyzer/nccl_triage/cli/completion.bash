# Completion of nccl-triage for bash 4.4 and later.
_nccl_triage() {
    local current=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]/#\~/$HOME} kind value found
    [[ $current == = ]] && current=
    COMPREPLY=()
    while IFS=$'\t' read -r kind value _; do
        case $kind in
            plain)
                COMPREPLY+=("$value")
                ;;
            file | dir | command)
                compopt -o filenames
                mapfile -t found < <(compgen -A "${kind/dir/directory}" -- "$current")
                COMPREPLY+=("${found[@]}")
                ;;
        esac
    done < <(_NCCL_TRIAGE_COMPLETE=bash "$program" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)
}
complete -F _nccl_triage nccl-triage
