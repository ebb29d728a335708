/* A disk that fails at the n-th call, for tests: loaded before libc's names (LD_PRELOAD), armed by calls from Python.
 *
 * Counted are calls that change files below one folder: write, pwrite, ftruncate, fsync, fdatasync, rename, unlink.
 * Ways: 1 the call fails with EIO; 2 it and all later ones that need room fail with ENOSPC; 3 the process is killed
 * before it; 4 half of a write is done and the process is killed; 5 the power is cut: what was not synced is undone,
 * names too, and the process is killed. SQLite's own tests do the same behind its file interface.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum way { NEVER, EIO_ONCE, FULL, KILL, TORN, POWER };
struct undo { struct undo *before; int what; char path[512], other[512]; off_t at, size; size_t count; char *bytes; };
enum { BYTES, RENAMED };

static char under[512];
static int armed, way;
static long nth, seen;
static struct undo *log_;

#define REAL(name, type) static __typeof__(type) *real; if (!real) real = (__typeof__(type) *)dlsym(RTLD_NEXT, name)

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 511);
    if (n < 0) return 0;
    path[n] = 0;
    return 1;
}

static int ours(const char *path) {
    size_t n = strlen(under);
    return armed && n && !strncmp(path, under, n) && (path[n] == '/' || !path[n]);
}

void disk_arm(const char *folder, long n, int how) {
    snprintf(under, sizeof under, "%s", folder);
    nth = n; way = how; seen = 0; armed = 1;
}

long disk_seen(void) { return seen; }

static void forget(const char *path, int what) {
    struct undo **at = &log_;
    while (*at) {
        struct undo *u = *at;
        int same = u->what == what && !strcmp(what == BYTES ? u->path : u->bytes, path);
        if (!same) { at = &u->before; continue; }
        if (what == RENAMED && u->count) unlink(u->bytes + 1024);
        *at = u->before; free(u->bytes); free(u);
    }
}

static void keep_bytes(int fd, const char *path, off_t at, size_t count) {
    struct stat s;
    if (way != POWER || fstat(fd, &s)) return;
    struct undo *u = calloc(1, sizeof *u);
    u->what = BYTES; u->at = at; u->size = s.st_size; u->before = log_;
    snprintf(u->path, sizeof u->path, "%s", path);
    u->bytes = malloc(count + 1);
    int again = open(path, O_RDONLY);
    ssize_t got = again < 0 ? 0 : pread(again, u->bytes, count, at);
    u->count = got < 0 ? 0 : got;
    if (again >= 0) close(again);
    log_ = u;
}

static void cut_power(void) {
    armed = 0;
    for (struct undo *u = log_; u; u = u->before) {
        if (u->what == RENAMED) {
            rename(u->other, u->path);
            if (u->count) rename(u->bytes + 1024, u->other);
            continue;
        }
        int fd = open(u->path, O_RDWR);
        if (fd < 0) continue;
        if (u->count && pwrite(fd, u->bytes, u->count, u->at) < 0) perror("undo");
        if (ftruncate(fd, u->size)) perror("undo");
        close(fd);
    }
    kill(getpid(), SIGKILL);
}

/* 0: go on; else the call fails with this number. */
static int fate(int needs_room) {
    seen++;
    if (way == FULL && seen >= nth && needs_room) return ENOSPC;
    if (seen != nth) return 0;
    if (way == EIO_ONCE) return EIO;
    if (way == KILL) kill(getpid(), SIGKILL);
    if (way == POWER) cut_power();
    return 0;
}

static int half(void) { return way == TORN && seen == nth; }

static ssize_t put(int fd, const void *what, size_t count, off_t at, int placed) {
    REAL("pwrite64", ssize_t(int, const void *, size_t, off_t));
    static ssize_t (*plain)(int, const void *, size_t);
    if (!plain) plain = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char path[512];
    if (armed && path_of(fd, path) && ours(path)) {
        int no = fate(1);
        if (no) { errno = no; return -1; }
        off_t from = placed ? at : lseek(fd, 0, SEEK_CUR);
        keep_bytes(fd, path, from, count);
        if (half()) {
            if (placed) real(fd, what, count / 2, at); else plain(fd, what, count / 2);
            kill(getpid(), SIGKILL);
        }
    }
    return placed ? real(fd, what, count, at) : plain(fd, what, count);
}

ssize_t write(int fd, const void *what, size_t count) { return put(fd, what, count, 0, 0); }
ssize_t pwrite(int fd, const void *what, size_t count, off_t at) { return put(fd, what, count, at, 1); }
ssize_t pwrite64(int fd, const void *what, size_t count, off_t at) { return put(fd, what, count, at, 1); }

static int truncated(int fd, off_t size) {
    REAL("ftruncate64", int(int, off_t));
    char path[512];
    struct stat s;
    if (armed && path_of(fd, path) && ours(path) && !strstr(path, "-shm")) {
        int no = fate(0);
        if (no) { errno = no; return -1; }
        if (!fstat(fd, &s) && s.st_size > size) keep_bytes(fd, path, size, s.st_size - size);
    }
    return real(fd, size);
}

int ftruncate(int fd, off_t size) { return truncated(fd, size); }
int ftruncate64(int fd, off_t size) { return truncated(fd, size); }

static int synced(int fd, const char *name) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    char path[512];
    if (!armed || !path_of(fd, path) || !ours(path)) return real(fd);
    int no = fate(0);
    if (no) { errno = no; return -1; }
    forget(path, BYTES);
    forget(path, RENAMED);
    return real(fd);
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

int rename(const char *from, const char *to) {
    REAL("rename", int(const char *, const char *));
    if (!ours(to)) return real(from, to);
    int no = fate(0);
    if (no) { errno = no; return -1; }
    if (way == POWER) {
        struct undo *u = calloc(1, sizeof *u);
        u->what = RENAMED; u->before = log_;
        snprintf(u->path, sizeof u->path, "%s", from);
        snprintf(u->other, sizeof u->other, "%s", to);
        u->bytes = calloc(1, 2048);
        snprintf(u->bytes, 1024, "%s", to);
        char *slash = strrchr(u->bytes, '/');
        if (slash) *slash = 0;
        snprintf(u->bytes + 1024, 1024, "%s.undo", to);
        u->count = !link(to, u->bytes + 1024);
        log_ = u;
    }
    return real(from, to);
}

int unlink(const char *path) {
    REAL("unlink", int(const char *));
    if (!ours(path) || strstr(path, ".undo") || strstr(path, "-shm")) return real(path);
    int no = fate(0);
    if (no) { errno = no; return -1; }
    return real(path);
}
