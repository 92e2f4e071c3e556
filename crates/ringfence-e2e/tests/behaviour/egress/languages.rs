//! Network clients of languages' standard libraries.

use ringfence_testkit::python;

use super::{inside, on_a_lan};

/// The response of each port, in alphabetical order.
const HELLOS: [&str; 4] = [
    "hello from http://app.test",
    "hello from http://app.test:8080",
    "hello from https://app.test",
    "hello from https://app.test:8443",
];

/// Promise: allowed-hosts
#[test]
fn node_fetch_reaches_an_allowed_host() {
    on_a_lan(&["node"], |project, lan| {
        project.write(
            "fetch.mjs",
            "const text = async place => (await (await fetch(place)).text()).trim();
const places = ['http://app.test/hello', 'http://app.test:8080/hello', 'https://app.test/hello', 'https://app.test:8443/hello'];
console.log((await Promise.all(places.map(text))).join('\\n'));
const body = 'x'.repeat(1 << 20);
const back = await (await fetch('https://app.test/echo', { method: 'POST', body })).text();
console.log(back === body);
",
        );
        let said = inside(lan, "NODE_EXTRA_CA_CERTS=ca.crt node fetch.mjs");
        assert_eq!(said, HELLOS.join("\n") + "\ntrue");
    });
}

/// Promise: allowed-hosts
#[test]
fn node_http_and_https_reach_an_allowed_host() {
    on_a_lan(&["node"], |project, lan| {
        project.write(
            "ask.js",
            "const ask = place => new Promise((done, failed) => require(place.split(':')[0]).get(place, answer => {
  let said = ''; answer.on('data', part => said += part).on('end', () => done(said.trim()));
}).on('error', failed));
(async () => {
  for (const place of ['http://app.test/hello', 'http://app.test:8080/hello', 'https://app.test/hello', 'https://app.test:8443/hello'])
    console.log(await ask(place));
  const resolver = new (require('dns').promises.Resolver)();
  console.log((await resolver.resolve4('app.test')).length);
})();
",
        );
        let said = inside(lan, "NODE_EXTRA_CA_CERTS=ca.crt node ask.js");
        assert_eq!(said, HELLOS.join("\n") + "\n1");
    });
}

/// Promise: allowed-hosts
#[test]
fn python_urllib_reaches_an_allowed_host() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        project.write(
            "ask.py",
            "import asyncio, http.client, requests, ssl, urllib.request
tls = ssl.create_default_context(cafile='ca.crt')
for place in 'http://app.test/hello', 'http://app.test:8080/hello', 'https://app.test/hello', 'https://app.test:8443/hello':
    secure = {'context': tls} if 'https' in place else {}
    print(urllib.request.urlopen(place, timeout=10, **secure).read().decode().strip())
    print(requests.get(place, timeout=10, verify='ca.crt').text.strip())
client = http.client.HTTPSConnection('app.test', context=tls, timeout=10)
for turn in range(3):
    client.request('POST', '/echo', b'turn %d' % turn)
    print(client.getresponse().read().decode())
",
        );
        let said = inside(lan, &format!("{python} ask.py"));
        let twice = HELLOS.map(|hello| format!("{hello}\n{hello}\n")).concat();
        assert_eq!(said, format!("{twice}turn 0\nturn 1\nturn 2"));
    });
}

/// Promise: allowed-hosts
#[test]
fn python_asyncio_reaches_an_allowed_host() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        project.write(
            "ask.py",
            "import asyncio, ssl
tls = ssl.create_default_context(cafile='ca.crt')
async def ask(port):
    reader, writer = await asyncio.open_connection('app.test', port, ssl=tls if port in (443, 8443) else None)
    host = 'app.test' if port in (80, 443) else 'app.test:%d' % port
    writer.write(b'GET /hello HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' % host.encode())
    said = await reader.read()
    writer.close()
    return said.split(b'\\r\\n\\r\\n')[1].decode().strip()
async def talk(number):
    reader, writer = await asyncio.open_connection('app.test', 7)
    writer.write(b'number %d\\n' % number)
    said = await reader.readline()
    writer.close()
    return said == b'NUMBER %d\\n' % number
async def main():
    print('\\n'.join(await asyncio.gather(*map(ask, (80, 8080, 443, 8443)))))
    print(all(await asyncio.gather(*map(talk, range(60)))))
asyncio.run(main())
",
        );
        let said = inside(lan, &format!("{python} ask.py"));
        assert_eq!(said, HELLOS.join("\n") + "\nTrue");
    });
}

