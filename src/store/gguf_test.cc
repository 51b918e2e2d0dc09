// GGUF files against the model directories that they were made of.

#include <bit>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"
#include "gguf/tensor_names.h"
#include "spec/block_panels.h"
#include "spec/shard.h"
#include "store/checkpoint.h"
#include "store/convert.h"
#include "store/digest.h"
#include "store/image_layout.h"
#include "store/image_loader.h"
#include "store/inspect.h"
#include "store/inspect_render.h"
#include "store/quantise.h"
#include "store/test_files.h"
#include "store/test_gguf_model.h"
#include "store/test_image.h"

namespace heddle::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class GgufGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] Checkpoint directory() const {
    return Checkpoint::open(places::source(std::string("tests/golden/") + GetParam())).value();
  }
  [[nodiscard]] std::filesystem::path written(const Checkpoint& checkpoint) const {
    write_text(path_.path() / "m.gguf",
               as_gguf(checkpoint.config.model, checkpoint.tensors).bytes());
    return path_.path() / "m.gguf";
  }
  TempDirectory path_{};
};

TEST_P(GgufGoldenTest, IsTheSameModelAsItsDirectory) {
  const Checkpoint wanted = directory();
  const Checkpoint found = Checkpoint::open(written(wanted)).value();
  EXPECT_THAT(found.unused, ElementsAre());
  const spec::ModelSpec& a = wanted.config.model;
  const spec::ModelSpec& b = found.config.model;
  EXPECT_EQ(b.architecture, a.architecture);
  EXPECT_EQ(b.head_dim, a.head_dim);
  EXPECT_EQ(b.tied_embeddings, a.tied_embeddings);
  EXPECT_EQ(b.qkv_bias, a.qkv_bias);
  EXPECT_EQ(b.mlp_bias, a.mlp_bias);
  EXPECT_EQ(b.rope.kind, a.rope.kind);
  EXPECT_EQ(b.experts, a.experts);
  EXPECT_EQ(b.intermediate, a.intermediate);
  EXPECT_EQ(b.window, a.window);
  EXPECT_EQ(b.scales, a.scales);
  EXPECT_EQ(b.layer_rope, a.layer_rope);
  EXPECT_EQ(b.activation, a.activation);
  EXPECT_EQ(b.norms, a.norms);
  EXPECT_EQ(b.rms_eps, a.rms_eps);
  EXPECT_EQ(b.rope_theta, a.rope_theta);
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kBf16, spec::DType::kI8}) {
    const ImageLayout layout = plan_image(a, dtype);
    EXPECT_EQ(image_of(found.tensors, layout), image_of(wanted.tensors, layout))
        << spec::dtype_name(dtype);
  }
}

class GgufShardTest : public GgufGoldenTest {};

