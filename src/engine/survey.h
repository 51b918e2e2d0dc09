#pragma once

#include <cstdint>

#include "engine/activations.h"
#include "engine/decoder.h"
#include "ops/context.h"

namespace heddle::engine {

/// Has the device find out how it does the products of a layer best (KernelTable::begin_survey), of
/// as many tokens as full passes and decode steps have, where there is a choice. Waits for it, some
/// tens of milliseconds at most; weights need not be there. Spoils `activations`.
void survey_products(ops::OpContext& context,
                     const Decoder& decoder,
                     const Activations& activations);

}  // namespace heddle::engine