/// Promise: allowed-hosts
#[test]
fn web_socket_upgrade_works() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        project.write(
            "become.py",
            "import socket, ssl
tls = ssl.create_default_context(cafile='ca.crt')
for port in 80, 8080, 443, 8443:
    s = socket.create_connection(('app.test', port), 10)
    if port in (443, 8443):
        s = tls.wrap_socket(s, server_hostname='app.test')
    host = 'app.test' if port in (80, 443) else 'app.test:%d' % port
    s.sendall(b'GET /talk HTTP/1.1\\r\\nHost: %s\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n' % host.encode())
    head = b''
    while not head.endswith(b'\\r\\n\\r\\n'):
        head += s.recv(1)
    for turn in range(3):
        s.sendall(b'\\x81turn %d' % turn)
        print(head.split()[1].decode(), s.recv(99))
",
        );
        let turns: Vec<String> =
            (0..12).map(|turn| format!("101 b'\\x81TURN {}'", turn % 3)).collect();
        assert_eq!(inside(lan, &format!("{python} become.py")), turns.join("\n"));
    });
}

/// Promise: allowed-hosts
#[test]
fn epoll_on_a_socket_before_connect_works() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        project.write(
            "wait.py",
            "import os, select, socket
for where in ('app.test', 7), ('app.test', 8080), ('app.test', 80), ('11.22.33.9', 7):
    s = socket.socket()
    s.setblocking(False)
    events = select.epoll()
    events.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    events.poll(0)
    s.connect_ex(socket.getaddrinfo(*where, socket.AF_INET, socket.SOCK_STREAM)[0][4])
    assert events.poll(5)[0][1] == select.EPOLLOUT, where
    s.send(b'hello\\n' if where[1] == 7 else b'GET /hello HTTP/1.0\\r\\nHost: app.test\\r\\n\\r\\n')
    while not events.poll(5)[0][1] & select.EPOLLIN: pass
    print(s.recv(5))
",
        );
        let said = lan
            .run(&[
                "--allow-host",
                "app.test",
                "--allow-host",
                "11.22.33.9",
                "--",
                python,
                "wait.py",
            ])
            .ok();
        assert_eq!(said, "b'HELLO'\nb'HTTP/'\nb'HTTP/'\nb'HELLO'");
    });
}

/// Promise: allowed-hosts
#[test]
fn go_reaches_an_allowed_host() {
    on_a_lan(&["go"], |project, lan| {
        project.write(
            "ask.go",
            r#"package main

import ("crypto/tls"; "crypto/x509"; "fmt"; "io"; "net/http"; "os")

func main() {
	ca, _ := os.ReadFile("ca.crt")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	answers := make(chan string)
	places := []string{"http://app.test/hello", "http://app.test:8080/hello", "https://app.test/hello", "https://app.test:8443/hello"}
	for _, place := range places {
		for i := 0; i < 5; i++ {
			go func(place string) {
				answer, err := client.Get(place)
				if err != nil { answers <- err.Error() + "\n"; return }
				said, _ := io.ReadAll(answer.Body)
				answers <- string(said)
			}(place)
		}
	}
	for range places { for i := 0; i < 5; i++ { fmt.Print(<-answers) } }
}
"#,
        );
        project.sh_bare("GO111MODULE=off go build -o ask ask.go").ok();
        // Names are resolved by Go's own resolver, and by the C library's.
        for means in ["go", "cgo"] {
            let said = inside(lan, &format!("GODEBUG=netdns={means} ./ask | sort"));
            assert_eq!(said, HELLOS.map(|hello| [hello; 5].join("\n")).join("\n"), "{means}");
        }
    });
}

/// Promise: allowed-hosts
#[test]
fn java_reaches_an_allowed_host() {
    on_a_lan(&["java", "javac"], |project, lan| {
        project.write(
            "Ask.java",
            r#"import java.io.*; import java.net.*; import java.net.http.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*;
public class Ask {
    public static void main(String[] words) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(new FileInputStream("ca.crt")));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(null, trust.getTrustManagers(), null);
        HttpClient client = HttpClient.newBuilder().sslContext(tls).build();
        for (String place : new String[] {"http://app.test/hello", "http://app.test:8080/hello", "https://app.test/hello", "https://app.test:8443/hello"})
            System.out.print(client.send(HttpRequest.newBuilder(URI.create(place)).build(), HttpResponse.BodyHandlers.ofString()).body());
        System.out.print(new String(new URL("http://app.test:8080/hello").openStream().readAllBytes()));
    }
}
"#,
        );
        project.sh_bare("javac -J-XX:TieredStopAtLevel=1 Ask.java").ok();
        let said = inside(lan, "java -XX:TieredStopAtLevel=1 -cp . Ask");
        assert_eq!(said, HELLOS.join("\n") + "\nhello from http://app.test:8080");
    });
}
