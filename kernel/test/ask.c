// SPDX-License-Identifier: GPL-2.0
/* ask NAME [COUNT]: asks the crypto API for a cipher as any user may, once or so many times; 0 is for ever. */
#include <errno.h>
#include <linux/if_alg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_alg address = { .salg_family = AF_ALG, .salg_type = "skcipher" };
	long count = argc > 2 ? atol(argv[2]) : 1, i;
	int bound = -1;

	if (argc < 2)
		return 2;
	strncpy((char *)address.salg_name, argv[1], sizeof(address.salg_name) - 1);
	for (i = 0; !count || i < count; i++) {
		int s = socket(AF_ALG, SOCK_SEQPACKET, 0);

		if (s < 0) {
			perror("no socket");
			return 77;
		}
		bound = bind(s, (struct sockaddr *)&address, sizeof(address));
		if (bound && count)
			perror(argv[1]);
		close(s);
	}
	return bound ? 1 : 0;
}
