// The syscalls of Bun when it starts, spawns and serves: a check for io_uring,
// its event loop by epoll_pwait2 without anything to fall back to, timers and wakers as descriptors,
// files in memory for what children are given, pairs of sockets for their streams and messages with
// descriptors in them, children reported by pidfd, one server for both kinds of addresses.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call) ({ __typeof__(call) it = (call); if (it < 0) perror(#call), exit(9); it; })
#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int loop;

static void watch(int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    MUST(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event));
}

// One turn of the loop after the other, until `fd` is ready.
static void until(int fd) {
    for (;;) {
        struct epoll_event ready[1024];
        struct timespec limit = {.tv_sec = 20};
        int count = syscall(SYS_epoll_pwait2, loop, ready, 1024, &limit, 0, 8);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) perror("epoll_pwait2"), exit(9);
        if (count == 0) puts("no event arrived"), exit(9);
        for (int i = 0; i < count; i++)
            if (ready[i].data.fd == fd) return;
    }
}

static void *wake(void *fd) {
    uint64_t one = 1;
    MUST(write(*(int *)fd, &one, sizeof one));
    return 0;
}

static void start(void) {
    char parameters[256] = {0};
    int ring = syscall(SYS_io_uring_setup, 8, parameters);
    if (ring >= 0) close(ring);
    loop = MUST(epoll_create1(EPOLL_CLOEXEC));
    int waker = MUST(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), timer = MUST(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    watch(waker, EPOLLIN), watch(timer, EPOLLIN);
    MUST(timerfd_settime(timer, 0, &soon, 0));
    until(timer);
    pthread_t thread;
    MUST(-pthread_create(&thread, 0, wake, &waker));
    until(waker), pthread_join(thread, 0);
    int memory = MUST(memfd_create("blob", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    MUST(ftruncate(memory, 4096));
    char *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    strcpy(mapped, "in memory"), munmap(mapped, 4096);
    MUST(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    char heard[16] = {0};
    struct iovec into = {heard, 9};
    // Without waiting where the file system knows how; else it is read as ever.
    if (preadv2(memory, &into, 1, 0, RWF_NOWAIT) < 0) MUST(pread(memory, heard, 9, 0));
    int watcher = MUST(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    MUST(inotify_add_watch(watcher, "/tmp", IN_CREATE)), watch(watcher, EPOLLIN);
    int file = MUST(open("/tmp/made", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    until(watcher);
    loff_t from = 0;
    if (copy_file_range(memory, &from, file, 0, 9, 0) < 0) MUST(write(file, heard, 9));
    printf("start: %s\n", heard);
}

static void spawn(void) {
    int input[2], output[2], messages[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input)), MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, output));
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, messages));
    MUST(shutdown(input[0], SHUT_RD)), MUST(shutdown(output[0], SHUT_WR));
    pid_t child = MUST(vfork());
    if (child == 0) {
        dup2(input[1], 0), dup2(output[1], 1);
        execlp("cat", "cat", (char *)0), _exit(127);
    }
    int process = MUST(syscall(SYS_pidfd_open, child, 0));
    close(input[1]), close(output[1]);
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    watch(output[0], EPOLLIN), watch(process, EPOLLIN);
    MUST(send(input[0], "through cat", 11, MSG_NOSIGNAL)), close(input[0]);
    char heard[32] = {0};
    until(output[0]);
    MUST(recv(output[0], heard, sizeof heard, MSG_DONTWAIT));
    until(process);
    siginfo_t ended;
    MUST(waitid(P_PIDFD, process, &ended, WEXITED));
    printf("spawn: %s %d\n", heard, ended.si_status);

    // A descriptor in a message, as between processes that cluster.
    char space[CMSG_SPACE(sizeof(int))] = {0}, letter = 'f';
    struct iovec word = {&letter, 1};
    struct msghdr message = {.msg_iov = &word, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
    passed->cmsg_level = SOL_SOCKET, passed->cmsg_type = SCM_RIGHTS, passed->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(passed), &process, sizeof process);
    MUST(sendmsg(messages[0], &message, MSG_NOSIGNAL));
    watch(messages[1], EPOLLIN), until(messages[1]);
    MUST(recvmsg(messages[1], &message, MSG_CMSG_CLOEXEC));
    printf("message: %s\n", CMSG_FIRSTHDR(&message) ? "with a descriptor" : "bare");
}

static void serve(void) {
    struct sockaddr_in6 all = {.sin6_family = AF_INET6};
    int on = 1, off = 0, listener = MUST(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)), MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    MUST(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off));
    MUST(bind(listener, (void *)&all, sizeof all)), MUST(listen(listener, 512));
    socklen_t length = sizeof all;
    MUST(getsockname(listener, (void *)&all, &length));
    watch(listener, EPOLLIN);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = all.sin6_port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int client = MUST(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(client, (void *)&here, sizeof here) && errno != EINPROGRESS) perror("connect"), exit(9);
    watch(client, EPOLLOUT);
    until(client), until(listener);
    int server = MUST(accept4(listener, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK));
    MUST(send(client, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL | MSG_DONTWAIT));
    watch(server, EPOLLIN), until(server);
    char heard[64] = {0};
    MUST(recv(server, heard, sizeof heard, MSG_DONTWAIT));
    printf("serve: %.3s\n", heard);

    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/tmp/bun.sock"};
    int local = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), guest = MUST(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    MUST(bind(local, (void *)&at, sizeof at)), MUST(chmod(at.sun_path, 0700)), MUST(listen(local, 512));
    MUST(connect(guest, (void *)&at, sizeof at));
    watch(local, EPOLLIN), until(local);
    MUST(accept4(local, 0, 0, SOCK_CLOEXEC | SOCK_NONBLOCK));
    puts("unix: served");
}

int main(void) {
    start(), spawn(), serve();
}
