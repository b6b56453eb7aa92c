// SPDX-License-Identifier: GPL-2.0
/*
 * lines SEED COUNT DEVICE: random table lines and messages, to dm-crypt and to dm-xtent. Both take a line
 * or both refuse it, show the same table, read the same bytes from the device and take the same messages.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/keyctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define PICK(a) (a)[below(ARRAY_SIZE(a))]
#define READ 16384
#define MOST 8192

static const char *const targets[] = { "crypt", "xtent" };
static uint64_t state;
static int control, failures;
static char device[32];
static union {
	struct dm_ioctl io;
	char bytes[65536];
} call;

static unsigned int below(unsigned int n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (state >> 33) % n;
}

/* An ioctl of the device mapper to the mapping that has its target's name. */
static void begin(const char *name, unsigned int flags)
{
	memset(&call, 0, sizeof(call));
	call.io.version[0] = 4;
	call.io.data_size = sizeof(call);
	call.io.data_start = sizeof(call.io);
	call.io.flags = flags;
	strcpy(call.io.name, name);
}

static int finish(unsigned long request)
{
	return ioctl(control, request, &call) ? -errno : 0;
}

static int simple(const char *name, unsigned long request, unsigned int flags)
{
	begin(name, flags);
	return finish(request);
}

static void make(const char *name)
{
	int r = simple(name, DM_DEV_CREATE, 0);

	unlink(name);
	if (r || mknod(name, S_IFBLK | 0600, call.io.dev)) {
		printf("no mapping %s: %d\n", name, r);
		exit(1);
	}
}

static int load(const char *name, uint64_t length, const char *line)
{
	struct dm_target_spec *spec = (void *)(call.bytes + sizeof(call.io));

	begin(name, 0);
	call.io.target_count = 1;
	spec->length = length;
	strcpy(spec->target_type, name);
	strcpy((char *)(spec + 1), line);
	return finish(DM_TABLE_LOAD);
}

static int tell(const char *name, const char *message)
{
	struct dm_target_msg *msg = (void *)(call.bytes + sizeof(call.io));

	begin(name, 0);
	strcpy(msg->message, message);
	return finish(DM_TARGET_MSG);
}

/* The table, with its key as "-" unless that is a place in the keyring: dm-xtent shows no other. */
static void show(const char *name, unsigned int flags, char *table)
{
	char *key, *end;

	begin(name, DM_STATUS_TABLE_FLAG | flags);
	*table = '\0';
	if (!finish(DM_TABLE_STATUS) && call.io.target_count)
		strcpy(table, call.bytes + call.io.data_start + sizeof(struct dm_target_spec));
	key = strchr(table, ' ');
	end = key ? strchr(key + 1, ' ') : NULL;
	if (end && key[1] != ':') {
		key[1] = '-';
		memmove(key + 2, end, strlen(end) + 1);
	}
}

static int read_from(const char *name, char *data)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	r = read(fd, data, READ);
	r = r < 0 ? -errno : r;
	close(fd);
	return r;
}

static void add_key(const char *type, const char *description, unsigned int size, long operation)
{
	unsigned char bytes[64];
	long id;

	memset(bytes, size, sizeof(bytes));
	bytes[0] = 1;
	id = syscall(SYS_add_key, type, description, bytes, size, KEY_SPEC_SESSION_KEYRING);
	if (id < 0 || (operation && syscall(SYS_keyctl, operation, id, 1))) {
		perror(description);
		exit(1);
	}
	/* Until its second has passed. */
	while (operation == KEYCTL_SET_TIMEOUT && syscall(SYS_keyctl, KEYCTL_READ, id, bytes, size) >= 0)
		usleep(1000);
}

static void hex_key(char *out, unsigned int bytes)
{
	while (bytes--)
		out += sprintf(out, "%02x", below(256));
	*out = '\0';
}

