// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The software models that the tests of the building blocks compare with.
#pragma once

#include "models/aes.h"
#include "models/field.h"
