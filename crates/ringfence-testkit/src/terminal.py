import fcntl, os, pty, select, signal, struct, sys, termios, time

seen = b''


def resize(rows, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))


def pump(limit):
    """Reads the output of the terminal; False at its end."""
    global seen
    ready, _, _ = select.select([master], [], [], limit)
    if ready:
        try:
            part = os.read(master, 65536)
        except OSError:
            return False
        if not part:
            return False
        seen += part
    return True


def expect(text, limit=20):
    """Waits until the terminal shows `text`, and discards the output up to it."""
    global seen
    end = time.monotonic() + limit
    while text.encode() not in seen:
        if time.monotonic() > end or not pump(0.1):
            print('never saw %r in %r' % (text, seen), flush=True)
            os.kill(pid, signal.SIGKILL)
            sys.exit(99)
    seen = seen[seen.index(text.encode()) + len(text):]


def type(text):
    os.write(master, text.encode())


def wait(flags=0, limit=20):
    """The next status change of the program, as from waitpid."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        changed, status = os.waitpid(pid, flags | os.WNOHANG)
        if changed:
            return status
        pump(0.02)
    print('never ended; the terminal shows %r' % seen, flush=True)
    os.kill(pid, signal.SIGKILL)
    sys.exit(99)


pid, master = pty.fork()
if pid == 0:
    # Wide enough for the paths of a test.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 220, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
