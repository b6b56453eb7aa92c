// SPDX-License-Identifier: GPL-2.0
/* atomic DEVICE FILE BYTES: writes this much of FILE to DEVICE's beginning, in one atomic write. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x40
#endif

int main(int argc, char **argv)
{
	size_t len = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	char *data = aligned_alloc(65536, (len + 65535) / 65536 * 65536);
	struct iovec piece = { .iov_base = data, .iov_len = len };
	int from, to;

	if (!len || !data) {
		fprintf(stderr, "usage: atomic DEVICE FILE BYTES\n");
		return 2;
	}
	from = open(argv[2], O_RDONLY);
	to = open(argv[1], O_WRONLY | O_DIRECT);
	if (from < 0 || to < 0 || readv(from, &piece, 1) != (ssize_t)len ||
	    pwritev2(to, &piece, 1, 0, RWF_ATOMIC) != (ssize_t)len) {
		perror("not written at once");
		return 1;
	}
	return 0;
}
