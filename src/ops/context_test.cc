#include "ops/context.h"

#include <gtest/gtest.h>

namespace heddle::ops {
namespace {

TEST(KernelsFor, RealDevicesHaveEveryKernelAndOthersHaveNone) {
  for (const device::Kind kind : {device::Kind::kCpu, device::Kind::kCuda}) {
    const KernelTable* table = kernels_for(kind);
    ASSERT_NE(table, nullptr);
    EXPECT_NE(table->add_norm, nullptr);
    EXPECT_NE(table->all_gather, nullptr);
    EXPECT_NE(table->all_reduce, nullptr);
    EXPECT_NE(table->attention, nullptr);
    EXPECT_NE(table->choose_experts, nullptr);
    EXPECT_NE(table->experts, nullptr);
    EXPECT_NE(table->share_rows, nullptr);
    EXPECT_NE(table->gated_delta, nullptr);
    EXPECT_NE(table->gather_rows, nullptr);
    EXPECT_NE(table->gelu_mul, nullptr);
    EXPECT_NE(table->linear, nullptr);
    EXPECT_NE(table->log_probs, nullptr);
    EXPECT_NE(table->penalties, nullptr);
    EXPECT_NE(table->rescale, nullptr);
    EXPECT_NE(table->rms_norm, nullptr);
    EXPECT_NE(table->rope_append, nullptr);
    EXPECT_NE(table->sample, nullptr);
    EXPECT_NE(table->sigmoid_mul, nullptr);
    EXPECT_NE(table->silu_mul, nullptr);
    EXPECT_NE(table->wait, nullptr);
  }
  EXPECT_NE(kernels_for(device::Kind::kCpu)->add_low_rank, nullptr);
  EXPECT_NE(kernels_for(device::Kind::kCuda)->add_low_rank_tiles, nullptr);
  EXPECT_EQ(kernels_for(device::Kind::kFake), nullptr);
}

}  // namespace
}  // namespace heddle::ops
