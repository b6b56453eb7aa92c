// SPDX-License-Identifier: GPL-2.0
/* zones show|reset DEVICE: how many sectors each zone has been written, or none again. */
#include <fcntl.h>
#include <linux/blkzoned.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define MOST 64

int main(int argc, char **argv)
{
	struct blk_zone_report *report = calloc(1, sizeof(*report) + MOST * sizeof(struct blk_zone));
	int fd = argc == 3 ? open(argv[2], O_RDWR) : -1;
	unsigned int i;

	if (fd < 0 || !report) {
		perror("zones show|reset DEVICE");
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
