/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For tests in simulated time, where only what is waited for takes time: has what the CPU
 * does take what it would on another CPU. Nothing, unless built with CONFIG_XTENT_COST_MODEL=y.
 */
#ifndef XTENT_COST_H
#define XTENT_COST_H

#include "flight.h"

#ifdef XT_COST_MODEL
/* What a bio as such takes. */
void xt_cost_bio(struct xt_flight *flight);
/* What a run takes in a row, which its clock enters; one of so many parts of that. */
void xt_cost_run(const struct xt_job *job, enum xt_row row, unsigned int parts);
#else
static inline void xt_cost_bio(struct xt_flight *flight) { }
static inline void xt_cost_run(const struct xt_job *job, enum xt_row row, unsigned int parts) { }
#endif

#endif
