/*
 * uml-exec PROGRAM ARGUMENTS...: starts User Mode Linux on a CPU whose registers
 * do not fit into it. It keeps 2696 bytes for the registers of a guest's process
 * and then fails to set them ("ptrace set fp regs failed") where the CPU has AMX.
 * There, this makes it believe that ptrace() knows the registers of SSE only. Then
 * wider ones are lost whenever the guest's process traps, so the guest's libraries
 * are told not to use them. The kernel itself, and so its modules, may.
 */
#include <cpuid.h>
#include <linux/elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <errno.h>
#include <unistd.h>

#define UML_BYTES 2696

static int too_wide(void)
{
	unsigned int a, bytes, c, d;

	return __get_cpuid_count(0xd, 0, &a, &bytes, &c, &d) && bytes > UML_BYTES;
}

static int hide_xstate(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PTRACE_GETREGSET, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NT_X86_XSTATE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(*code), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: uml-exec PROGRAM ARGUMENTS...\n");
		return 2;
	}
	if (too_wide()) {
		/* What the kernel does not know becomes its first process's environment. */
		static char *const environment[] = {
			"GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX_Fast_Unaligned_Load,"
			"-AVX512F,-AVX512VL,-AVX512BW",
			"OPENSSL_ia32cap=~0x1000000000000000:0",
		};
		char **longer = calloc(argc + 3, sizeof(*longer));

		if (!longer || hide_xstate()) {
			perror("uml-exec");
			return 125;
		}
		memcpy(longer, argv, argc * sizeof(*argv));
		memcpy(longer + argc, environment, sizeof(environment));
		argv = longer;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 125;
}
