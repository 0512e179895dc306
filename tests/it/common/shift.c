/* Shifts the wall clock of the process that preloads this library by the seconds in the file that
 * HOLDFAST_SHIFT names (a little-endian int64, read at every call). The monotonic clock stays true. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *shift;

__attribute__((constructor)) static void open_shift(void) {
  const char *path = getenv("HOLDFAST_SHIFT");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) shift = page;
  close(fd);
}

int clock_gettime(clockid_t id, struct timespec *now) {
  long failed = syscall(SYS_clock_gettime, id, now);
  if (!failed && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *shift;
  return (int)failed;
}

/* The kernel's clock is synchronised if HOLDFAST_SYNCHRONISED is set, whatever it is here. */
int adjtimex(struct timex *time) {
  long state = syscall(SYS_adjtimex, time);
  if (state < 0 || !shift) return (int)state;
  time->time.tv_sec += *shift;
  time->status = getenv("HOLDFAST_SYNCHRONISED") ? time->status & ~STA_UNSYNC : time->status | STA_UNSYNC;
  return time->status & STA_UNSYNC ? TIME_ERROR : TIME_OK;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec at;
  int failed = clock_gettime(CLOCK_REALTIME, &at);
  now->tv_sec = at.tv_sec;
  now->tv_usec = at.tv_nsec / 1000;
  return failed;
}

time_t time(time_t *out) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (out) *out = at.tv_sec;
  return at.tv_sec;
}
