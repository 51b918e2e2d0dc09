// The tests' own program: gtest, and a worker when it is started as one.

#include <cstring>

#include <gtest/gtest.h>

#include "base/log.h"
#include "worker/worker.h"

int main(int count, char** arguments) {
  if (count == 4 && std::strcmp(arguments[1], "worker") == 0) {
    heddle::worker::run(std::atoi(arguments[3]));
  }
  testing::InitGoogleTest(&count, arguments);
  heddle::log::configure({.level = heddle::log::Level::kError});
  return RUN_ALL_TESTS();
}
