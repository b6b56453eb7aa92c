// SPDX-License-Identifier: GPL-2.0
/*
 * registers FILE: keeps values in all ZMM and mask registers while others run, looks at them now and then, and puts in
 * others, until FILE exists. Says how often it has looked, or which registers changed.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct registers {
	uint8_t zmm[32][64];
	uint64_t k[8];
};

/* For the assembler: what follows, for each n. */
#define FOR_K ".irp n, 0,1,2,3,4,5,6,7\n"
#define FOR_ZMM ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"

/* Some hundred thousand instructions that use none of them. */
static void keep(const struct registers *in, struct registers *out)
{
	unsigned long turns = 200000;

	asm volatile(FOR_K "kmovq (2048 + \\n * 8)(%[in]), %%k\\n\n.endr\n"
		     FOR_ZMM "vmovdqu64 (\\n * 64)(%[in]), %%zmm\\n\n.endr\n"
		     "1: dec %[turns]\n"
		     "jnz 1b\n"
		     FOR_ZMM "vmovdqu64 %%zmm\\n, (\\n * 64)(%[out])\n.endr\n"
		     FOR_K "kmovq %%k\\n, (2048 + \\n * 8)(%[out])\n.endr\n"
		     "vzeroupper\n"
		     : [turns] "+r"(turns)
		     : [in] "r"(in), [out] "r"(out)
		     : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
		       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

int main(int argc, char **argv)
{
	static struct registers in, out;
	const struct sched_param last = { 0 };
	uint64_t word = getpid();
	unsigned long looks = 0;
	int changed = 0;

	/* Whoever has something else to do comes first, or each request would wait for the next tick. */
	if (argc != 2 || sched_setscheduler(0, SCHED_IDLE, &last) != 0)
		return 2;
	while (!changed && access(argv[1], F_OK) != 0) {
		/* Other values each time: those of the last are as wrong as any. */
		for (size_t i = 0; i < sizeof(in); i += sizeof(word)) {
			word = word * 6364136223846793005 + 1442695040888963407;
			memcpy((uint8_t *)&in + i, &word, sizeof(word));
		}
		keep(&in, &out);
		looks++;
		for (int i = 0; i < 32; i++)
			if (memcmp(in.zmm[i], out.zmm[i], 64) != 0)
				changed = printf("zmm%d changed\n", i);
		for (int i = 0; i < 8; i++)
			if (in.k[i] != out.k[i])
				changed = printf("k%d changed\n", i);
	}
	printf("looked %lu times\n", looks);
	return changed ? 1 : 0;
}
