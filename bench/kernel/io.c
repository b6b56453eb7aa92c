// SPDX-License-Identifier: GPL-2.0
/*
 * io PATTERN FILE REQUEST SPAN BYTES [DEPTH]: requests of REQUEST bytes, past the page cache, to the
 * first SPAN bytes of FILE until BYTES have moved. PATTERN is read, write (or
 * rewrite), randread or randwrite. Sequential ones start over at SPAN. DEPTH of them are
 * under way at a time; without it, one. bufwrite writes through the page cache, and waits until all
 * is on the disk. latency is randread, and measures each request.
 * io run PROGRAM ARGUMENTS...: runs it.
 *
 * Prints nanoseconds of the kernel's CPU time, nanoseconds of wall time, bytes, and nanoseconds of this
 * program's CPU time and of that of the disk's server. The clocks are read around
 * the work alone: here a program's start costs as much as many requests. With latency there follow the nanoseconds
 * that half of the requests have taken at most, and 99 of 100.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#define MOST_DEPTH 64

struct clocks {
	unsigned long long cpu, wall, program, server;
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static struct clocks now(void)
{
	static const char name[] = "/sys/module/host_clock/parameters/now";
	char text[96];
	struct clocks clocks;
	int file = open(name, O_RDONLY);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof(text) - 1);

	if (length < 0)
		fail(name);
	close(file);
	text[length] = 0;
	if (sscanf(text, "%llu %llu %llu %llu", &clocks.cpu, &clocks.wall, &clocks.program, &clocks.server) != 4 ||
	    !clocks.cpu) {
		fprintf(stderr, "%s: no time in it\n", name);
		exit(1);
	}
	return clocks;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void report(struct clocks start, struct clocks end, uint64_t bytes)
{
	printf("%llu %llu %llu %llu %llu", end.cpu - start.cpu, end.wall - start.wall, (unsigned long long)bytes,
	       end.program - start.program, end.server - start.server);
}

/* What is asked for. */
struct load {
	const char *pattern, *name;
	size_t request;
	uint64_t span, count, state;
	uint64_t *ticks;	/* of each request, if that is asked for */
	int file, writes, random;
};

static off_t place(struct load *load, uint64_t i)
{
	return (load->random ? next_random(&load->state) : i) % (load->span / load->request) * load->request;
}

static void check(const struct load *load, off_t where, long long moved)
{
	if (moved != (long long)load->request) {
		fprintf(stderr, "%s: %s of %zu at %lld gave %lld\n", load->name, load->pattern, load->request,
			(long long)where, moved);
		exit(1);
	}
}

static void one_by_one(struct load *load, char *buffer)
{
	uint64_t i;

	for (i = 0; i < load->count; i++) {
		off_t where = place(load, i);
		/* Every call into the kernel is dear here, one for the time as well. */
		uint64_t start = load->ticks ? __rdtsc() : 0;

		check(load, where, load->writes ? pwrite(load->file, buffer, load->request, where) :
						  pread(load->file, buffer, load->request, where));
		if (load->ticks)
			load->ticks[i] = __rdtsc() - start;
	}
}

/* As many at a time as there are buffers, one behind the other. */
static void many(struct load *load, char *buffers, size_t apart, unsigned int depth)
{
	struct iocb blocks[MOST_DEPTH] = { 0 }, *ready[MOST_DEPTH];
	struct io_event events[MOST_DEPTH];
	aio_context_t context = 0;
	uint64_t begun = 0, ended = 0;
	long i, count = depth;

	if (syscall(SYS_io_setup, depth, &context))
		fail("io_setup");
	for (i = 0; i < count; i++) {
		blocks[i].aio_buf = (uintptr_t)(buffers + i * apart);
		ready[i] = &blocks[i];
	}
	while (ended < load->count) {
		long some = 0;

		for (i = 0; i < count && begun < load->count; i++, begun++) {
			ready[i]->aio_fildes = load->file;
			ready[i]->aio_lio_opcode = load->writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
			ready[i]->aio_nbytes = load->request;
			ready[i]->aio_offset = place(load, begun);
		}
		while (some < i) {
			long taken = syscall(SYS_io_submit, context, i - some, ready + some);

			if (taken <= 0)
				fail("io_submit");
			some += taken;
		}
		count = syscall(SYS_io_getevents, context, 1, (long)depth, events, NULL);
		if (count <= 0)
			fail("io_getevents");
		for (i = 0; i < count; i++) {
			ready[i] = (struct iocb *)(uintptr_t)events[i].obj;
			check(load, ready[i]->aio_offset, events[i].res);
		}
		ended += count;
	}
	syscall(SYS_io_destroy, context);
}

