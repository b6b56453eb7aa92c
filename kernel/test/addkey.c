// SPDX-License-Identifier: GPL-2.0
/* addkey TYPE DESCRIPTION HEX: puts a key into the session's keyring. */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEY_SPEC_USER_KEYRING -4

int main(int argc, char **argv)
{
	unsigned char key[256];
	size_t len = 0;
	unsigned int byte;

	if (argc != 4)
		return 2;
	for (const char *hex = argv[3]; len < sizeof(key) && sscanf(hex, "%2x", &byte) == 1; hex += 2)
		key[len++] = byte;
	if (syscall(SYS_add_key, argv[1], argv[2], key, len, KEY_SPEC_USER_KEYRING) < 0) {
		perror("add_key");
		return 1;
	}
	return 0;
}
