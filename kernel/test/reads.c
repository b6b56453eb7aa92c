// SPDX-License-Identifier: GPL-2.0
/*
 * reads DEVICE: reads 4096 bytes at random places of its first 8 MiB, past the page cache, one after the other,
 * and prints how many ticks of the CPU's clock half of these reads take at most.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <x86intrin.h>

#define REQUEST 4096
#define SPAN (8 << 20)
#define READS 400

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
	static uint64_t ticks[READS];
	char *buffer = aligned_alloc(REQUEST, REQUEST);
	/* The first ones find caches of the kernel's empty. */
	const int warm_up = 100;
	uint64_t state = 88172645463325252u;
	int file, i;

	if (argc != 2) {
		fprintf(stderr, "usage: reads DEVICE\n");
		return 2;
	}
	file = open(argv[1], O_RDONLY | O_DIRECT);
	if (file < 0 || !buffer) {
		perror(argv[1]);
		return 1;
	}
	for (i = -warm_up; i < READS; i++) {
		uint64_t start;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		start = __rdtsc();
		if (pread(file, buffer, REQUEST, state % (SPAN / REQUEST) * REQUEST) != REQUEST) {
			perror(argv[1]);
			return 1;
		}
		if (i >= 0)
			ticks[i] = __rdtsc() - start;
	}
	qsort(ticks, READS, sizeof(ticks[0]), by_size);
	printf("%llu\n", (unsigned long long)ticks[READS / 2]);
	return 0;
}
