/* SPDX-License-Identifier: GPL-2.0 */
/* User Mode Linux does not ask which registers the host saves: all that its CPU has. */
#include <asm/cpufeature.h>
#define cpu_has_xfeatures(wanted, name) true
