#include "store/digest.h"

#include <chrono>

#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::store {
namespace {

namespace fs = std::filesystem;

/// Eight bytes of length, a header, and weights.
std::string weights(char length, std::string_view header, std::string_view data) {
  std::string file(8, '\0');
  file[0] = length;
  return file.append(header).append(data);
}

void write_model(const fs::path& directory, std::string_view data = "1234") {
  write_text(directory / "config.json", "{}");
  write_text(directory / "model.safetensors", weights(2, "{}", data));
}

TEST(Digest, CopiesOfAModelHaveTheSame) {
  const TempDirectory one;
  const TempDirectory other;
  write_model(one.path());
  write_model(other.path());
  fs::last_write_time(other.path() / "config.json",
                      fs::file_time_type::clock::now() - std::chrono::hours(5));
  write_text(other.path() / "notes.md", "not of the model");
  const Result<std::string> digest_of_one = digest(one.path());
  ASSERT_TRUE(digest_of_one);
  EXPECT_EQ(digest_of_one->size(), 64U);
  EXPECT_EQ(*digest_of_one, *digest(other.path()));
}

TEST(Digest, WhatTextsSizesAndHeadersSayTellsModelsApart) {
  const TempDirectory folder;
  write_model(folder.path());
  const std::string first = *digest(folder.path());
  write_model(folder.path(), "5678");
  EXPECT_EQ(*digest(folder.path()), first) << "weights are not read";
  write_model(folder.path(), "12345678");
  const std::string longer = *digest(folder.path());
  EXPECT_NE(longer, first);
  write_text(folder.path() / "chat_template.jinja", "{{ messages }}");
  EXPECT_NE(*digest(folder.path()), longer);
}

TEST(Digest, SaysWhatCannotBeRead) {
  const TempDirectory folder;
  EXPECT_EQ(digest(folder.path() / "gone").error().code, Code::kNotFound);
  write_text(folder.path() / "model.safetensors", weights(9, "{}", ""));
  EXPECT_EQ(digest(folder.path()).error().code, Code::kCorrupt) << "the header ends too early";
}

}  // namespace
}  // namespace heddle::store
