#include "engine/image_gate.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ops/wait.h"

namespace heddle::engine {
namespace {

TEST(ImageGate, NeverGoesBack) {
  ImageGate gate;
  gate.advance(100);
  gate.advance(40);
  EXPECT_EQ(gate.watermark().load(), 100U);
}

TEST(ImageGate, StaysAbandoned) {
  ImageGate gate;
  gate.abandon();
  gate.advance(100);
  EXPECT_EQ(gate.watermark().load(), ops::kAbandoned);
}

TEST(ImageGate, GoesOnAfterAPause) {
  ImageGate gate;
  gate.advance(10);
  gate.pause();
  gate.advance(40);
  EXPECT_EQ(gate.watermark().load(), ops::kAbandoned);
  EXPECT_EQ(gate.there(), 40U);
  gate.resume();
  EXPECT_EQ(gate.watermark().load(), 40U);
  gate.abandon();
  gate.pause();
  gate.resume();
  EXPECT_EQ(gate.watermark().load(), ops::kAbandoned) << "that is for good";
  EXPECT_EQ(gate.there(), 0U);
  EXPECT_TRUE(gate.abandoned());
}

TEST(ImageGate, KeepsTheLargestOfManySetters) {
  ImageGate gate;
  std::vector<std::thread> setters;
  for (std::uint64_t i = 0; i < 4; ++i) {
    setters.emplace_back([&gate, i] {
      for (std::uint64_t bytes = i; bytes <= 4000 + i; bytes += 4) {
        gate.advance(bytes);
      }
    });
  }
  for (std::thread& setter : setters) {
    setter.join();
  }
  EXPECT_EQ(gate.watermark().load(), 4003U);
}

}  // namespace
}  // namespace heddle::engine
