// A wall clock that a test moves: LD_PRELOAD places these functions before the C library's. The
// time is the number of nanoseconds since 1970 in the first eight bytes of the file $WEIR_CLOCK.
// The test maps the file too, so one atomic store moves the clock for both at once. (libfaketime
// 0.9.10 is no alternative: with it Debian's Redis hangs before it listens, and it reads the time
// from a text file, so that a step is not atomic.)
//
// The monotonic clocks stay real, so that Redis's housekeeping continues while the wall clock
// stops. Nothing here allocates, because an allocator reads the time before main.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
	static _Atomic(int64_t) *_Atomic mapped;
	_Atomic(int64_t) *p = mapped;
	if (!p) {
		const char *name = getenv("WEIR_CLOCK");
		int fd = name ? open(name, O_RDONLY) : -1;
		p = mmap(0, sizeof *p, PROT_READ, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED) abort();
		close(fd);
		mapped = p;
	}
	return *p;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, id, ts);
	int64_t ns = now();
	ts->tv_sec = ns / 1000000000;
	ts->tv_nsec = ns % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	(void)zone;
	int64_t ns = now();
	tv->tv_sec = ns / 1000000000;
	tv->tv_usec = ns % 1000000000 / 1000;
	return 0;
}

time_t time(time_t *t) {
	time_t s = now() / 1000000000;
	if (t) *t = s;
	return s;
}
