// The syscalls of a program on tokio, in its order: a poller with a waker
// and a copy of itself, a pair of sockets for signals, everything edge-triggered and registered
// after it has begun to connect, children reported by SIGCHLD, blocking work on other threads.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call) ({ __typeof__(call) it = (call); if (it < 0) perror(#call), exit(9); it; })
enum { BOTH = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };

static int poller, registry, waker, signals[2];

static void watch(int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    MUST(epoll_ctl(registry, EPOLL_CTL_ADD, fd, &event));
}

// Waits until `fd` is ready for one of `events`; others that are ready are none of its business.
static void until(int fd, unsigned events) {
    for (;;) {
        struct epoll_event ready[64];
        int count = epoll_wait(poller, ready, 64, 20000);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) puts("no event arrived"), exit(9);
        for (int i = 0; i < count; i++)
            if (ready[i].data.fd == fd && ready[i].events & (events | EPOLLERR)) return;
    }
}

static void handle(int number) {
    int kept = errno;
    if (write(signals[1], "c", 1)) {}
    errno = kept;
}

static void *blocking(void *name) {
    FILE *file = fopen(name, "w");
    fputs("from another thread", file), fclose(file);
    uint64_t one = 1;
    MUST(write(waker, &one, sizeof one));
    return 0;
}

// A client and a server of this very program.
static void talk(const char *what, struct sockaddr *at, socklen_t length) {
    int listener = MUST(socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), on = 1;
    if (at->sa_family != AF_UNIX) MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    MUST(bind(listener, at, length)), MUST(listen(listener, 1024));
    watch(listener, EPOLLIN | EPOLLRDHUP | EPOLLET);
    socklen_t address_size = length;
    if (at->sa_family != AF_UNIX) MUST(getsockname(listener, at, &address_size));
    int client = MUST(socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(client, at, length) && errno != EINPROGRESS) perror("connect"), exit(9);
    watch(client, BOTH);
    until(client, EPOLLOUT);
    int error = 0;
    socklen_t size = sizeof error;
    MUST(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size));
    if (error) printf("%s\n", strerror(error)), exit(9);
    int server;
    while ((server = accept4(listener, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0) {
        if (errno != EAGAIN) perror("accept4"), exit(9);
        until(listener, EPOLLIN);
    }
    if (at->sa_family != AF_UNIX) MUST(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    watch(server, BOTH);
    MUST(send(client, "hello", 5, MSG_NOSIGNAL));
    char heard[16] = {0};
    while (recv(server, heard, sizeof heard, 0) < 0) until(server, EPOLLIN);
    MUST(send(server, heard, strlen(heard), MSG_NOSIGNAL));
    while (recv(client, heard, sizeof heard, 0) < 0) until(client, EPOLLIN);
    MUST(shutdown(client, SHUT_WR));
    ssize_t end;
    while ((end = recv(server, heard + 8, 1, 0)) < 0) until(server, EPOLLRDHUP);
    printf("%s: %s%s\n", what, heard, end ? "?" : "");
    close(client), close(server), close(listener);
}

int main(void) {
    poller = MUST(epoll_create1(EPOLL_CLOEXEC));
    waker = MUST(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    registry = poller;
    watch(waker, EPOLLIN | EPOLLRDHUP | EPOLLET);
    registry = MUST(fcntl(poller, F_DUPFD_CLOEXEC, 3));
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, signals));
    int receiver = MUST(fcntl(signals[0], F_DUPFD_CLOEXEC, 3));
    watch(receiver, EPOLLIN | EPOLLRDHUP | EPOLLET);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    MUST(sigaction(SIGCHLD, &action, 0));

    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_un unix_ = {.sun_family = AF_UNIX, .sun_path = "/tmp/tokio.sock"};
    talk("tcp", (void *)&four, sizeof four), talk("tcp6", (void *)&six, sizeof six), talk("unix", (void *)&unix_, sizeof unix_);

    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof here;
    int one = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), other = MUST(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    MUST(bind(one, (void *)&here, sizeof here)), MUST(getsockname(one, (void *)&here, &length));
    watch(one, BOTH), watch(other, BOTH);
    MUST(sendto(other, "datagram", 8, MSG_NOSIGNAL, (void *)&here, sizeof here));
    char heard[16] = {0};
    while (recvfrom(one, heard, sizeof heard, 0, 0, 0) < 0) until(one, EPOLLIN);
    printf("udp: %s\n", heard);

    pthread_t thread;
    MUST(-pthread_create(&thread, 0, blocking, "/tmp/written"));
    until(waker, EPOLLIN);
    pthread_join(thread, 0);
    FILE *file = fopen("/tmp/written", "r");
    printf("blocking: %s\n", fgets((char[64]){0}, 64, file) ? "written" : "lost");

    pid_t child = MUST(fork());
    if (child == 0) execlp("true", "true", (char *)0), _exit(127);
    until(receiver, EPOLLIN);
    int status = -1;
    MUST(waitpid(child, &status, 0));
    printf("child: %d\n", status);
}
