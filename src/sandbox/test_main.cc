// gtest, and the process that it starts: what the program's verb `sandbox` does.

#include <cstring>

#include <gtest/gtest.h>

#include "base/self_process.h"
#include "sandbox/inside.h"

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "sandbox") == 0) {
    heddle::sandbox::run(heddle::kParentSocket);
  }
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
