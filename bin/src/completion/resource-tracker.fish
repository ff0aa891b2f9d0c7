# Completion of resource-tracker in fish. The program itself knows what may stand where; files, and whatever belongs to
# the command that is put behind it, are for fish.

function __resource_tracker_complete
    set -l current (commandline -ct)
    set -l words (commandline -opc)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -l answer ($program completions fish --at (count $words) -- $words "$current" 2>/dev/null)
    string join \n -- $answer[2..-1]
    set -l of_shell (string split ' ' -- $answer[1])
    set -l flag (string match -r -- '^--[^=]*=' "$current")
    set -l value (string replace -r -- '^--[^=]*=' '' "$current")
    switch "$of_shell[1]"
        case files
            __fish_complete_path "$value" | string replace -r -- '^' "$flag"
        case folders
            __fish_complete_directories "$value" '' | string replace -r -- '^' "$flag"
        case command
            set -l command (string escape -- $words | tail -n +(math $of_shell[2] + 1))
            complete -C (string join ' ' -- $command "$current")
    end
end

complete -c resource-tracker -f -k -a '(__resource_tracker_complete)'
