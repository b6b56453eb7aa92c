// SPDX-License-Identifier: GPL-2.0
/* dirty MEGABYTES TIMES: writes that much memory, once or twice, and reads it back each time. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

/* A page's words are all different, and differ from any other page's. */
static uint64_t word(size_t page, size_t i, int pass)
{
	uint64_t x = (page * 512 + i) * 2 + pass + 1;

	return x * 0x9e3779b97f4a7c15ull;
}

/*
 * KASAN holds freed memory back until some allocation comes that may wait. Swapping makes none,
 * so without this one (of the path) what the kernel's block layer freed eats up all memory.
 */
static void let_kasan_free(size_t page)
{
	if (page % 16 == 0)
		access("/", F_OK);
}

int main(int argc, char **argv)
{
	int passes = argc == 3 ? atoi(argv[2]) : 0;
	size_t pages = argc == 3 ? strtoul(argv[1], NULL, 10) * (1048576 / PAGE) : 0;
	uint64_t *words = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!pages || passes < 1 || passes > 2 || words == MAP_FAILED) {
		perror("dirty");
		return 2;
	}
	for (int pass = 0; pass < passes; pass++) {
		for (size_t page = 0; page < pages; page++) {
			let_kasan_free(page);
			for (size_t i = 0; i < 512; i++)
				words[page * 512 + i] = word(page, i, pass);
		}
		for (size_t page = 0; page < pages; page++) {
			let_kasan_free(page);
			for (size_t i = 0; i < 512; i++)
				if (words[page * 512 + i] != word(page, i, pass)) {
					printf("page %zu is not what was written\n", page);
					return 1;
				}
		}
	}
	return 0;
}
