#pragma once

#include <cstddef>

#include "ops/context.h"

namespace heddle::ops {

struct SendArgs {
  const std::byte* source = nullptr;  ///< Pinned memory of the host, or the device's.
  std::byte* target = nullptr;        ///< On the device. Does not overlap `source`.
  std::size_t bytes = 0;              ///< As both sides' addresses, a multiple of four.
};

/// Copies a little, as Stream::copy(), but not behind what other streams of the device copy: on a
/// GPU a kernel reads the host's memory, as copy engines know no priorities and may be at pieces of
/// weights. More than kSendByKernelMax goes as a copy all the same. bytes == 0 is a no-op.
void send(OpContext& context, const SendArgs& args);

/// [bytes]. A guess, to be measured on a GPU: a kernel takes longer than a copy engine for much.
inline constexpr std::size_t kSendByKernelMax = std::size_t{1} << 20U;

}  // namespace heddle::ops
