// SPDX-License-Identifier: GPL-2.0
/*
 * A reader or writer of stress.sh. A sector that this writes tells its place and which of the
 * writes it was, in every byte; a map, which readers share with the writer, has the writes that each
 * sector may be from: one, or after a write that failed any from the one before on.
 *
 * worker write DEVICE MAP START BYTES SECTOR SEED [faulty]
 *                         until /tmp/done or /tmp/failed exists; faulty: requests may fail
 * worker read DEVICE MAP  as long, where the writer writes
 * worker check DEVICE MAP once, all of it
 * worker known MAP        prints where on the device a byte lies of which is known what it is
 * worker sum MAP...       the counters of their writers and readers
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define LONGEST (1 << 20)
#define ALIGN 4096
/* As the end of a range: not known, since nothing or a trim was there. */
#define ANY UINT32_MAX

struct range {
	uint32_t low, high;
};

struct map {
	uint64_t start, bytes;
	uint32_t unit, seed, faulty;
	uint64_t written, compared, trims, errors;
	struct range sectors[];
};

static const char *device;
static int direct, cached;
static struct map *map;
static struct range *before;
static uint8_t *buffer;
static bool can_trim = true;
static uint64_t state;

static void die(const char *what, uint64_t sector)
{
	int error = errno;

	close(open("/tmp/failed", O_CREAT | O_WRONLY, 0644));
	printf("FAILED: %s, sector %llu of %u bytes: %s%s%s\n", device, (unsigned long long)sector,
	       map ? map->unit : 0, what, error ? ", " : "", error ? strerror(error) : "");
	exit(1);
}

static void add(uint64_t *counter, uint64_t what)
{
	__atomic_add_fetch(counter, what, __ATOMIC_RELAXED);
}

