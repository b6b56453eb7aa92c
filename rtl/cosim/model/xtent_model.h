/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The co-processor's Verilator model as a shared library: cycle by cycle, by its pins.
 * Little-endian machines only. `src/model.rs` has the same in Rust.
 */
#ifndef XTENT_MODEL_H
#define XTENT_MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of these structures and functions; whoever opens a library compares it. */
#define XTENT_MODEL_ABI 1

/* What goes into the model, all through a cycle. */
struct xtent_model_inputs {
    uint64_t m_axi_rdata[2]; /* of a narrower bus: the low bytes */
    uint32_t s_axil_wdata;
    uint16_t s_axil_awaddr, s_axil_araddr;
    uint8_t aresetn;
    uint8_t s_axil_awvalid, s_axil_wstrb, s_axil_wvalid, s_axil_bready, s_axil_arvalid, s_axil_rready;
    uint8_t m_axi_awready, m_axi_wready, m_axi_bid, m_axi_bresp, m_axi_bvalid;
    uint8_t m_axi_arready, m_axi_rid, m_axi_rresp, m_axi_rlast, m_axi_rvalid;
};

/* What comes out of it in that cycle, settled, just before the clock's edge that ends it. */
struct xtent_model_outputs {
    uint64_t m_axi_wdata[2];
    uint64_t m_axi_awaddr, m_axi_araddr;
    uint32_t s_axil_rdata;
    uint16_t m_axi_wstrb;
    uint16_t interrupt;
    uint8_t s_axil_awready, s_axil_wready, s_axil_bresp, s_axil_bvalid;
    uint8_t s_axil_arready, s_axil_rresp, s_axil_rvalid;
    uint8_t m_axi_awid, m_axi_awlen, m_axi_awsize, m_axi_awburst, m_axi_awvalid;
    uint8_t m_axi_wlast, m_axi_wvalid, m_axi_bready;
    uint8_t m_axi_arid, m_axi_arlen, m_axi_arsize, m_axi_arburst, m_axi_arvalid, m_axi_rready;
};

struct xtent_model;

/* XTENT_MODEL_ABI, as it was when the library was built. */
uint32_t xtent_model_abi(void);
/* A model before its first cycle, or NULL. It has seen no reset. */
struct xtent_model *xtent_model_create(void);
/* One cycle. */
void xtent_model_tick(struct xtent_model *model, const struct xtent_model_inputs *inputs,
                      struct xtent_model_outputs *outputs);
/* Writes all signals from now on to a VCD file. 0; or -1 if the model was built without that. */
int xtent_model_trace(struct xtent_model *model, const char *path);
/* Ends the model and its trace. */
void xtent_model_destroy(struct xtent_model *model);

#ifdef __cplusplus
}
#endif

#endif
