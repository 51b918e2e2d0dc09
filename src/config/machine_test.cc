#include <gtest/gtest.h>

#include "config/config.h"

namespace heddle::config {
namespace {

TEST(Machine, HasCoresAndMemory) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.cores.empty());
  EXPECT_GT(machine.memory, 64U << 20U);
}

}  // namespace
}  // namespace heddle::config
