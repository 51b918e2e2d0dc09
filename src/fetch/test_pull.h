#pragma once

// For tests only: a model in a folder, and the caches that it is fetched into.

#include <gtest/gtest.h>

#include "fetch/model_fetch.h"
#include "fetch/test_source.h"
#include "store/test_files.h"

namespace heddle::fetch {

/// Hears nothing of what there is to hear.
class NoWatch : public PullWatch {
 public:
  void waits() override {}
  void removed(const std::vector<std::string>& /*models*/) override {}
  void begins(std::span<const Job> /*files*/, std::span<const Object> /*left_out*/) override {}
  void moved(std::size_t /*file*/, std::uint64_t /*bytes*/) override {}
  void checking(std::size_t /*file*/) override {}
  void came(std::size_t /*file*/) override {}
  void retries(const std::string& /*why*/, Duration /*wait*/) override {}
};

/// Models come from source() to caches beside it.
class TestPull : public testing::Test {
 protected:
  TestPull() {
    options.places = {
        .base = root() / "base", .hub_cache = root() / "hub", .url_cache = root() / "cache/models"};
    options.environment = environment_of({});
    options.source = quick();
    options.transfer = {.connections = 2, .piece_bytes = 1000};
  }
  void write(const std::string& file, const std::string& text) const {
    store::write_text(source() / file, text);
  }
  [[nodiscard]] std::filesystem::path source() const { return root() / "src"; }
  [[nodiscard]] std::string name() const { return "file://" + source().string(); }
  [[nodiscard]] const std::filesystem::path& root() const { return directory_.path(); }

 private:
  store::TempDirectory directory_{};

 protected:
  PullOptions options{};
  NoWatch watch{};
  std::stop_source stop{};
};

}  // namespace heddle::fetch