static void move(struct load load, unsigned int depth)
{
	/* What is written does not matter; on a real disk it should not be all the same. */
	const size_t apart = (load.request + 65535) & ~(size_t)65535;
	char *buffers = aligned_alloc(1 << 16, apart * depth);
	const int latency = !strcmp(load.pattern, "latency");
	struct clocks start, end;
	uint64_t ticks;
	size_t i;

	load.writes = !!strstr(load.pattern, "write");
	load.random = latency || !strncmp(load.pattern, "rand", 4);
	load.state = 88172645463325252u;
	load.ticks = latency ? calloc(load.count, sizeof(*load.ticks)) : NULL;
	load.file = open(load.name, (strncmp(load.pattern, "buf", 3) ? O_DIRECT : 0) | (load.writes ? O_WRONLY | O_CREAT : O_RDONLY), 0600);
	if (load.file < 0 || !buffers || (latency && !load.ticks))
		fail(load.name);
	for (i = 0; i < apart * depth / sizeof(uint64_t); i++)
		((uint64_t *)buffers)[i] = next_random(&load.state);
	start = now();
	ticks = __rdtsc();
	if (depth == 1)
		one_by_one(&load, buffers);
	else
		many(&load, buffers, apart, depth);
	/* The device's cache and the file's size are part of it. */
	if (load.writes && fsync(load.file))
		fail(load.name);
	ticks = __rdtsc() - ticks;
	end = now();
	report(start, end, load.count * load.request);
	if (latency) {
		/* The clock was read a little before and after. */
		const double each = (double)(end.wall - start.wall) / ticks;

		qsort(load.ticks, load.count, sizeof(*load.ticks), by_size);
		printf(" %.0f %.0f", load.ticks[load.count / 2] * each, load.ticks[load.count * 99 / 100] * each);
	}
	putchar('\n');
}

static void run(char **command)
{
	struct clocks start = now(), end;
	pid_t child = vfork();
	int status;

	if (!child) {
		int nowhere = open("/dev/null", O_WRONLY);

		dup2(nowhere, STDOUT_FILENO);
		execvp(command[0], command);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		fail(command[0]);
	end = now();
	if (status) {
		fprintf(stderr, "%s failed: status %d\n", command[0], status);
		exit(1);
	}
	report(start, end, 0);
	putchar('\n');
}

static unsigned long long number(const char *text)
{
	return strtoull(text, NULL, 10);
}

int main(int argc, char **argv)
{
	const unsigned long long request = argc > 4 ? number(argv[3]) : 0, depth = argc == 7 ? number(argv[6]) : 1;

	if (argc > 2 && !strcmp(argv[1], "run")) {
		run(argv + 2);
	} else if ((argc == 6 || argc == 7) && request && number(argv[4]) >= request && depth > 0 && depth <= MOST_DEPTH &&
		   number(argv[5]) >= request && (depth == 1 || strcmp(argv[1], "latency"))) {
		move((struct load){ .pattern = argv[1], .name = argv[2], .request = request, .span = number(argv[4]),
				    .count = number(argv[5]) / request }, depth);
	} else {
		fprintf(stderr, "usage: io read|write|randread|randwrite|bufwrite|latency FILE REQUEST SPAN BYTES [DEPTH] | io run PROGRAM...\n");
		return 2;
	}
	return 0;
}