static void random_key(char *out, unsigned int right)
{
	static const char *const keyring[] = {
		":64:logon:l:64", ":64:user:l:64", ":32:logon:l:32", ":64:logon:l:32", ":32:user:l:64",
		":64:logon:l:revoked", ":64:user:l:expired", ":64:logon:l:absent", ":64:logon:",
		":64:logon", ":64:", ":64", ":", "::", ":0:logon:l:64", ":-1:logon:l:64",
		":64:magic:l:64", ":64:logonx:l:64", ":64x:logon:l:64", ":64:logon:l:64\\ ",
		/* With some digits more Linux 6.1 warns of the memory that dm-crypt asks for. */
		":999999:logon:l:64", ":64:keyring:l:64", "-", "--", "x", "0x00",
	};
	static const unsigned int sizes[] = { 0, 1, 16, 24, 31, 32, 33, 48, 64, 65, 96, 512 };

	switch (below(8)) {
	case 0 ... 1:
		strcpy(out, PICK(keyring));
		break;
	case 2:
		hex_key(out, PICK(sizes));
		break;
	default:
		hex_key(out, right);
	}
	if (*out && !below(30))
		out[below(strlen(out))] = "gZ:\x80"[below(4)];
}

/* What is refused by both, or by none. */
static void random_line(char *out, uint64_t *length, unsigned int *size)
{
	static const struct {
		const char *name;
		unsigned int key;
	} good[] = {
		{ "aes-xts-plain64", 64 }, { "aes-xts-plain", 64 }, { "aes-xts-plain64be", 64 },
		{ "aes-xts-null", 64 }, { "aes-xts-plain64", 32 }, { "aes-xts-essiv:sha256", 64 },
		{ "aes-cbc-essiv:sha256", 32 }, { "aes-cbc-plain64", 16 }, { "aes-ecb-null", 32 },
		{ "capi:xts(aes)-plain64", 64 }, { "capi:cbc(aes)-essiv:sha256", 32 },
		{ "capi:adiantum(xchacha12,aes)-plain64", 32 }, { "cipher_null-ecb-null", 16 },
	};
	static const char *const bad[] = {
		"", "-", "--", "a-", "-a", "aes--plain64", "aes-xts", "aes-xts-", "-xts-plain64",
		"aes-xts-magic", "aes-cbc-essiv", "aes-cbc-essiv:", "aes-cbc-essiv:none", "capi:", "capi:-",
		"capi:xts(aes-plain64", "capi:xts(aes))-plain64", "capi:(aes)-plain64", "capi:aes-plain64",
		"capi:gcm(aes)-plain64", "capi:sha256-plain64", "aes-xts-plain64-x", "AES-XTS-PLAIN64",
	};
	static const char *const numbers[] = {
		"1", "2", "7", "8", "16", "2048", "4096", "08", "4294967295", "4294967296",
		"9223372036854775807", "18446744073709551608", "18446744073709551615", "-1", "-8", "0x8", "8x",
		"8.", "a", "1\\ ",
	};
	static const char *const options[] = {
		"allow_discards", "ALLOW_DISCARDS", "same_cpu_crypt", "submit_from_crypt_cpus",
		"no_read_workqueue", "no_write_workqueue", "iv_large_sectors", "sector_size:512",
		"sector_size:1024", "sector_size:2048", "sector_size:4096", "sector_size:4096",
	};
	static const char *const wrong[] = {
		"sector_size:0", "sector_size:513", "sector_size:8192", "sector_size:-512", "sector_size:",
		"sector_size", "sector_size:512x", "sector_size:0x200", "magic", "allow_discard",
		"iv_large_sectors:1",
	};
	static const uint64_t lengths[] = { 0, 1, 2, 7, 8, 9, 2047, 8192, 8193, 1ULL << 32, 1ULL << 63, ~0ULL };
	unsigned int count = below(2) ? below(5) : 0, its = below(ARRAY_SIZE(good)), i;
	char key[2048], text[512] = "";

	*size = good[its].key;
	random_key(key, *size);
	for (i = 0; i < count; i++)
		sprintf(text + strlen(text), " %s", below(15) ? PICK(options) : PICK(wrong));
	sprintf(out, "%s %s %s %s %s", below(15) ? good[its].name : PICK(bad), key,
		below(3) ? "0" : PICK(numbers), below(50) ? device : PICK(numbers),
		below(3) ? "0" : PICK(numbers));
	if (count)
		sprintf(out + strlen(out), " %u%s", count + (below(30) ? 0 : below(14)), text);
	if (!below(25))
		out[below(strlen(out))] = '\0';
	*length = below(4) ? 2048 : PICK(lengths);
}

static void differs(const char *what, const char *line, const char *crypt, const char *xtent)
{
	printf("DIFFERS, %s: crypt %s, xtent %s: %s\n", what, crypt, xtent, line);
	failures++;
}