TEST_P(GgufShardTest, HasTheSameShards) {
  const Checkpoint wanted = directory();
  const Checkpoint found = Checkpoint::open(written(wanted)).value();
  const spec::ModelSpec& model = wanted.config.model;
  for (const std::int64_t rank : {0, 1}) {
    const ImageLayout layout =
        plan_image(spec::shard_of(model, {.rank = rank, .ranks = 2}), spec::DType::kI8);
    EXPECT_EQ(image_of(found.tensors, layout), image_of(wanted.tensors, layout)) << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         GgufGoldenTest,
                         testing::Values("llama-mha-f32",
                                         "llama-gqa-sharded",
                                         "llama-mqa-tied-f16",
                                         "llama-head-dim-64",
                                         "llama-bias-eps",
                                         "llama-rope-llama3-old",
                                         "qwen2-tied",
                                         "qwen3-tied",
                                         "mixtral-experts",
                                         "qwen2-moe-shared",
                                         "qwen3-moe",
                                         "gemma2",
                                         "gemma3-old"));

INSTANTIATE_TEST_SUITE_P(Models,
                         GgufShardTest,
                         testing::Values("llama-mha-f32",
                                         "llama-bias-eps",
                                         "qwen2-tied",
                                         "mixtral-experts",
                                         "qwen2-moe-shared"));

/// A model of blocks: every matrix of random Q4_0 or Q6_K, with scales that are numbers.
class GgufBlocksTest : public testing::Test {
 protected:
  GgufBlocksTest() {
    model_.hidden = 256;
    model_.layers = 1;
    model_.heads = 4;
    model_.kv_heads = 2;
    model_.head_dim = 64;
    model_.intermediate = 512;
    model_.vocab = 20;
    model_.max_position = 64;
    model_.tied_embeddings = true;
    model_.window = {0};
  }

  /// Random blocks; `half` is where the float16 scale is.
  std::string blocks(std::uint64_t count, std::size_t bytes, std::size_t half) {
    std::string data;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::string block;
      while (block.size() < bytes) {
        block += static_cast<char>(rng_.next());
      }
      const auto scale = static_cast<std::uint16_t>(0x2000U + rng_.below(0x800));
      std::memcpy(block.data() + half, &scale, sizeof(scale));
      if (half == 0) {  // A minimum may follow.
        std::memcpy(block.data() + sizeof(scale), &scale, sizeof(scale));
      }
      data += block;
    }
    return data;
  }

  std::filesystem::path write(gguf::BlockType type = gguf::BlockType::kQ6K) {
    gguf::TestGguf file = gguf_metadata(model_);
    for (const ImageTensor& image : plan_image(model_, spec::DType::kBf16).tensors) {
      for (const ImageSource& source : image.sources) {
        gguf::TestGguf::Info info{.name = gguf::tensor_name(source.name, model_.architecture)};
        const auto rows = static_cast<std::uint64_t>(source.rows);
        const auto columns = static_cast<std::uint64_t>(image.columns);
        if (columns == 1) {
          info.sizes = {rows};
          for (std::uint64_t i = 0; i < rows; ++i) {
            info.data += gguf::raw(static_cast<float>(rng_.below(100)) / 64.0F);
          }
        } else if (source.name.find("mlp") != std::string::npos) {
          info.sizes = {columns, rows};
          info.type = static_cast<std::uint32_t>(gguf::BlockType::kQ40);
          info.data = blocks(rows * columns / 32, 18, 0);
        } else {
          const gguf::BlockShape shape = gguf::block_shape(type);
          info.sizes = {columns, rows};
          info.type = static_cast<std::uint32_t>(type);
          const bool last = type == gguf::BlockType::kQ6K || type == gguf::BlockType::kIq4Xs;
          info.data =
              blocks(rows * columns / shape.elements, shape.bytes, last ? shape.bytes - 2 : 0);
        }
        file.tensor(std::move(info));
      }
    }
    write_text(path_.path() / "m.gguf", file.bytes());
    return path_.path() / "m.gguf";
  }

  /// Rows of a source as the image is to have them, decoded without any care for speed.
  static std::vector<float> rows_of(const TensorSet& tensors, const ImageSource& source) {
    const TensorSet::Entry& entry = *tensors.find(source.name);
    std::vector<std::byte> stored(entry.tensor.bytes);
    EXPECT_TRUE(tensors.file_of(entry).read(entry.tensor.offset, stored));
    const auto columns = static_cast<std::size_t>(source.stored_columns);
    std::vector<float> all(static_cast<std::size_t>(source.stored_rows) * columns);
    gguf::decode(block_type_of(entry.tensor.type).value(), stored.data(), all.data(), all.size());
    if (entry.interleaved == 0) {
      return all;
    }
    std::vector<float> turned(all.size());
    const auto head = static_cast<std::size_t>(entry.interleaved);
    for (std::size_t row = 0; row < all.size() / columns; ++row) {
      const std::size_t within = row % head;
      const std::size_t to = row - within + within / 2 + (within % 2) * (head / 2);
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(row * columns),
                  columns,
                  turned.begin() + static_cast<std::ptrdiff_t>(to * columns));
    }
    return turned;
  }

  Rng rng_{20261127};
  spec::ModelSpec model_{};
  TempDirectory path_{};
};

TEST_F(GgufBlocksTest, AreDecodedIntoTheImage) {
  const Checkpoint checkpoint = Checkpoint::open(write()).value();
  for (const std::int64_t ranks : {1, 2}) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const spec::ModelSpec part =
          ranks == 1 ? checkpoint.config.model
                     : spec::shard_of(checkpoint.config.model, {.rank = rank, .ranks = ranks});
      const ImageLayout layout = plan_image(part, spec::DType::kF32);
      const std::string image = image_of(checkpoint.tensors, layout);
      for (const ImageTensor& tensor : layout.tensors) {
        for (const ImageSource& source : tensor.sources) {
          const std::vector<float> rows = rows_of(checkpoint.tensors, source);
          for (std::int64_t row = 0; row < source.rows; ++row) {
            for (std::int64_t column = 0; column < tensor.columns; ++column) {
              float found = 0;
              std::memcpy(
                  &found,
                  image.data() + tensor.offset +
                      static_cast<std::size_t>((source.row + row) * tensor.columns + column) *
                          sizeof(float),
                  sizeof(found));
              const auto at = static_cast<std::size_t>(
                  (source.first_row + row) * source.stored_columns + source.first_column + column);
              ASSERT_EQ(found, rows[at]) << source.name << " row " << row << " column " << column;
            }
          }
        }
      }
    }
  }
}

