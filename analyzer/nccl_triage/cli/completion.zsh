#compdef nccl-triage
# Completion of nccl-triage for zsh.
_nccl-triage() {
    local line kind value help
    local -a answers described plain searches
    answers=("${(@f)$(_NCCL_TRIAGE_COMPLETE=zsh ${~words[1]} "${(@)words[2,CURRENT]}" 2>/dev/null </dev/null)}")
    compset -P '--[^=]##='
    for line in $answers; do
        IFS=$'\t' read -r kind value help <<< "$line"
        case $kind in
            plain)
                if [[ -n $help ]]; then
                    described+=("${value//:/\\:}:$help")
                else
                    plain+=("$value")
                fi
                ;;
            file | dir | command) searches+=($kind) ;;
        esac
    done
    (( $#described )) && _describe -V nccl-triage described
    (( $#plain )) && compadd -a plain
    for kind in $searches; do
        case $kind in
            file) _files ;;
            dir) _files -/ ;;
            command) _command_names -e ;;
        esac
    done
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _nccl-triage "$@"
else
    compdef _nccl-triage nccl-triage
fi
