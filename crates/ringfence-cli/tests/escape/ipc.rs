//! Speaking with processes outside.

use ringfence_testkit::each_user;

use crate::project;

#[test]
fn shared_memory_of_the_host_is_reached() {
    each_user(|user| {
        let project = project(user);
        let key = 0x5200_0000 + std::process::id() % 100_000 * 2 + u32::from(user.ids().0 == 0);
        let _bystander = project.bystander(&format!("call('shmget', {key}, 4096, 0o1666)"));
        project.tries(&format!("call('shmget', {key}, 0, 0)")).inside(&["ENOENT"]).bare_ok();
        project.sh_bare(&format!("ipcrm -M {key}"));
        let name = format!("rf-test-{}-{}", std::process::id(), user.ids().0);
        let _bystander = project.bystander(&format!("write('/dev/shm/{name}')"));
        project.tries(&format!("read('/dev/shm/{name}')")).inside(&["ENOENT"]).bare_ok();
        project.sh_bare(&format!("rm -f /dev/shm/{name}"));
    });
}

#[test]
fn a_message_queue_of_the_host_is_reached() {
    each_user(|user| {
        let project = project(user);
        let name = format!("rf-queue-{}-{}", std::process::id(), user.ids().0);
        let _bystander = project.bystander(&format!("call('mq_open', b'{name}', os.O_CREAT | os.O_RDWR, 0o666, 0)"));
        project.tries(&format!("call('mq_open', b'{name}', os.O_RDWR, 0, 0)")).inside(&["ENOENT"]).bare_ok();
        project.python_bare(&format!("call(240 if platform.machine() == 'x86_64' else 180, b'{name}', 2, 0, 0); call(241 if platform.machine() == 'x86_64' else 181, b'{name}')"));
    });
}

#[test]
fn an_abstract_socket_of_the_host_is_reached() {
    each_user(|user| {
        let project = project(user);
        let name = format!("\\0rf-{}-{}", std::process::id(), user.ids().0);
        let _bystander = project.bystander(&format!(
            "server = listen_at('{name}'); packets = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); packets.bind('{name}-d')"
        ));
        for code in [
            format!("connect_to('{name}')"),
            format!("connect_to('{name}-d', socket.SOCK_DGRAM)"),
            format!("socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '{name}-d')"),
            format!("socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, '{name}-d')"),
        ] {
            project.tries(&code).inside(&["ECONNREFUSED", "EPERM"]).bare_ok();
            // With the host's network, abstract names are the host's: another wall holds.
            project.tries(&code).with(&["--net", "full"]).inside(&["ECONNREFUSED", "EPERM"]);
        }
    });
}

#[test]
fn a_socket_file_of_the_host_is_reached() {
    each_user(|user| {
        let project = project(user);
        let _bystander = project.bystander("one, two = listen_at('agent.sock'), listen_at('../../agent.sock'); packets = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); packets.bind('log.sock')");
        for code in [
            "connect_to('agent.sock')",
            "connect_to('ROOT/agent.sock'[:107])",
            "connect_to('log.sock', socket.SOCK_DGRAM)",
            "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', 'log.sock')",
        ] {
            project.tries(code).inside(&["EACCES", "ECONNREFUSED"]).bare_ok();
            project.tries(code).with(&["--net", "full"]).inside(&["EACCES", "ECONNREFUSED"]);
        }
        project.tries("connect_to('../../agent.sock')").inside(&["ENOENT"]).bare_ok();
        for code in [
            "os.rename('agent.sock', 'mine.sock') or connect_to('mine.sock')",
            "os.link('agent.sock', 'mine.sock') or connect_to('mine.sock')",
        ] {
            project.tries(code).inside(&["EACCES", "EBUSY", "EXDEV", "EROFS", "EPERM"]);
        }
    });
}

#[test]
fn a_socket_file_of_the_host_is_reached_where_nobody_looks() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q && mkdir -p node_modules/a/b .git/daemons target").ok();
        // By an absolute name, by a relative one that nobody can place, and in git's own directory.
        let places = ["node_modules/a/s", "target/s", ".git/daemons/s", ".git/s"];
        let absolute = places.map(|place| format!("listen_at('{}')", project.at(place).display())).join(", ");
        let listen = format!("keep = [{absolute}]; os.chdir('node_modules/a/b'); keep.append(listen_at('r'))");
        let _bystander = project.bystander(&listen);
        for place in places.iter().chain(&["node_modules/a/b/r"]) {
            project.tries(&format!("connect_to('{place}')")).inside(&["EACCES", "ECONNREFUSED"]).bare_ok();
        }
        // The command's own sockets are its own there.
        project.tries("[listen_at('node_modules/own'), connect_to('node_modules/own')]").inside(&["ok"]);
    });
}

#[test]
fn well_known_sockets_of_the_host_are_there() {
    each_user(|user| {
        let project = project(user);
        for path in [
            "/run/docker.sock",
            "/var/run/docker.sock",
            "/run/dbus/system_bus_socket",
            "/run/systemd/private",
            "/run/user",
            "/tmp/.X11-unix",
            "/run/containerd/containerd.sock",
            "/dev/log",
        ] {
            project.tries(&format!("os.stat('{path}')")).inside(&["ENOENT"]);
        }
    });
}

#[test]
fn a_pipe_of_the_host_in_tmp_is_reached() {
    each_user(|user| {
        let project = project(user);
        let path = format!("/tmp/rf-pipe-{}-{}", std::process::id(), user.ids().0);
        let _bystander = project.bystander(&format!("os.mkfifo('{path}'); keep = os.open('{path}', os.O_RDWR)"));
        project.tries(&format!("os.open('{path}', os.O_WRONLY | os.O_NONBLOCK)")).inside(&["ENOENT"]).bare_ok();
        project.sh_bare(&format!("rm -f {path}"));
    });
}
