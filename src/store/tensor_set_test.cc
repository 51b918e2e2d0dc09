#include "store/tensor_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::HasSubstr;

const TestTensor kA{StoredType::kF32, {1}, "aaaa"};
const TestTensor kB{StoredType::kF32, {1}, "bbbb"};

std::string content(const TensorSet& set, const std::string& name) {
  const TensorSet::Entry* entry = set.find(name);
  std::string data(entry->tensor.bytes, '?');
  EXPECT_TRUE(
      set.file_of(*entry).read(entry->tensor.offset, std::as_writable_bytes(std::span(data))));
  return data;
}

TEST(TensorSet, ReadsOneFile) {
  const TempDirectory directory;
  write_safetensors(directory.path() / "model.safetensors", {{"a", kA}, {"b", kB}});
  const TensorSet set = TensorSet::open(directory.path()).value();
  EXPECT_EQ(set.entries().size(), 2U);
  EXPECT_EQ(content(set, "a"), "aaaa");
  EXPECT_EQ(content(set, "b"), "bbbb");
  EXPECT_EQ(set.find("c"), nullptr);
}

TEST(TensorSet, ReadsShardsAsTheIndexSays) {
  const TempDirectory directory;
  // "b" is in both; the index decides. "x" is in no index, so it is nobody's.
  write_safetensors(directory.path() / "m-1.safetensors", {{"a", kA}, {"b", kA}, {"x", kA}});
  write_safetensors(directory.path() / "m-2.safetensors", {{"b", kB}});
  write_text(directory.path() / "model.safetensors.index.json",
             R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  const TensorSet set = TensorSet::open(directory.path()).value();
  EXPECT_EQ(set.files().size(), 2U);
  EXPECT_EQ(set.entries().size(), 2U);
  EXPECT_EQ(content(set, "a"), "aaaa");
  EXPECT_EQ(content(set, "b"), "bbbb");
}

TEST(TensorSet, SaysWhatAShardLacks) {
  const TempDirectory directory;
  write_safetensors(directory.path() / "m-1.safetensors", {{"a", kA}});
  const auto index = directory.path() / "model.safetensors.index.json";
  write_text(index, R"({"weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors"}})");
  EXPECT_THAT(TensorSet::open(directory.path()).error().message,
              HasSubstr("weight_map says that tensor \"b\" is in m-1.safetensors, which does not "
                        "have it"));
  write_text(index, R"({"weight_map": {"a": "m-9.safetensors"}})");
  const auto missing = TensorSet::open(directory.path());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("index.json names a shard: cannot open"));
}

TEST(TensorSet, SaysWhatTheDirectoryHasInstead) {
  const TempDirectory directory;
  const auto error = [&] { return TensorSet::open(directory.path()).error().message; };
  EXPECT_THAT(error(), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
  write_text(directory.path() / "pytorch_model.bin", "x");
  EXPECT_THAT(error(), HasSubstr("pytorch_model.bin must be converted to safetensors first"));
  std::filesystem::remove(directory.path() / "pytorch_model.bin");
  write_text(directory.path() / "m.Q4_K_M.gguf", "x");
  EXPECT_THAT(error(), HasSubstr("give the path of m.Q4_K_M.gguf itself"));
  std::filesystem::remove(directory.path() / "m.Q4_K_M.gguf");
  write_text(directory.path() / "weights.safetensors", "x");
  EXPECT_THAT(error(), HasSubstr("weights.safetensors is neither named model.safetensors nor"));
}

}  // namespace
}  // namespace heddle::store