static int agree(const char *what, const char *line, const int result[2])
{
	char text[2][16];

	/* How a message or a line is refused is each one's own. */
	if (!result[0] == !result[1] && (result[0] <= 0 || result[0] == result[1]))
		return !result[0];
	sprintf(text[0], "%d", result[0]);
	sprintf(text[1], "%d", result[1]);
	differs(what, line, text[0], text[1]);
	return 0;
}

static int both(const char *what, const char *line, unsigned long request, unsigned int flags)
{
	int result[2] = { simple(targets[0], request, flags), simple(targets[1], request, flags) };

	return agree(what, line, result);
}

static void compare_tables(const char *line, unsigned int flags)
{
	static char table[2][sizeof(call)];

	show(targets[0], flags, table[0]);
	show(targets[1], flags, table[1]);
	if (strcmp(table[0], table[1]))
		differs("its table", line, table[0], table[1]);
}

static void compare_data(const char *line)
{
	static char data[2][READ];
	int result[2] = { read_from(targets[0], data[0]), read_from(targets[1], data[1]) };

	agree("a read", line, result);
	if (result[0] > 0 && memcmp(data[0], data[1], result[0]))
		differs("the data", line, "one", "another");
}

static void random_messages(const char *line, unsigned int size)
{
	static const char *const others[] = {
		"key wipe", "KEY WIPE", "key set", "key", "key wipe x", "keys wipe", "", " ", "wipe",
		"key reset", "key  wipe", "key\\ wipe",
	};
	unsigned int count = below(4);
	char message[MOST] = "key set ";
	int result[2];

	while (count--) {
		if (below(2))
			random_key(message + 8, size);
		else
			hex_key(message + 8, size);
		if (!below(3))
			strcpy(message, PICK(others));
		result[0] = tell(targets[0], message);
		result[1] = tell(targets[1], message);
		agree(message, line, result);
		/* Then dm-crypt has no key any more, and dm-xtent that of before. */
		if (result[0] && !strncmp(message, "key set ", 8)) {
			tell(targets[0], "key wipe");
			tell(targets[1], "key wipe");
		}
		strcpy(message, "key set ");
	}
}

/* One line, from its load on: whether it was taken. */
static int try(void)
{
	uint64_t length;
	char line[MOST];
	unsigned int size, is_suspended = below(4);
	int result[2], i;

	for (i = 0; i < 2; i++)
		make(targets[i]);
	random_line(line, &length, &size);
	for (i = 0; i < 2; i++)
		result[i] = load(targets[i], length, line);
	if (!agree("the line", line, result))
		return 0;
	compare_tables(line, DM_QUERY_INACTIVE_TABLE_FLAG);
	if (!both("its start", line, DM_DEV_SUSPEND, 0))
		return 0;
	compare_data(line);
	if (is_suspended && !both("a suspension", line, DM_DEV_SUSPEND, DM_SUSPEND_FLAG))
		return 1;
	random_messages(line, size);
	compare_tables(line, 0);
	if (!is_suspended || both("a resume", line, DM_DEV_SUSPEND, 0))
		compare_data(line);
	return 1;
}

int main(int argc, char **argv)
{
	struct stat st;
	int count, reached[2] = {};

	control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	if (argc != 4 || control < 0 || stat(argv[3], &st)) {
		perror("lines SEED COUNT DEVICE");
		return 2;
	}
	state = strtoull(argv[1], NULL, 10);
	sprintf(device, "%u:%u", major(st.st_rdev), minor(st.st_rdev));
	syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
	add_key("logon", "l:64", 64, 0);
	add_key("logon", "l:32", 32, 0);
	add_key("user", "l:64", 64, 0);
	add_key("logon", "l:revoked", 64, KEYCTL_REVOKE);
	add_key("user", "l:expired", 64, KEYCTL_SET_TIMEOUT);
	for (count = atoi(argv[2]); count > 0; count--) {
		reached[try()]++;
		simple(targets[0], DM_DEV_REMOVE, 0);
		simple(targets[1], DM_DEV_REMOVE, 0);
	}
	printf("%d lines refused, %d taken, %d differences\n", reached[0], reached[1], failures);
	return failures || !reached[0] || !reached[1];
}
