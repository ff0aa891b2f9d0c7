# Completion of resource-tracker in bash. The program itself knows what may stand where; files, and whatever belongs to
# the command that is put behind it, are for bash.

_resource_tracker() {
    local program=$1 current=${COMP_WORDS[COMP_CWORD]} answer
    [[ $program == "~/"* ]] && program=$HOME/${program:2}
    mapfile -t answer < <("$program" completions bash --at "$COMP_CWORD" -- "${COMP_WORDS[@]}" 2>/dev/null)
    COMPREPLY=("${answer[@]:1}")
    case ${answer[0]} in
        files | "") ;; # Readline does it where there are no words.
        folders) compopt +o default -o dirnames ;;
        command\ *) _resource_tracker_command "${answer[0]#* }" ;;
        *) compopt +o default +o bashdefault ;;
    esac
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
} 2>/dev/null

# The command begins with the word of this number.
_resource_tracker_command() {
    local words=("${COMPREPLY[@]}")
    COMPREPLY=()
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$current" | sort -u)
    fi
    COMPREPLY+=("${words[@]}")
}

complete -o bashdefault -o default -F _resource_tracker resource-tracker