static uint32_t get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void put(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static uint64_t mixed(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint64_t below(uint64_t limit)
{
	state += 0x9e3779b97f4a7c15ull;
	return mixed(state) % limit;
}

/* What a sector holds after that write. */
static uint64_t word(uint64_t sector, uint32_t write, unsigned int i)
{
	return mixed((sector << 32 | write) + i * 0x9e3779b97f4a7c15ull + ((uint64_t)map->seed << 48));
}

static bool is_of(const uint64_t *data, uint64_t sector, uint32_t write)
{
	for (unsigned int i = 0; i < map->unit / 8; i++)
		if (data[i] != word(sector, write, i))
			return false;
	return true;
}

static void compare(const uint8_t *data, uint64_t sector, struct range range)
{
	const uint64_t *words = (const uint64_t *)data;
	uint32_t write = range.high;
	bool found;

	if (range.high == ANY)
		return;
	found = is_of(words, sector, write);
	while (!found && write > range.low)
		found = is_of(words, sector, --write);
	if (found) {
		add(&map->compared, map->unit);
		return;
	}
	printf("wanted write %u to %u, got %016llx %016llx ... %016llx\n", range.low, range.high,
	       (unsigned long long)words[0], (unsigned long long)words[1],
	       (unsigned long long)words[map->unit / 8 - 1]);
	for (write = 1; write < range.high + 1000; write++)
		if (is_of(words, sector, write))
			printf("this is what write %u wrote there\n", write);
	errno = 0;
	die("other data", sector);
}

/* In as many pieces of memory as chance wants. False if it failed, as it may. */
static bool transfer(int fd, bool out, uint8_t *at, uint64_t sector, unsigned int count, int flags)
{
	off_t from = map->start + sector * map->unit;
	size_t bytes = (size_t)count * map->unit;
	unsigned int left = count, pieces = 0;
	struct iovec vector[8];
	ssize_t done;

	while (left) {
		unsigned int piece = pieces == 7 ? left : 1 + below(left);

		vector[pieces].iov_base = at;
		vector[pieces].iov_len = (size_t)piece * map->unit;
		at += vector[pieces++].iov_len;
		left -= piece;
	}
	done = out ? pwritev2(fd, vector, pieces, from, flags) : preadv2(fd, vector, pieces, from, flags);
	if (done == (ssize_t)bytes)
		return true;
	if (!map->faulty || (done < 0 && errno != EIO))
		die(out ? "cannot write" : "cannot read", sector);
	add(&map->errors, 1);
	return false;
}

static void read_and_compare(int fd, uint64_t sector, unsigned int count, bool alone)
{
	uint8_t *at = buffer + below(ALIGN / map->unit) * map->unit;

	for (unsigned int i = 0; i < count; i++) {
		before[i].low = get(&map->sectors[sector + i].low);
		before[i].high = get(&map->sectors[sector + i].high);
	}
	if (!transfer(fd, false, at, sector, count, 0))
		return;
	for (unsigned int i = 0; i < count; i++) {
		const struct range *now = &map->sectors[sector + i];

		/* A sector that is written meanwhile may be half of this and half of that. */
		if (alone || (before[i].low == before[i].high && get(&now->low) == before[i].low &&
			      get(&now->high) == before[i].high))
			compare(at + i * map->unit, sector + i, before[i]);
	}
}

enum way { DIRECT, DIRECT_SYNC, CACHED, CACHED_SYNC };

static void write_once(enum way way, uint64_t sector, unsigned int count, uint32_t write)
{
	uint8_t *at = buffer + below(ALIGN / map->unit) * map->unit;
	bool good;

	for (unsigned int i = 0; i < count; i++) {
		struct range *range = &map->sectors[sector + i];

		if (range->high != ANY)
			put(&range->high, write);
		for (unsigned int w = 0; w < map->unit / 8; w++)
			((uint64_t *)(at + i * map->unit))[w] = word(sector + i, write, w);
	}
	good = transfer(way <= DIRECT_SYNC ? direct : cached, true, at, sector, count,
			way == DIRECT_SYNC ? RWF_DSYNC : 0);
	if (way == CACHED_SYNC && fsync(cached)) {
		if (!map->faulty || errno != EIO)
			die("cannot fsync", sector);
		add(&map->errors, 1);
		good = false;
	}
	if (!good)
		return;
	add(&map->written, (uint64_t)count * map->unit);
	for (unsigned int i = 0; i < count; i++) {
		put(&map->sectors[sector + i].low, write);
		put(&map->sectors[sector + i].high, write);
	}
}

static void discard(uint64_t sector, unsigned int count)
{
	uint64_t range[2] = { map->start + sector * map->unit, (uint64_t)count * map->unit };

	for (unsigned int i = 0; i < count; i++) {
		put(&map->sectors[sector + i].low, 0);
		put(&map->sectors[sector + i].high, ANY);
	}
	if (!ioctl(direct, BLKDISCARD, range))
		add(&map->trims, 1);
	else if (errno == EOPNOTSUPP || errno == ENOTTY)
		can_trim = false;
	else if (!map->faulty || errno != EIO)
		die("cannot trim", sector);
	else
		add(&map->errors, 1);
}

/* A place and a length, more often short than long. */
static unsigned int place(uint64_t *sector)
{
	uint64_t sectors = map->bytes / map->unit;
	unsigned int most = LONGEST / map->unit;
	unsigned int count = 1 + below(1 + below(1 + below(most)));

	*sector = below(sectors - count + 1);
	return count;
}

static bool is_over(void)
{
	return !access("/tmp/done", F_OK) || !access("/tmp/failed", F_OK);
}

static void write_until_done(void)
{
	uint32_t write = 1;

	while (!is_over()) {
		uint64_t sector;
		unsigned int count = place(&sector);
		/*
		 * A page that is written to while it is written back, which then fails, may leave
		 * half of both on the disk: where requests fail, fsync() comes first.
		 */
		unsigned int what = below(map->faulty ? 20 : 24);

		if (what < 6)
			write_once(DIRECT, sector, count, write++);
		else if (what < 8)
			write_once(DIRECT_SYNC, sector, count, write++);
		else if (what < 12)
			write_once(CACHED_SYNC, sector, count, write++);
		else if (what < 13 && can_trim)
			discard(sector, 1 + below(count));
		else if (what >= 20)
			write_once(CACHED, sector, count, write++);
		if (below(4) == 0)
			posix_fadvise(cached, map->start + sector * map->unit, count * map->unit, POSIX_FADV_DONTNEED);
		count = 1 + below(count);
		if (sector + count > map->bytes / map->unit)
			continue;
		read_and_compare(below(2) ? direct : cached, sector, count, true);
	}
}

static void check(void)
{
	unsigned int step = LONGEST / 4 / map->unit;
	uint64_t known = 0, sectors = map->bytes / map->unit;

	map->faulty = 0;
	for (uint64_t i = 0; i < sectors; i++)
		known += map->sectors[i].low == map->sectors[i].high;
	if (!known)
		die("nothing is known of any sector", 0);
	for (uint64_t i = 0; i < sectors; i += step)
		read_and_compare(direct, i, sectors - i < step ? sectors - i : step, true);
}

static struct map *map_file(const char *name, size_t size)
{
	int fd = open(name, O_RDWR | (size ? O_CREAT : 0), 0600);
	struct stat info;
	struct map *at;

	if (fd < 0 || (size && ftruncate(fd, size)) || fstat(fd, &info)) {
		perror(name);
		exit(2);
	}
	at = mmap(NULL, info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		perror(name);
		exit(2);
	}
	close(fd);
	return at;
}

static int sum(int argc, char **argv)
{
	uint64_t written = 0, compared = 0, trims = 0, errors = 0;

	for (int i = 2; i < argc; i++) {
		map = map_file(argv[i], 0);
		written += map->written;
		compared += map->compared;
		trims += map->trims;
		errors += map->errors;
	}
	printf("%llu %llu %llu %llu\n", (unsigned long long)written >> 20,
	       (unsigned long long)compared >> 20, (unsigned long long)trims, (unsigned long long)errors);
	return 0;
}

static int known(const char *name)
{
	uint64_t i = 0;

	map = map_file(name, 0);
	while (i < map->bytes / map->unit && map->sectors[i].low != map->sectors[i].high)
		i++;
	printf("%llu\n", (unsigned long long)(map->start + i * map->unit));
	return i == map->bytes / map->unit;
}

/* A reader finds it as soon as it is whole. */
static void create_map(const char *name, char **argv, bool faulty)
{
	char new[4096];
	uint64_t bytes = strtoull(argv[1], NULL, 10);
	uint32_t unit = strtoul(argv[2], NULL, 10);

	snprintf(new, sizeof(new), "%s.new", name);
	map = map_file(new, sizeof(*map) + bytes / unit * sizeof(struct range));
	map->start = strtoull(argv[0], NULL, 10);
	map->bytes = bytes;
	map->unit = unit;
	map->seed = strtoul(argv[3], NULL, 10);
	map->faulty = faulty;
	for (uint64_t i = 0; i < bytes / unit; i++)
		map->sectors[i] = (struct range){ 0, ANY };
	if (rename(new, name)) {
		perror(name);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	/* What it says is all there is if the guest stops. */
	setvbuf(stdout, NULL, _IONBF, 0);
	if (argc > 2 && !strcmp(what, "sum"))
		return sum(argc, argv);
	if (argc == 3 && !strcmp(what, "known"))
		return known(argv[2]);
	if (argc < 4 || (!strcmp(what, "write") && argc < 8)) {
		fprintf(stderr, "worker: see worker.c\n");
		return 2;
	}
	device = argv[2];
	if (!strcmp(what, "write"))
		create_map(argv[3], argv + 4, argc > 8);
	else
		map = map_file(argv[3], 0);
	state = ((uint64_t)map->seed << 8) + *what;
	direct = open(device, (*what == 'w' ? O_RDWR : O_RDONLY) | O_DIRECT);
	cached = open(device, *what == 'w' ? O_RDWR : O_RDONLY);
	before = calloc(LONGEST / map->unit, sizeof(*before));
	if (direct < 0 || cached < 0 || !before || posix_memalign((void **)&buffer, ALIGN, LONGEST + ALIGN))
		die("cannot start", 0);
	if (!strcmp(what, "write")) {
		write_until_done();
	} else if (!strcmp(what, "check")) {
		check();
	} else {
		while (!is_over()) {
			uint64_t sector;
			unsigned int count = place(&sector);

			read_and_compare(direct, sector, count, false);
		}
	}
	return 0;
}
