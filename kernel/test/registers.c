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

#define EIGHT(one, from) one(from, 0) one(from, 1) one(from, 2) one(from, 3) one(from, 4) one(from, 5) one(from, 6) one(from, 7)
#define TWO(one, from) one(from, 8) one(from, 9)
#define LOAD(tens, n) "vmovdqu64 (" #tens #n "*64)(%[in]), %%zmm" #tens #n "\n"
#define STORE(tens, n) "vmovdqu64 %%zmm" #tens #n ", (" #tens #n "*64)(%[out])\n"
#define LOAD_K(k, n) "kmovq (2048+" #n "*8)(%[in]), %%k" #n "\n"
#define STORE_K(k, n) "kmovq %%k" #n ", (2048+" #n "*8)(%[out])\n"
/* 0 to 31. */
#define ALL(one) EIGHT(one, ) TWO(one, ) EIGHT(one, 1) TWO(one, 1) EIGHT(one, 2) TWO(one, 2) one(3, 0) one(3, 1)

/* Some hundred thousand instructions that use none of them. */
static void keep(const struct registers *in, struct registers *out)
{
	unsigned long turns = 200000;

	asm volatile(EIGHT(LOAD_K, ) ALL(LOAD)
		     "1: dec %[turns]\n"
		     "jnz 1b\n"
		     ALL(STORE) EIGHT(STORE_K, ) "vzeroupper\n"
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
