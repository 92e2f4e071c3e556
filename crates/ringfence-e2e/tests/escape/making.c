// Makes names that must not be made, by every call that makes one, from two threads that
// change each other's paths in memory meanwhile.
//
//     making TRIES clean|leave
//
// Every open is one that does not wait: the other thread may have put a pipe there.
//
// Prints how often it tried, how often a forbidden name was made, and the ways that did not
// even make an innocent one.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

// Each forbidden name, and an innocent one of the same length.
static const char *NAMES[][2] = {
    {".mcp.json", "ok-a.json"},
    {".env.made", "ok-b.made"},
    {"made.pem", "made.txt"},
    {"sub/.env.made", "sub/ok-c.made"},
    {".git/hooks/post-merge", ".git/other/post-merge"},
    {".git/config.worktree", ".git/ok-dig.worktree"},
};
enum { COUNT = sizeof NAMES / sizeof *NAMES };
enum {
    OPEN, OPEN_NEW, OPEN_AT, TRUNCATE, MKDIR, MKNOD, FIFO, SYMLINK, DANGLING, LINK,
    RENAME, RENAME_NEW, EXCHANGE, RENAME_DIRECTORY, UNNAMED, SOCKET, WAYS
};

static char shared[COUNT][64];
static int tries, clean;
static long made[2], innocent[WAYS], tried[2];

static int closed(int fd) { return fd < 0 ? -1 : close(fd); }

static void removed(const char *path) {
    if (unlink(path)) rmdir(path);
}

static int make(int way, const char *path, int me) {
    char file[32], directory[32], link[32], target[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, done;
    sprintf(file, "file-%d", me);
    sprintf(directory, "directory-%d", me);
    sprintf(link, "link-%d", me);
    // Gone only if the last one was moved: the tries are about the names, not about these.
    if (access(file, F_OK)) removed(file), closed(open(file, O_CREAT | O_WRONLY | O_NONBLOCK, 0644));
    if (access(directory, F_OK)) mkdir(directory, 0755);
    switch (way) {
    case OPEN: return closed(open(path, O_CREAT | O_WRONLY | O_NONBLOCK, 0644));
    case OPEN_NEW: return closed(open(path, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW, 0600));
    case OPEN_AT:
        fd = open(".", O_PATH | O_DIRECTORY);
        done = closed(openat(fd, path, O_CREAT | O_RDONLY | O_NONBLOCK, 0644));
        close(fd);
        return done;
    case TRUNCATE: return closed(open(path, O_CREAT | O_TRUNC | O_WRONLY | O_NONBLOCK, 0644));
    case MKDIR: return mkdir(path, 0755);
    case MKNOD: return mknod(path, S_IFREG | 0644, 0);
    case FIFO: return mkfifo(path, 0644);
    case SYMLINK: return symlink("README", path);
    case DANGLING:
        // The link keeps the path as it is now; what it leads to is made by the open.
        memcpy(target, path, sizeof target - 1);
        target[sizeof target - 1] = 0;
        unlink(link);
        if (symlink(target, link)) return -1;
        done = closed(open(link, O_CREAT | O_WRONLY | O_NONBLOCK, 0644));
        unlink(link);
        return done;
    case LINK: return linkat(AT_FDCWD, file, AT_FDCWD, path, 0);
    case RENAME: return rename(file, path);
    case RENAME_DIRECTORY: return rename(directory, path);
    case RENAME_NEW: return syscall(SYS_renameat2, AT_FDCWD, file, AT_FDCWD, path, 1);
    case EXCHANGE: return syscall(SYS_renameat2, AT_FDCWD, file, AT_FDCWD, path, 2);
    case UNNAMED:
        fd = open(".", O_TMPFILE | O_WRONLY, 0644);
        sprintf(link, "/proc/self/fd/%d", fd);
        done = linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
        closed(fd);
        return done;
    case SOCKET:
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        memcpy(address.sun_path, path, 64);
        done = bind(fd, (struct sockaddr *)&address, sizeof address);
        closed(fd);
        return done;
    }
    return -1;
}

static void *run(void *number) {
    int me = (long)number;
    for (int i = 0; tried[me] < tries / 2; i++) {
        int way = i % WAYS, name = i / WAYS % COUNT, turn = i / WAYS / COUNT % 4;
        const char *forbidden = NAMES[name][0], *fine = NAMES[name][1];
        size_t length = strlen(fine) + 1;
        if (turn == 0 && me == 0 && i / WAYS / COUNT % 32 == 0) {
            // These names are allowed, so they prove that the syscalls are right.
            removed(fine);
            if (way == EXCHANGE) closed(open(fine, O_CREAT | O_WRONLY | O_NONBLOCK, 0644));
            innocent[way] += !make(way, fine, me);
            removed(fine);
        } else if (turn < 3) {
            for (size_t at = 0; at < length; at++) ((volatile char *)shared[name])[at] = forbidden[at];
            tried[me]++;
            if (way == EXCHANGE && clean) closed(open(forbidden, O_CREAT | O_WRONLY | O_NONBLOCK, 0644));
            made[me] += !make(way, forbidden, me);
            if (clean) removed(forbidden);
        } else {
            for (size_t at = 0; at < length; at++) ((volatile char *)shared[name])[at] = fine[at];
            tried[me]++;
            if (!make(way, shared[name], me)) removed(fine);
            if (clean) removed(forbidden);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    tries = atoi(argv[1]);
    clean = !strcmp(argv[2], "clean");
    mkdir(".git/other", 0755);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, run, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("tried %d made %ld idle", tried[0] + tried[1] >= tries, made[0] + made[1]);
    for (int way = 0; way < WAYS; way++)
        if (!innocent[way]) printf(" %d", way);
    printf("\n");
    return 0;
}
