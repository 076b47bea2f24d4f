# Completion of nccl-triage for fish.
function __nccl_triage_complete
    set -l current (commandline -ct)
    set -l words (commandline -opc) "$current"
    set -l prefix (string match -r '^--[^=]+=' -- "$current")
    set -l rest (string replace -r '^--[^=]+=' '' -- "$current")
    for line in (env _NCCL_TRIAGE_COMPLETE=fish $words 2>/dev/null </dev/null)
        set -l parts (string split \t -- $line)
        switch $parts[1]
            case plain
                printf '%s%s\t%s\n' "$prefix" $parts[2] "$parts[3]"
            case file
                printf "$prefix%s\n" (__fish_complete_path "$rest")
            case dir
                printf "$prefix%s\n" (__fish_complete_directories "$rest" '')
            case command
                __fish_complete_command
        end
    end
end
complete -c nccl-triage -f -a '(__nccl_triage_complete)'
