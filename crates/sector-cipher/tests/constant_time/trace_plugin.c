/*
 * A plug-in for QEMU, emulating 64-bit ARM: a digest of what a program runs and
 * touches between two marks, which are hints that every CPU takes for no-ops.
 * Each instruction's address counts, each access's address, size and direction,
 * and the operands of a division, whose time depends on them. At the second
 * mark the program gets the digest in x0, and how much went into it in x1.
 *
 * Debian has no package with QEMU's header. What is needed of it is declared
 * here, as it is in version 7 of the interface, that of QEMU 11; a QEMU that
 * does not have this version refuses the plug-in.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_register;
typedef struct {
    struct qemu_plugin_register *handle;
    const char *name;
    const char *feature;
    bool is_readonly;
} qemu_plugin_reg_descriptor;
enum { NO_REGISTERS, READS_REGISTERS, WRITES_REGISTERS };
enum { READS_AND_WRITES = 3 };

void qemu_plugin_register_vcpu_init_cb(uint64_t id, void (*cb)(unsigned vcpu, void *), void *);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*cb)(struct qemu_plugin_tb *, void *),
                                           void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *to, size_t len);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
                                            void (*cb)(unsigned vcpu, void *), int registers,
                                            void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                      void (*cb)(unsigned vcpu, uint32_t access,
                                                 uint64_t address, void *),
                                      int registers, int directions, void *);
unsigned qemu_plugin_mem_size_shift(uint32_t access);
bool qemu_plugin_mem_is_store(uint32_t access);

/* GLib's, which QEMU has loaded. */
typedef struct {
    unsigned char *data;
    unsigned len;
} array;
array *g_byte_array_new(void);
array *g_byte_array_set_size(array *, unsigned);
array *g_byte_array_append(array *, const void *, unsigned);
array *qemu_plugin_get_registers(void);
bool qemu_plugin_read_register(struct qemu_plugin_register *, array *to);
bool qemu_plugin_write_register(struct qemu_plugin_register *, array *from);

__attribute__((visibility("default"))) int qemu_plugin_version = 7;

/* hint #96 and hint #97 */
enum { BEGIN = 0xd5032c1fU, END = 0xd5032c3fU };

static bool tracing;
static uint64_t count, digest;
/* The last instruction, and what there was before it. */
static struct {
    void *address;
    uint64_t count, digest;
} last;
static struct qemu_plugin_register *x[31];
static array *value;

static void mix(uint64_t what)
{
    digest = ((digest << 23 | digest >> 41) ^ what) * 0x9e3779b97f4a7c15;
}

static void begin(unsigned vcpu, void *unused)
{
    (void)vcpu;
    (void)unused;
    tracing = true;
    count = digest = 0;
    last.address = NULL;
}

static void give(unsigned number, uint64_t bits)
{
    g_byte_array_set_size(value, 0);
    g_byte_array_append(value, &bits, sizeof(bits));
    if (!qemu_plugin_write_register(x[number], value))
        abort();
}

static void end(unsigned vcpu, void *unused)
{
    (void)vcpu;
    (void)unused;
    tracing = false;
    give(0, digest);
    give(1, count);
}

static void instruction(unsigned vcpu, void *address)
{
    (void)vcpu;
    if (!tracing)
        return;
    /* Nothing branches to itself: a page was missing, and it starts again. */
    if (address == last.address) {
        count = last.count;
        digest = last.digest;
    }
    last.address = address;
    last.count = count;
    last.digest = digest;
    count++;
    mix((uintptr_t)address);
}

static void access(unsigned vcpu, uint32_t info, uint64_t address, void *unused)
{
    (void)vcpu;
    (void)unused;
    if (!tracing)
        return;
    count++;
    mix(address);
    mix(qemu_plugin_mem_size_shift(info) << 1 | qemu_plugin_mem_is_store(info));
}

static void operand(unsigned number)
{
    uint64_t bits;

    if (number == 31) /* the one that is zero */
        return;
    g_byte_array_set_size(value, 0);
    if (!qemu_plugin_read_register(x[number], value) || value->len != sizeof(bits))
        abort();
    memcpy(&bits, value->data, sizeof(bits));
    mix(bits);
}

static void division(unsigned vcpu, void *code)
{
    (void)vcpu;
    if (!tracing)
        return;
    operand((uintptr_t)code >> 5 & 31);
    operand((uintptr_t)code >> 16 & 31);
}

/* QEMU does not report this as an access. */
static void zeroing(unsigned vcpu, void *code)
{
    (void)vcpu;
    if (tracing)
        operand((uintptr_t)code & 31);
}

/* Nor that a cache line is asked for, at a register and a number. */
static void prefetch(unsigned vcpu, void *code)
{
    (void)vcpu;
    if (!tracing)
        return;
    operand((uintptr_t)code >> 5 & 31);
    mix((uintptr_t)code >> 10 & 0xfff);
}

static void translated(struct qemu_plugin_tb *block, void *unused)
{
    size_t i, len = qemu_plugin_tb_n_insns(block);

    (void)unused;
    for (i = 0; i < len; i++) {
        struct qemu_plugin_insn *at = qemu_plugin_tb_get_insn(block, i);
        void *address = (void *)(uintptr_t)qemu_plugin_insn_vaddr(at);
        uint32_t code;

        /* The kernel's interrupts come when they will. It has the upper half. */
        if ((uintptr_t)address >> 63)
            continue;
        if (qemu_plugin_insn_data(at, &code, sizeof(code)) != sizeof(code))
            abort();
        if (code == END)
            qemu_plugin_register_vcpu_insn_exec_cb(at, end, WRITES_REGISTERS, NULL);
        qemu_plugin_register_vcpu_insn_exec_cb(at, instruction, NO_REGISTERS, address);
        qemu_plugin_register_vcpu_mem_cb(at, access, NO_REGISTERS, READS_AND_WRITES, NULL);
        if ((code & 0x7fe0f800) == 0x1ac00800) /* udiv, sdiv */
            qemu_plugin_register_vcpu_insn_exec_cb(at, division, READS_REGISTERS,
                                                   (void *)(uintptr_t)code);
        if ((code & 0xffffffe0) == 0xd50b7420) /* dc zva */
            qemu_plugin_register_vcpu_insn_exec_cb(at, zeroing, READS_REGISTERS,
                                                   (void *)(uintptr_t)code);
        if ((code & 0xffc00000) == 0xf9800000) /* prfm */
            qemu_plugin_register_vcpu_insn_exec_cb(at, prefetch, READS_REGISTERS,
                                                   (void *)(uintptr_t)code);
        if (code == BEGIN)
            qemu_plugin_register_vcpu_insn_exec_cb(at, begin, NO_REGISTERS, NULL);
    }
}

/* Registers are known once there is a CPU, and are the same for all. */
static void find_registers(unsigned vcpu, void *unused)
{
    array *found = qemu_plugin_get_registers();
    const qemu_plugin_reg_descriptor *registers = (const void *)found->data;
    unsigned i, number, numbers = 0;

    (void)vcpu;
    (void)unused;
    /* A handle may be null. */
    for (i = 0; i < found->len; i++) {
        if (sscanf(registers[i].name, "x%u", &number) == 1 && number < 31) {
            x[number] = registers[i].handle;
            numbers++;
        }
    }
    if (numbers != 31)
        abort();
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info,
                                                               int argc, char **argv)
{
    (void)info;
    (void)argc;
    (void)argv;
    value = g_byte_array_new();
    qemu_plugin_register_vcpu_init_cb(id, find_registers, NULL);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
    return 0;
}
