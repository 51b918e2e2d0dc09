#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"

namespace heddle::remote {

/// A folder for a test, removed afterwards.
struct TestFolder {
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-remote-XXXXXX").string();
    HEDDLE_CHECK(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TestFolder() { std::filesystem::remove_all(path); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream in(path / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path path{};
};

}  // namespace heddle::remote
