// SPDX-License-Identifier: GPL-2.0
/*
 * requests write|verify FILE SEED SECTOR BYTES: fills the first BYTES of FILE with direct requests of 1
 * sector to 1 MiB, rewrites parts of it, and reads and compares all of it; or only the last. Sizes, places,
 * data and how the memory of a request is scattered follow from SEED, so that `verify` knows what
 * `write` has written.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST (1u << 20)
#define PIECES 64
#define REWRITES 100
#define READS 100

static uint64_t state;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545f4914f6cdd1dull >> 11;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Sectors for a request, at most so many: all sizes' logarithms are as likely. */
static size_t some(size_t most, size_t sector)
{
	size_t limit = MOST / sector < most ? MOST / sector : most;
	size_t sectors = (size_t)1 << next() % 12;

	sectors += next() % sectors;
	return sectors < limit ? sectors : limit;
}

/*
 * Moves `len` bytes between FILE and `image`, through memory in pieces of whole sectors at any
 * sector of a page.
 */
static void move(int file, uint8_t *image, size_t at, size_t len, size_t sector, int writes)
{
	static uint8_t *memory;
	struct iovec v[PIECES];
	size_t left = len, slot = 0;
	int n = 0;
	ssize_t moved;

	if (!memory && posix_memalign((void **)&memory, 4096, 2 * MOST + (PIECES + 1) * 8192))
		fail("memory");
	while (left) {
		size_t piece = left;

		if (n < PIECES - 1 && next() % 2)
			piece = (1 + next() % (left / sector)) * sector;
		slot = (slot + 4095) & ~(size_t)4095;
		slot += next() % (4096 / sector) * sector;
		v[n].iov_base = memory + slot;
		v[n++].iov_len = piece;
		slot += piece;
		left -= piece;
	}
	for (int i = 0, from = 0; writes && i < n; from += (int)v[i++].iov_len)
		memcpy(v[i].iov_base, image + at + from, v[i].iov_len);
	moved = writes ? pwritev(file, v, n, (off_t)at) : preadv(file, v, n, (off_t)at);
	if (moved != (ssize_t)len) {
		fprintf(stderr, "%zd of %zu bytes at %zu: ", moved, len, at);
		fail(writes ? "write" : "read");
	}
	for (int i = 0, from = 0; !writes && i < n; from += (int)v[i++].iov_len)
		if (memcmp(v[i].iov_base, image + at + from, v[i].iov_len)) {
			fprintf(stderr, "%zu bytes at %zu read differently\n", v[i].iov_len, at + (size_t)from);
			exit(1);
		}
}

int main(int argc, char **argv)
{
	int writes = argc == 6 && !strcmp(argv[1], "write"), file;
	size_t sector, bytes, requests = 0;
	uint8_t *image;

	if (argc != 6 || (!writes && strcmp(argv[1], "verify"))) {
		fprintf(stderr, "usage: requests write|verify FILE SEED SECTOR BYTES\n");
		return 2;
	}
	state = 88172645463325252u + strtoull(argv[3], NULL, 10);
	sector = strtoull(argv[4], NULL, 10);
	bytes = strtoull(argv[5], NULL, 10);
	file = open(argv[2], O_DIRECT | (writes ? O_RDWR : O_RDONLY));
	image = malloc(bytes);
	if (file < 0 || !image)
		fail(argv[2]);
	/* The image first: moving takes random numbers, too. */
	for (size_t i = 0; i < bytes; i++)
		image[i] = (uint8_t)next();
	for (size_t at = 0, len; at < bytes && writes; at += len, requests++) {
		len = some((bytes - at) / sector, sector) * sector;
		move(file, image, at, len, sector, 1);
	}
	/* From here on the numbers are the same for both. */
	state = 362436069362436069u + strtoull(argv[3], NULL, 10);
	for (int i = 0; i < REWRITES; i++) {
		uint64_t seed = next(), kept;
		size_t len = some(bytes / sector, sector) * sector;
		size_t at = next() % ((bytes - len) / sector + 1) * sector;

		for (size_t j = 0; j < len; j++)
			image[at + j] ^= (uint8_t)(seed >> j % 48);
		kept = state;
		if (writes) {
			move(file, image, at, len, sector, 1);
			requests++;
		}
		state = kept;
	}
	for (size_t at = 0, len; at < bytes; at += len, requests++) {
		len = some((bytes - at) / sector, sector) * sector;
		move(file, image, at, len, sector, 0);
	}
	for (int i = 0; i < READS; i++, requests++) {
		size_t len = some(bytes / sector, sector) * sector;

		move(file, image, next() % ((bytes - len) / sector + 1) * sector, len, sector, 0);
	}
	printf("%zu requests\n", requests);
	return 0;
}
