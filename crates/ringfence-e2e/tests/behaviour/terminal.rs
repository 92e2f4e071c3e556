//! On a terminal, the user controls the command.

use ringfence_testkit::{each_user, needs};

use crate::project;

/// Promise: bare-processes
#[test]
fn control_c_ends_the_command() {
    each_user(|user| {
        let project = project(user);
        let script = "expect('ready'); time.sleep(0.1); type('\\x03'); s = wait(); print(os.WIFSIGNALED(s) and os.WTERMSIG(s))";
        assert_eq!(project.run_on_terminal(&["-c", "echo ready; exec sleep 60"], script).ok(), "2");
        let script =
            "expect('ready'); time.sleep(0.1); type('\\x1c'); s = wait(); print(os.WEXITSTATUS(s))";
        assert_eq!(
            project.run_on_terminal(&["-c", "echo ready; exec sleep 60"], script).ok(),
            "131"
        );
    });
}

#[test]
fn control_c_can_be_handled_and_arrives_once() {
    each_user(|user| {
        let project = project(user);
        let line = "n=0; trap 'n=$((n+1)); echo got $n' INT; echo ready; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; echo end $n";
        let script = "expect('ready'); type('\\x03'); expect('got 1'); expect('end 1'); print(os.WEXITSTATUS(wait()))";
        assert_eq!(project.run_on_terminal(&["-c", line], script).ok(), "0");
    });
}

/// Promise: bare-processes
#[test]
fn control_z_stops_and_fg_continues_the_command() {
    each_user(|user| {
        if !needs(&["/bin/bash"]) {
            return;
        }
        let project = project(user);
        for mode in ["", "--mode full-access"] {
            let run = format!(
                "{} run {mode} -c 'echo rea\"\"dy; sleep 1; echo fin\"\"ished; exit 4'",
                project.binary().display()
            );
            let script = format!(
                "type({run:?} + '\\n'); expect('ready'); time.sleep(0.1); type('\\x1a'); expect('Stopped'); type('jobs | wc -l\\n'); expect('\\r1'); type('fg\\n'); expect('finished'); type('echo status $?\\n'); expect('status 4'); type('exit\\n'); wait(); print('good')"
            );
            assert_eq!(
                project.on_terminal(&["/bin/bash", "--norc", "-i"], &script).ok(),
                "good",
                "{mode}"
            );
        }
    });
}

#[test]
fn window_size_and_its_changes_reach_the_command() {
    each_user(|user| {
        let project = project(user);
        let line =
            "trap 'stty size; exit 6' WINCH; stty size; echo ready; while :; do sleep 0.05; done";
        let script = "expect('24 220'); expect('ready'); resize(30, 100); expect('30 100'); print(os.WEXITSTATUS(wait()))";
        assert_eq!(project.run_on_terminal(&["-c", line], script).ok(), "6");
    });
}

#[test]
fn terminal_has_a_name_inside() {
    each_user(|user| {
        let project = project(user);
        let line = "test -t 0 -a -t 1 -a -t 2 && tty && echo to-tty > /dev/tty && read answer < /dev/tty && echo got $answer";
        let script = "expect('/dev/'); expect('to-tty'); type('yes\\n'); expect('got yes'); print(os.WEXITSTATUS(wait()))";
        assert_eq!(project.run_on_terminal(&["-c", line], script).ok(), "0");
    });
}

/// Promise: tools-work
#[test]
fn less_works_on_a_terminal() {
    each_user(|user| {
        if !needs(&["less"]) {
            return;
        }
        let project = project(user);
        project.write("long", (1..200).map(|line| format!("line {line}\n")).collect::<String>());
        let script = "expect('line 20'); type('G'); expect('line 199'); type('q'); print(os.WEXITSTATUS(wait()))";
        assert_eq!(project.run_on_terminal(&["--", "less", "long"], script).ok(), "0");
    });
}

/// Promise: bare-processes
#[test]
fn shell_inside_has_job_control() {
    each_user(|user| {
        if !needs(&["/bin/bash"]) {
            return;
        }
        let project = project(user);
        let script = "
expect('$ ') if os.getuid() else expect('# ')
assert b'no job control' not in seen
type('sleep 50\\n'); time.sleep(0.5); type('\\x03'); type('echo st$((1))=$?\\n'); expect('st1=130')
type('sleep 51\\n'); time.sleep(0.5); type('\\x1a'); expect('Stopped'); type('kill -9 %1; sleep 0.3; jobs\\n'); expect('Killed')
type('exit 5\\n'); print(os.WEXITSTATUS(wait()))";
        assert_eq!(project.run_on_terminal(&["--", "bash", "--norc", "-i"], script).ok(), "5");
    });
}

#[test]
fn program_inside_can_make_terminals() {
    each_user(|user| {
        let project = project(user);
        let code = "
import pty
pid, fd = pty.fork()
if pid == 0: os.execvp('tty', ['tty'])
print(os.read(fd, 100).decode().strip().startswith('/dev/pts/'))
";
        assert_eq!(project.python(code).ok(), "True");
    });
}
