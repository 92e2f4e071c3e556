// Has a connection of the host's network, to the port LISTED, and tries to make it, or any other
// socket, one to the port OTHER.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_in wanted, listed, closed;
static struct sockaddr_in shared;
static volatile int over;
static long rewritten;
static int own, hosts, slot;

static struct sockaddr_in at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int connected(void) {
    int made = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(made, (void *)&listed, sizeof listed)) perror("the listed port"), exit(9);
    return made;
}

static void put(const void *address) {
    memcpy(&shared, address, sizeof shared);
    __asm__ volatile("" ::: "memory");
    rewritten++;
}

static void *rewrite(void *unused) {
    struct sockaddr_in unspecified = {.sin_family = AF_UNSPEC};
    struct sockaddr_un unix_ = {.sun_family = AF_UNIX, .sun_path = "s"};
    while (!over) put(&closed), put(&wanted), put(&unspecified), put(&wanted), put(&unix_), put(&wanted);
    return unused;
}

static void *exchange(void *unused) {
    while (!over) dup2(own, slot), dup2(hosts, slot);
    return unused;
}

int main(int count, char **words) {
    int tries = atoi(words[3]);
    (void)count;
    listed = at(atoi(words[1])), wanted = at(atoi(words[2])), closed = at(1);
    hosts = connected();
    // One after the other.
    struct sockaddr_in unspecified = {.sin_family = AF_UNSPEC};
    connect(hosts, (void *)&unspecified, sizeof unspecified);
    connect(hosts, (void *)&wanted, sizeof wanted);
    sendto(hosts, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (void *)&wanted, sizeof wanted);
    if (listen(hosts, 1) == 0) puts("listens");
    // One that need not wait gets its connection when it is one: one that is still being made could
    // be shut down, and is then as good as new.
    int soon = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in anywhere = {.sin_family = AF_INET};
    connect(soon, (void *)&listed, sizeof listed);
    shutdown(soon, SHUT_RDWR);
    shutdown(hosts, SHUT_RDWR);
    if (bind(soon, (void *)&anywhere, sizeof anywhere) == 0 || bind(hosts, (void *)&anywhere, sizeof anywhere) == 0) puts("is bound");
    if (listen(soon, 1) == 0) puts("listens");
    connect(hosts, (void *)&wanted, sizeof wanted);
    sendto(hosts, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (void *)&wanted, sizeof wanted);
    if (listen(hosts, 1) == 0) puts("listens");
    close(hosts);
    hosts = connected();
    // All at once.
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "s"};
    if (bind(server, (void *)&name, sizeof name) || listen(server, 1000)) perror("s"), exit(9);
    own = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    slot = dup(own);
    pthread_t one, two;
    pthread_create(&one, 0, rewrite, 0);
    pthread_create(&two, 0, exchange, 0);
    for (int i = 0; i < tries; i++) {
        connect(slot, (void *)&shared, sizeof shared);
        int fresh = socket(i % 2 ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(fresh, (void *)&shared, sizeof shared);
        close(fresh);
    }
    over = 1;
    pthread_join(one, 0), pthread_join(two, 0);
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    if (getpeername(hosts, (void *)&peer, &length) || peer.sin_port != listed.sin_port) puts("it is another's");
    printf("tried %s\n", rewritten >= 100000 ? "often" : "too seldom");
}
