// SPDX-License-Identifier: GPL-2.0
/*
 * io PATTERN FILE REQUEST SPAN BYTES: requests of REQUEST bytes, past the page cache, to the
 * first SPAN bytes of FILE until BYTES have moved. PATTERN is read, write (or
 * rewrite), randread or randwrite. Sequential ones start over at SPAN.
 * io run PROGRAM ARGUMENTS...: runs it.
 *
 * Prints nanoseconds of the kernel's CPU time, nanoseconds of wall time, and bytes. Both clocks are read
 * around the work alone: here a program's start costs as much as many requests.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct clocks {
	unsigned long long cpu, wall;
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static struct clocks now(void)
{
	static const char name[] = "/sys/module/host_clock/parameters/now";
	char text[64];
	struct clocks clocks;
	int file = open(name, O_RDONLY);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof(text) - 1);

	if (length < 0)
		fail(name);
	close(file);
	text[length] = 0;
	if (sscanf(text, "%llu %llu", &clocks.cpu, &clocks.wall) != 2 || !clocks.cpu) {
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

static void move(const char *pattern, const char *name, size_t request, uint64_t span, uint64_t bytes)
{
	const int writes = !!strstr(pattern, "write"), random = !strncmp(pattern, "rand", 4);
	uint64_t state = 88172645463325252u, i;
	/* What is written does not matter; on a real disk it should not be all the same. */
	uint64_t *buffer = aligned_alloc(1 << 16, (request + 65535) & ~(size_t)65535);
	int file = open(name, O_DIRECT | (writes ? O_WRONLY | O_CREAT : O_RDONLY), 0600);
	struct clocks start, end;

	if (file < 0 || !buffer)
		fail(name);
	for (i = 0; i < request / sizeof(*buffer); i++)
		buffer[i] = next_random(&state);
	start = now();
	for (i = 0; i < bytes / request; i++) {
		off_t where = (random ? next_random(&state) : i) % (span / request) * request;
		ssize_t moved = writes ? pwrite(file, buffer, request, where) : pread(file, buffer, request, where);

		if (moved != (ssize_t)request) {
			fprintf(stderr, "%s: %s of %zu at %lld gave %zd\n", name, pattern, request, (long long)where, moved);
			exit(1);
		}
	}
	/* The device's cache and the file's size are part of it. */
	if (writes && fsync(file))
		fail(name);
	end = now();
	printf("%llu %llu %llu\n", end.cpu - start.cpu, end.wall - start.wall, (unsigned long long)(i * request));
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
	printf("%llu %llu 0\n", end.cpu - start.cpu, end.wall - start.wall);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "run"))
		run(argv + 2);
	else if (argc == 6 && strtoull(argv[3], NULL, 10) && strtoull(argv[4], NULL, 10) >= strtoull(argv[3], NULL, 10))
		move(argv[1], argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
		     strtoull(argv[5], NULL, 10));
	else {
		fprintf(stderr, "usage: io read|write|randread|randwrite FILE REQUEST SPAN BYTES | io run PROGRAM...\n");
		return 2;
	}
	return 0;
}
