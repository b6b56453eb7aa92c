"""What the papers say, and their boards.

"Journal": Demir et al., Improving dm-crypt performance for XTS-AES mode through extended requests, journal version.
"""

# Sectors of the 50 MB that tables 1 and 2 are about.
SECTORS = 50 * 2**20 // 512
# Seconds for 512 and 4096 bytes a request.
TABLES = {
    "encryption": {
        "total": (9.09, 5.23),
        "tweak": (2.62, 1.70),
        "XOR 1": (0.31, 0.31),
        "XOR 2": (0.63, 0.41),
        "DMA and engine": (5.31, 2.75),
        "other": (0.20, 0.03),
    },
    "decryption": {
        "total": (9.30, 5.13),
        "tweak": (3.05, 1.46),
        "XOR 1": (0.29, 0.27),
        "XOR 2": (0.55, 0.40),
        "DMA and engine": (5.22, 2.81),
        "other": (0.17, 0.17),
    },
}
# ECB on SAMA5D2, 4096 over 512 bytes a request.
FIGURE_6 = 2.07
# The CPU's clock on SAMA5D3 Xplained, as the paper has it, and on SAMA5D2 Xplained.
D3_MHZ = 536
D2_MHZ = 498
# By table 1, DMA and engine: 23.3 us for 512 bytes in long requests. An engine at the end of a bus of 32 bits takes 128 cycles for
# them, so that 6 MHz come closest. Memory, which on the boards takes some 100 ns, answers such an engine in the next cycle. What a
# request costs beside is not fitted.
ENGINE_MHZ = 6
