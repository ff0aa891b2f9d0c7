#compdef resource-tracker
# Completion of resource-tracker in zsh. The program itself knows what may stand where; files, and whatever belongs to
# the command that is put behind it, are for zsh.

_resource-tracker() {
    local -a answer offered ending
    local program=${(Q)words[1]} found=1 number
    answer=("${(@f)$(${~program} completions zsh --at $((CURRENT - 1)) -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    offered=("${(@)answer[2,-1]}")
    # The value is written right behind it.
    [[ $offered[1] == *=:* ]] && ending=(-S '')
    (( $#offered )) && _describe -V 'resource-tracker' offered "${(@)ending}" && found=0
    case $answer[1] in
        files) compset -P '--*='; _files && found=0 ;;
        folders) compset -P '--*='; _files -/ && found=0 ;;
        command*)
            number=${answer[1]#command }
            if (( CURRENT - 1 > number )); then
                shift $number words
                (( CURRENT -= number ))
                _normal && found=0
            else
                _command_names -e && found=0
            fi ;;
    esac
    return $found
}

if [[ $funcstack[1] == _resource-tracker ]]; then
    _resource-tracker "$@"
else
    compdef _resource-tracker resource-tracker
fi
