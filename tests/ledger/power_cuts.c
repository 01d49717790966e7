/* Writes down, in order, what a process writes below a folder and when it flushes it.
 *
 * Preloaded (LD_PRELOAD). RECORD_FOLDER is the folder, RECORD_FILE the file that the record goes to:
 * for each call a line "name offset length path", and after it the bytes that were written. A lock is
 * held over each call and its line, so that the record has the order of the disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;

static const char *watched(int fd, char *path, size_t room) {
  const char *folder = getenv("RECORD_FOLDER");
  char link[64];
  if (!folder) return NULL;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, room - 1);
  if (n < 0) return NULL;
  path[n] = 0;
  size_t length = strlen(folder);
  if (strncmp(path, folder, length) || path[length] != '/') return NULL;
  return path + length + 1;
}

static void put(const void *data, size_t length) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = dlsym(RTLD_NEXT, "write");
  while (length) {
    ssize_t n = real(record, data, length);
    if (n < 0) abort();
    data = (const char *)data + n;
    length -= n;
  }
}

static void note(const char *name, const char *path, off_t offset, const void *data, size_t length) {
  char line[4200];
  if (record < 0) record = open(getenv("RECORD_FILE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  int n = snprintf(line, sizeof line, "%s %lld %zu %s\n", name, (long long)offset, length, path);
  put(line, n);
  if (data) put(data, length);
}

#define WATCH(result, call, name, offset, data, length)                      \
  char path[4096];                                                           \
  const char *file = watched(fd, path, sizeof path);                         \
  if (!file) return call;                                                    \
  pthread_mutex_lock(&lock);                                                 \
  result done = call;                                                        \
  if (done >= 0) note(name, file, offset, data, length);                     \
  pthread_mutex_unlock(&lock);                                               \
  return done

#define REAL(type, name, ...)                                                \
  static type (*real)(__VA_ARGS__);                                          \
  if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
  REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
  WATCH(ssize_t, real(fd, data, length, at), "write", at, data, (size_t)done);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
  return pwrite64(fd, data, length, at);
}

ssize_t write(int fd, const void *data, size_t length) {
  REAL(ssize_t, write, int, const void *, size_t);
  WATCH(ssize_t, real(fd, data, length), "append", 0, data, (size_t)done);
}

int ftruncate64(int fd, off64_t length) {
  REAL(int, ftruncate64, int, off64_t);
  WATCH(int, real(fd, length), "truncate", length, NULL, 0);
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fsync(int fd) {
  REAL(int, fsync, int);
  WATCH(int, real(fd), "flush", 0, NULL, 0);
}

int fdatasync(int fd) {
  REAL(int, fdatasync, int);
  WATCH(int, real(fd), "flush", 0, NULL, 0);
}
