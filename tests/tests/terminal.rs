//! Interactive programs on a terminal: Ctrl-C, Ctrl-Z and `fg`, in front of the tracker and inside it.

use resource_tracker_tests::terminal::Terminal;
use resource_tracker_tests::{has, tracker};

#[test]
fn a_command_on_a_terminal_is_interrupted_stopped_and_continued() {
    if !has("bash", "a terminal") {
        return;
    }
    let tracker = tracker().display();
    let mut terminal = Terminal::new();
    terminal.run(&format!("{tracker} -q -- sh -c 'echo be''gun; sleep 100'"), "begun");
    terminal.press_ctrl(b'Z');
    terminal.expect("Stopped");
    terminal.run("fg", "sleep 100");
    terminal.press_ctrl(b'C');
    terminal.run("echo code=$?.", "code=130.");

    // One Ctrl-C is one SIGINT for the command: the terminal sends it to both, and the tracker passes on none.
    // It goes on for three turns after that.
    let trap = "n=600; trap \"n=3; echo inter''rupted\" INT; echo re''ady; \
                while [ $n -gt 0 ]; do sleep 0.1; n=$((n-1)); done; echo en''ded";
    terminal.run(&format!("{tracker} -q -- bash -c '{trap}'"), "ready");
    terminal.press_ctrl(b'C');
    terminal.expect("interrupted");
    let seen = terminal.expect("ended");
    assert!(!seen.contains("interrupted"), "{seen}");
}

#[test]
fn a_shell_inside_the_tracker_has_its_job_control() {
    if !has("bash", "a terminal") {
        return;
    }
    let tracker = tracker().display();
    let mut terminal = Terminal::new();
    terminal.run(&format!("{tracker} -q -i 50ms -- bash --norc --noprofile -i"), "prompt> ");
    terminal.run("echo inn''er", "inner");
    terminal.run("sh -c 'echo st''arted; sleep 100'", "started");
    terminal.press_ctrl(b'C');
    terminal.run("echo inside=$?.", "inside=130.");
    terminal.run("sh -c 'echo st''arted; sleep 100'", "started");
    terminal.press_ctrl(b'Z');
    terminal.expect("Stopped");
    terminal.run("fg", "sleep 100");
    terminal.press_ctrl(b'C');
    terminal.run("tty -s && echo termi''nal", "terminal");
    terminal.press("exit 7\n");
    terminal.expect("prompt> ");
    terminal.run("echo code=$?.", "code=7.");
    terminal.run("sleep 0.1; echo out''er", "outer");
}

#[test]
fn full_screen_programs_leave_the_screen_as_it_was() {
    let tracker = tracker().display();
    for (program, opened, quit) in [("less /etc/passwd", "root:", "q"), ("vim -u NONE /etc/passwd", "root:", ":q!\n")] {
        let name = program.split(' ').next().unwrap();
        if !has("bash", "a terminal") || !has(name, "a full-screen program") {
            continue;
        }
        let mut terminal = Terminal::new();
        terminal.run(&format!("{tracker} -q -- {program}"), opened);
        terminal.press_ctrl(b'Z');
        terminal.expect("Stopped");
        terminal.run("fg", opened);
        terminal.press(quit);
        terminal.expect("prompt> ");
        terminal.run("echo code=$?.", "code=0.");
    }
}