/// Row `row` of an image's tensor as float32.
std::vector<float> image_row(const std::string& image,
                             const ImageTensor& tensor,
                             std::int64_t row) {
  const auto* data = reinterpret_cast<const std::byte*>(image.data()) + tensor.offset;
  const std::int64_t bytes = spec::row_bytes(tensor.dtype, tensor.columns);
  std::vector<float> numbers(static_cast<std::size_t>(tensor.columns));
  if (spec::is_blocks(tensor.dtype)) {
    const std::int64_t within = row % spec::kPanelRows;
    spec::read_panel_row(
        tensor.dtype, data + (row - within) * bytes, within, tensor.columns, numbers.data());
  } else {
    const StoredType type =
        tensor.dtype == spec::DType::kF32 ? StoredType::kF32 : StoredType::kBf16;
    convert(type,
            data + row * bytes,
            spec::DType::kF32,
            reinterpret_cast<std::byte*>(numbers.data()),
            numbers.size());
  }
  return numbers;
}

/// A number as the image of that type has it.
float as_stored(float value, spec::DType dtype) {
  if (dtype == spec::DType::kBf16) {
    std::uint16_t half = 0;
    convert(StoredType::kF32,
            reinterpret_cast<const std::byte*>(&value),
            dtype,
            reinterpret_cast<std::byte*>(&half),
            1);
    return std::bit_cast<float>(std::uint32_t{half} << 16U);
  }
  return value;
}

TEST_F(GgufBlocksTest, StayBlocksInAStoredImage) {
  using enum gguf::BlockType;
  for (const gguf::BlockType type : {kQ80, kQ40, kQ41, kQ50, kQ51, kQ4K, kQ5K, kQ6K, kMxfp4}) {
    const Checkpoint checkpoint = Checkpoint::open(write(type)).value();
    const spec::ModelSpec& whole = checkpoint.config.model;
    for (const spec::Shard shard : {spec::Shard{}, {.rank = 0, .ranks = 2}, {1, 2}}) {
      const spec::ModelSpec part = spec::shard_of(whole, shard);
      const ImageLayout layout = plan_image(part, spec::DType::kStored);
      const std::string image = image_of(checkpoint.tensors, layout);
      int blocks = 0;
      for (const ImageTensor& tensor : layout.tensors) {
        blocks += spec::is_blocks(tensor.dtype) ? 1 : 0;
        EXPECT_EQ(tensor.bytes, spec::matrix_bytes(tensor.dtype, tensor.rows, tensor.columns));
        for (const ImageSource& source : tensor.sources) {
          const std::vector<float> rows = rows_of(checkpoint.tensors, source);
          for (std::int64_t row = 0; row < source.rows; ++row) {
            const std::vector<float> found = image_row(image, tensor, source.row + row);
            const std::int64_t from =
                (source.first_row + row) * source.stored_columns + source.first_column;
            for (std::size_t column = 0; column < found.size(); ++column) {
              ASSERT_EQ(found[column],
                        as_stored(rows[static_cast<std::size_t>(from) + column], tensor.dtype))
                  << source.name << " row " << row << " column " << column;
            }
          }
        }
      }
      // Half a row of the attention's output has no whole block of 256.
      const bool cut = shard.ranks == 2 && gguf::block_shape(type).elements == 256;
      EXPECT_EQ(blocks, cut ? 4 : 5) << gguf::block_shape(type).name << " of " << shard.ranks;
    }
  }
}

TEST_F(GgufBlocksTest, OfOneFusedMatrixMayBeOfSeveralTypes) {
  const Checkpoint checkpoint = Checkpoint::open(write()).value();
  spec::ModelSpec model = checkpoint.config.model;
  model.formats[spec::format_index(spec::Matrix::kV, 0)] = spec::DType::kBf16;
  const ImageLayout layout = plan_image(model, spec::DType::kStored);
  std::vector<std::pair<spec::DType, std::int64_t>> parts;
  for (const ImageTensor& tensor : layout.tensors) {
    if (tensor.role == Role::kQkv) {
      parts.emplace_back(tensor.dtype, tensor.rows);
    }
  }
  EXPECT_THAT(
      parts,
      ElementsAre(std::pair{spec::DType::kQ6K, 256 + 128}, std::pair{spec::DType::kBf16, 128}));
}

