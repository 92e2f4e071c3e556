"""The servers of a private test network. They end when their standard input closes."""

import http.server, os, shutil, socket, socketserver, ssl, subprocess, sys, threading

import packages

LOCK = threading.Lock()


def hear(*words):
    with LOCK, open('heard', 'a') as file:
        print(*words, file=file)


class Web(http.server.SimpleHTTPRequestHandler):
    """Answers /hello and /echo, and serves packages and repositories."""

    protocol_version = 'HTTP/1.1'

    def handle_one_request(self):
        self.port = self.server.server_address[1]
        super().handle_one_request()

    def log_message(self, *words):
        pass

    def hear(self):
        name = getattr(self.connection, 'heard_name', '-')
        hear(self.port, name, self.command, self.headers['Host'], self.path)
        for header in 'Authorization', 'X-Key':
            if said := self.headers.get(header):
                hear(self.port, name, self.headers['Host'], header, said)

    def say(self, body, kind='text/plain'):
        self.send_response(200)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.hear()
        if self.path == '/hello':
            scheme = 'https' if isinstance(self.connection, ssl.SSLSocket) else 'http'
            self.say(('hello from %s://%s\n' % (scheme, self.headers['Host'])).encode())
        elif self.path == '/headers':
            self.say(str(self.headers).encode())
        elif self.path.startswith('/git/'):
            self.git(b'')
        elif self.headers.get('Upgrade'):
            self.become_something_else()
        else:
            super().do_GET()

    def do_POST(self):
        self.hear()
        if self.headers.get('Transfer-Encoding') == 'chunked':
            body = b''
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers['Content-Length']))
        if self.path == '/echo':
            self.say(body)
        else:
            self.git(body)

    def become_something_else(self):
        self.send_response(101)
        self.send_header('Upgrade', self.headers['Upgrade'])
        self.send_header('Connection', 'Upgrade')
        self.end_headers()
        self.close_connection = True
        while said := self.connection.recv(4096):
            self.connection.sendall(said.upper())

    def git(self, body):
        path, _, query = self.path[len('/git'):].partition('?')
        environment = dict(
            os.environ, GIT_PROJECT_ROOT=os.path.abspath('git'), GIT_HTTP_EXPORT_ALL='1', PATH_INFO=path, QUERY_STRING=query,
            REQUEST_METHOD=self.command, CONTENT_TYPE=self.headers.get('Content-Type', ''), REMOTE_USER='person',
            HTTP_CONTENT_ENCODING=self.headers.get('Content-Encoding', ''), CONTENT_LENGTH=str(len(body)),
            GIT_PROTOCOL=self.headers.get('Git-Protocol', ''))
        ran = subprocess.run(['git', 'http-backend'], input=body, stdout=subprocess.PIPE, env=environment)
        head, _, said = ran.stdout.partition(b'\r\n\r\n')
        fields = dict(line.split(': ', 1) for line in head.decode().split('\r\n'))
        self.send_response(int(fields.pop('Status', '200').split()[0]))
        for field in fields.items():
            self.send_header(*field)
        self.send_header('Content-Length', str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def translate_path(self, path):
        return os.path.abspath('www') + os.path.normpath('/' + path.partition('?')[0])


class Back(socketserver.StreamRequestHandler):
    """Echoes each line in upper case."""

    def handle(self):
        for line in self.rfile:
            hear(self.server.server_address[1], '-', line.decode().strip())
            self.wfile.write(line.upper())


class Proxy(socketserver.StreamRequestHandler):
    """The network's proxy. Only it resolves `far.test`. Two other ports refuse with 407 and 502."""

    KNOWN = {'far.test': '11.22.33.2'}
    ANSWERS = {3129: b'407 Who are you', 3130: b'502 Bad Gateway'}

    def handle(self):
        head = b''
        while not head.endswith(b'\r\n\r\n'):
            if not (line := self.rfile.readline()):
                return
            head += line
        port = self.server.server_address[1]
        method, place = head.decode().split()[:2]
        fields = dict(line.lower().split(': ', 1) for line in head.decode().strip().split('\r\n')[1:])
        hear(port, method, place, fields.get('proxy-authorization', '-'))
        if port in self.ANSWERS:
            return self.wfile.write(b'HTTP/1.1 ' + self.ANSWERS[port] + b'\r\nContent-Length: 0\r\n\r\n')
        name, _, at = place.rpartition(':')
        with socket.create_connection((self.KNOWN.get(name, name), int(at))) as far:
            self.wfile.write(b'HTTP/1.1 200 Connection established\r\n\r\n')
            back = threading.Thread(target=self.carry, args=(far, self.connection))
            back.start()
            self.carry(self.connection, far)
            back.join()

    @staticmethod
    def carry(whence, whither):
        try:
            while said := whence.recv(65536):
                whither.sendall(said)
            whither.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Threads(socketserver.ThreadingMixIn, socketserver.TCPServer):
    address_family = socket.AF_INET6
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request, client):
        pass


def serve(port, handler, secure=None):
    server = Threads(('::', port), handler)
    if secure:
        server.socket = secure.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def secured():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain('server.crt', 'server.key')
    context.set_alpn_protocols(['http/1.1'])

    def named(connection, name, _):
        connection.heard_name = name

    context.sni_callback = named
    return context


def names():
    """A name server that answers NXDOMAIN to everything and logs the queries."""
    server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(('::', 53))
    while True:
        said, whence = server.recvfrom(2048)
        hear(53, 'udp', ''.join(chr(byte) if 32 < byte < 127 else '.' for byte in said[12:]))
        server.sendto(said[:2] + b'\x81\x83' + said[4:], whence)


def deaf(port):
    """A server with a full backlog: clients wait."""
    server = socket.create_server(('11.22.33.1', port), backlog=0)
    full = [socket.socket() for _ in range(8)]
    for one in full:
        one.setblocking(False)
        one.connect_ex(server.getsockname())
    return server, full


def shells():
    """An ssh server for root, with the key that a test has made."""
    if not shutil.which('sshd') or os.path.exists('/proc/self/uid_map') and open('/proc/self/uid_map').read().split()[2] == '1':
        return None
    subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', 'host'], check=True)
    with open('sshd', 'w') as file:
        file.write('Port 22\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nPermitRootLogin yes\nUsePAM no\nPidFile none\n'
                   % (os.path.abspath('host'), os.path.abspath('authorized')))
    line = 'mount -t tmpfs none /run && mkdir /run/sshd && exec %s -D -e -f %s' % (shutil.which('sshd'), os.path.abspath('sshd'))
    return subprocess.Popen(['unshare', '-m', 'sh', '-c', line], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


packages.write('www')
tls = secured()
for port in 80, 8080:
    serve(port, Web)
for port in 443, 8443:
    serve(port, Web, tls)
serve(7, Back)
for port in 3128, 3129, 3130:
    serve(port, Proxy)
silent = deaf(9999)
threading.Thread(target=names, daemon=True).start()
shell = shells()
print('ready', flush=True)
sys.stdin.read()
if shell:
    shell.terminate()
    shell.wait()
