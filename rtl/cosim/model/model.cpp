// SPDX-License-Identifier: MIT OR Apache-2.0
//
// xtent_model.h for the model that Verilator makes of xtent_engine, whatever its parameters.

#include "xtent_model.h"

#include <cstring>
#include <memory>
#include <new>

#include "Vmodel.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

struct xtent_model {
    VerilatedContext context;
    std::unique_ptr<Vmodel> top;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif

    void eval() {
        top->eval();
        context.timeInc(1);
#if VM_TRACE
        if (trace) trace->dump(context.time());
#endif
    }
};

extern "C" {

__attribute__((visibility("default"))) uint32_t xtent_model_abi() { return XTENT_MODEL_ABI; }

__attribute__((visibility("default"))) xtent_model *xtent_model_create() {
    auto *model = new (std::nothrow) xtent_model;
    if (!model) return nullptr;
    // The one that calls.
    model->context.threads(1);
#if VM_TRACE
    model->context.traceEverOn(true);
#endif
    model->top = std::make_unique<Vmodel>(&model->context);
    return model;
}

__attribute__((visibility("default"))) void xtent_model_tick(xtent_model *model, const xtent_model_inputs *inputs,
                                                             xtent_model_outputs *outputs) {
    Vmodel &top = *model->top;
    const xtent_model_inputs &in = *inputs;
    xtent_model_outputs &out = *outputs;
    top.aclk = 0;
    top.aresetn = in.aresetn;
    top.s_axil_awaddr = in.s_axil_awaddr;
    top.s_axil_awprot = 0;
    top.s_axil_awvalid = in.s_axil_awvalid;
    top.s_axil_wdata = in.s_axil_wdata;
    top.s_axil_wstrb = in.s_axil_wstrb;
    top.s_axil_wvalid = in.s_axil_wvalid;
    top.s_axil_bready = in.s_axil_bready;
    top.s_axil_araddr = in.s_axil_araddr;
    top.s_axil_arprot = 0;
    top.s_axil_arvalid = in.s_axil_arvalid;
    top.s_axil_rready = in.s_axil_rready;
    top.m_axi_awready = in.m_axi_awready;
    top.m_axi_wready = in.m_axi_wready;
    top.m_axi_bid = in.m_axi_bid;
    top.m_axi_bresp = in.m_axi_bresp;
    top.m_axi_bvalid = in.m_axi_bvalid;
    top.m_axi_arready = in.m_axi_arready;
    top.m_axi_rid = in.m_axi_rid;
    // Of 4, 8 or 16 bytes, in whichever type Verilator has for that.
    static_assert(sizeof top.m_axi_rdata <= sizeof in.m_axi_rdata, "bus of more than 16 bytes");
    std::memcpy(&top.m_axi_rdata, in.m_axi_rdata, sizeof top.m_axi_rdata);
    top.m_axi_rresp = in.m_axi_rresp;
    top.m_axi_rlast = in.m_axi_rlast;
    top.m_axi_rvalid = in.m_axi_rvalid;
    model->eval();

    out.s_axil_awready = top.s_axil_awready;
    out.s_axil_wready = top.s_axil_wready;
    out.s_axil_bresp = top.s_axil_bresp;
    out.s_axil_bvalid = top.s_axil_bvalid;
    out.s_axil_arready = top.s_axil_arready;
    out.s_axil_rdata = top.s_axil_rdata;
    out.s_axil_rresp = top.s_axil_rresp;
    out.s_axil_rvalid = top.s_axil_rvalid;
    out.m_axi_awid = top.m_axi_awid;
    out.m_axi_awaddr = top.m_axi_awaddr;
    out.m_axi_awlen = top.m_axi_awlen;
    out.m_axi_awsize = top.m_axi_awsize;
    out.m_axi_awburst = top.m_axi_awburst;
    out.m_axi_awvalid = top.m_axi_awvalid;
    out.m_axi_wdata[0] = out.m_axi_wdata[1] = 0;
    std::memcpy(out.m_axi_wdata, &top.m_axi_wdata, sizeof top.m_axi_wdata);
    out.m_axi_wstrb = top.m_axi_wstrb;
    out.m_axi_wlast = top.m_axi_wlast;
    out.m_axi_wvalid = top.m_axi_wvalid;
    out.m_axi_bready = top.m_axi_bready;
    out.m_axi_arid = top.m_axi_arid;
    out.m_axi_araddr = top.m_axi_araddr;
    out.m_axi_arlen = top.m_axi_arlen;
    out.m_axi_arsize = top.m_axi_arsize;
    out.m_axi_arburst = top.m_axi_arburst;
    out.m_axi_arvalid = top.m_axi_arvalid;
    out.m_axi_rready = top.m_axi_rready;
    out.interrupt = top.__SYM__interrupt;

    top.aclk = 1;
    model->eval();
}

__attribute__((visibility("default"))) int xtent_model_trace(xtent_model *model, const char *path) {
#if VM_TRACE
    model->trace = std::make_unique<VerilatedVcdC>();
    model->top->trace(model->trace.get(), 99);
    model->trace->open(path);
    return 0;
#else
    (void)model;
    (void)path;
    return -1;
#endif
}

__attribute__((visibility("default"))) void xtent_model_destroy(xtent_model *model) {
    model->top->final();
#if VM_TRACE
    if (model->trace) model->trace->close();
#endif
    delete model;
}
}