TEST_F(GgufBlocksTest, OfAnotherTypeThanTheLayoutAreRefused) {
  const Checkpoint checkpoint = Checkpoint::open(write(gguf::BlockType::kQ6K)).value();
  const ImageLayout layout = plan_image(checkpoint.config.model, spec::DType::kStored);
  const Checkpoint other = Checkpoint::open(write(gguf::BlockType::kQ4K)).value();
  std::vector<std::byte> memory(pages_for(layout.bytes, 4096) * 4096);
  std::vector<std::byte*> pages;
  for (std::size_t at = 0; at < memory.size(); at += 4096) {
    pages.push_back(memory.data() + at);
  }
  const auto loaded = load_image(other.tensors, layout, {.pages = pages, .page_bytes = 4096});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(loaded.error().message, HasSubstr("it is Q4_K [20, 256], not Q6_K any more"));
}

TEST_F(GgufBlocksTest, AreRoundedToInt8ByRow) {
  const Checkpoint checkpoint = Checkpoint::open(write()).value();
  const ImageLayout layout = plan_image(checkpoint.config.model, spec::DType::kI8);
  const std::string image = image_of(checkpoint.tensors, layout);
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    const ImageTensor& tensor = layout.tensors[i];
    if (tensor.role != Role::kQkv) {
      continue;
    }
    const std::vector<float> rows = rows_of(checkpoint.tensors, tensor.sources.front());
    std::vector<std::int8_t> wanted(256);
    const float scale = quantise_row(std::span(rows).subspan(256, 256), wanted);
    EXPECT_EQ(std::memcmp(image.data() + tensor.offset + 256, wanted.data(), 256), 0);
    float found = 0;
    std::memcpy(&found, image.data() + layout.tensors[i + 1].offset + sizeof(float), sizeof(found));
    EXPECT_EQ(found, scale);
  }
}

TEST_F(GgufBlocksTest, OfATypeThatIsNotDecodedAreRefused) {
  const Result<Checkpoint> opened = Checkpoint::open(write(gguf::BlockType::kIq4Xs));
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("tensor \"token_embd.weight\" in "));
  EXPECT_THAT(opened.error().message,
              HasSubstr("m.gguf is IQ4_XS [20, 256]; weights must be one of F32, F16, BF16, Q8_0, "
                        "Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, MXFP4, another engine may serve "
                        "this model: configure it with `engine: llama-server`"));
}

TEST_F(GgufBlocksTest, TensorsAreCalledAsTheFileHasThem) {
  gguf::TestGguf file = gguf_metadata(model_);
  file.zeros("token_embd.weight", {256, 20});
  write_text(path_.path() / "m.gguf", file.bytes());
  EXPECT_THAT(Checkpoint::open(path_.path() / "m.gguf").error().message,
              HasSubstr("tensor \"blk.0.attn_norm.weight\" [256] is missing from "));
  EXPECT_THAT(Checkpoint::open(path_.path() / "m.gguf").error().message,
              HasSubstr("but its metadata (1 layers, tie_word_embeddings true) needs it"));
}

TEST_F(GgufBlocksTest, ADigestIsOfTheHeader) {
  const std::filesystem::path path = write();
  const std::string before = digest(path).value();
  std::filesystem::rename(path, path_.path() / "other.gguf");
  EXPECT_EQ(digest(path_.path() / "other.gguf").value(), before);
  model_.rope_theta = 20000;
  EXPECT_NE(digest(write()).value(), before);
}

TEST_F(GgufBlocksTest, AreInspected) {
  const std::string text = render_text(inspect(write()).value());
  EXPECT_THAT(text, HasSubstr("format        GGUF 3"));
  EXPECT_THAT(text, HasSubstr("architecture  LlamaForCausalLM"));
  EXPECT_THAT(text, HasSubstr("3 Q4_0 ("));
  EXPECT_THAT(text, HasSubstr("5 Q6_K ("));
  EXPECT_THAT(text, HasSubstr("tokenizer     ?, 0 tokens, no chat template"));
  EXPECT_THAT(text, HasSubstr("key \"tokenizer.ggml.tokens\" is missing"));
}

TEST(GgufInspection, TellsOfAnEncoderNothingThatItDoesNotDo) {
  const auto found = inspect(places::source("tests/golden/gguf/bert.gguf"));
  ASSERT_TRUE(found) << found.error().message;
  const std::string text = render_text(*found);
  EXPECT_THAT(text, HasSubstr("an encoder that makes vectors"));
  for (const char* other : {"end of turn", "temperature", "only completions"}) {
    EXPECT_THAT(text, Not(HasSubstr(other)));
  }
}

TEST(GgufInspection, TellsWhatConversionLeftOut) {
  const auto said = [](const char* file) {
    return render_text(inspect(places::source(std::string("tests/golden/gguf/") + file)).value());
  };
  EXPECT_THAT(said("bare_reranker.gguf"), HasSubstr("that scores pairs, without its pooler"));
  EXPECT_THAT(said("reranker.gguf"), HasSubstr("an encoder that scores pairs, q/k/v bias"));
}

}  // namespace
}  // namespace heddle::store
