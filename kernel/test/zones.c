// SPDX-License-Identifier: GPL-2.0
/*
 * zones show|reset DEVICE: how many sectors each zone has been written, or none again.
 * zones write DEVICE FILE: all of the file in one request, from huge pages if there are any.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/blkzoned.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 64

static int write_at_once(const char *device, const char *file)
{
	size_t len = 16 << 20;
	char *data = mmap(NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	int from = open(file, O_RDONLY), to = open(device, O_WRONLY | O_DIRECT);

	if (data == MAP_FAILED)
		data = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED || from < 0 || to < 0 || read(from, data, len) != (ssize_t)len ||
	    pwrite(to, data, len, 0) != (ssize_t)len) {
		perror("not written");
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct blk_zone_report *report = calloc(1, sizeof(*report) + MOST * sizeof(struct blk_zone));
	int fd = argc == 3 ? open(argv[2], O_RDWR) : -1;
	unsigned int i;

	if (argc == 4 && !strcmp(argv[1], "write"))
		return write_at_once(argv[2], argv[3]);
	if (fd < 0 || !report) {
		perror("zones show|reset DEVICE, write DEVICE FILE");
		return 1;
	}
	report->nr_zones = MOST;
	if (ioctl(fd, BLKREPORTZONE, report) || !report->nr_zones) {
		perror("no zones");
		return 1;
	}
	for (i = 0; i < report->nr_zones; i++) {
		struct blk_zone *zone = &report->zones[i];
		struct blk_zone_range range = { zone->start, zone->len };

		if (zone->type == BLK_ZONE_TYPE_CONVENTIONAL)
			continue;
		if (!strcmp(argv[1], "reset") && ioctl(fd, BLKRESETZONE, &range)) {
			perror("not reset");
			return 1;
		}
		if (!strcmp(argv[1], "show"))
			printf("%llu\n", zone->wp - zone->start);
	}
	return 0;
}
