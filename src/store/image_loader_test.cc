#include "store/image_loader.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/half.h"
#include "base/test_places.h"
#include "spec/shard.h"
#include "store/checkpoint.h"
#include "store/convert.h"
#include "store/packed_matrix.h"
#include "store/quantise.h"
#include "store/test_files.h"
#include "store/test_image.h"

namespace heddle::store {
namespace {

using spec::DType;
using testing::HasSubstr;

constexpr auto kDirty = std::byte{0xA5};

/// Pages in random order in one buffer, guarded by dirt between and around them.
class ScatteredPages {
 public:
  ScatteredPages(std::uint64_t count, std::size_t page_bytes, Rng& rng)
      : page_bytes_(page_bytes), buffer_((2 * count + 1) * page_bytes, kDirty) {
    std::vector<std::size_t> slots(count);
    std::iota(slots.begin(), slots.end(), std::size_t{0});
    for (std::size_t i = slots.size(); i > 1; --i) {
      std::swap(slots[i - 1], slots[rng.below(i)]);
    }
    for (const std::size_t slot : slots) {
      pages_.push_back(buffer_.data() + (2 * slot + 1) * page_bytes);
    }
  }

  [[nodiscard]] ImagePages target() const { return {.pages = pages_, .page_bytes = page_bytes_}; }

  [[nodiscard]] std::vector<std::byte> gathered(std::uint64_t bytes) const {
    std::vector<std::byte> image(bytes);
    for (std::uint64_t at = 0; at < bytes; ++at) {
      image[at] = pages_[at / page_bytes_][at % page_bytes_];
    }
    return image;
  }

  /// Whether everything outside the first `used` pages is as dirty as it was.
  [[nodiscard]] bool rest_untouched(std::uint64_t used) const {
    std::vector<std::byte> expected(buffer_.size(), kDirty);
    for (std::uint64_t i = 0; i < used; ++i) {
      const auto offset = static_cast<std::size_t>(pages_[i] - buffer_.data());
      std::memcpy(expected.data() + offset, pages_[i], page_bytes_);
    }
    return expected == buffer_;
  }

 private:
  std::size_t page_bytes_;
  std::vector<std::byte> buffer_;
  std::vector<std::byte*> pages_{};
};

std::vector<std::byte> part_bytes(const TensorSet& tensors, const PackedMatrix::Part& part) {
  std::vector<std::byte> bytes(part.tensor.bytes);
  EXPECT_TRUE(tensors.files()[part.file].read(part.tensor.offset, bytes));
  return bytes;
}

/// The values of a matrix of gpt-oss' experts, whose rows take turns with others'.
std::vector<float> turned_values(const TensorSet& tensors, const PackedMatrix& matrix) {
  const std::vector<std::byte> numbers = part_bytes(tensors, matrix.numbers);
  const bool float4 = matrix.how.packing == spec::Packing::kMxfp4;
  const auto scales = float4 ? part_bytes(tensors, matrix.scales) : std::vector<std::byte>();
  const std::uint64_t element = stored_type_bits(matrix.numbers.tensor.type) / 8;
  std::vector<float> values;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::int64_t stored = row * matrix.turns + matrix.turn;
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      float value = 0;
      if (float4) {
        const auto at = static_cast<std::size_t>(stored * matrix.columns + column);
        const auto both = std::to_integer<unsigned>(numbers[at / 2]);
        value = kTwiceFloat4.at(column % 2 == 0 ? both & 15U : both >> 4U) *
                half_of_e8m0(std::to_integer<std::uint8_t>(scales[at / 32]));
      } else {
        const auto at =
            static_cast<std::size_t>(column * matrix.rows * matrix.turns + stored) * element;
        convert(matrix.numbers.tensor.type,
                numbers.data() + at,
                DType::kF32,
                reinterpret_cast<std::byte*>(&value),
                1);
      }
      values.push_back(value);
    }
  }
  return values;
}

/// The values of a tensor of a checkpoint.
std::vector<float> values_of(const TensorSet& tensors, const std::string& name) {
  const TensorSet::Entry& entry = *tensors.find(name);
  if (entry.packed != nullptr) {
    return turned_values(tensors, *entry.packed);
  }
  std::vector<std::byte> stored(entry.tensor.bytes);
  EXPECT_TRUE(tensors.file_of(entry).read(entry.tensor.offset, stored));
  std::vector<float> values(8 * stored.size() / stored_type_bits(entry.tensor.type));
  convert(entry.tensor.type,
          stored.data(),
          DType::kF32,
          reinterpret_cast<std::byte*>(values.data()),
          values.size());
  return values;
}

/// Which element of a checkpoint's tensor the `row`-th of the wanted rows begins with.
std::size_t first_of_row(const ImageSource& source, std::int64_t row) {
  return static_cast<std::size_t>((source.first_row + row) * source.stored_columns +
                                  source.first_column);
}

/// Writes an int8 tensor down at `target`; returns the scales of its rows.
std::vector<float> naive_int8(const TensorSet& tensors,
                              const ImageTensor& tensor,
                              std::byte* target) {
  const auto columns = static_cast<std::size_t>(tensor.columns);
  std::vector<float> scales;
  for (const ImageSource& source : tensor.sources) {
    const std::vector<float> values = values_of(tensors, source.name);
    for (std::int64_t row = 0; row < source.rows; ++row) {
      scales.push_back(quantise_row(std::span(values).subspan(first_of_row(source, row), columns),
                                    {reinterpret_cast<std::int8_t*>(target), columns}));
      target += columns;
    }
  }
  return scales;
}

/// The image as one would write it down without caring for speed: whole files in memory, one
/// element at a time.
std::vector<std::byte> naive_image(const TensorSet& tensors,
                                   const ImageLayout& layout,
                                   std::size_t page_bytes) {
  std::vector<std::byte> image(pages_for(layout.bytes, page_bytes) * page_bytes);
  std::vector<float> scales;
  for (const ImageTensor& tensor : layout.tensors) {
    std::uint64_t at = tensor.offset;
    if (tensor.dtype == DType::kI8) {
      scales = naive_int8(tensors, tensor, image.data() + at);
      continue;
    }
    if (tensor.sources.empty()) {
      std::memcpy(image.data() + at, scales.data(), scales.size() * sizeof(float));
    }
    for (const ImageSource& source : tensor.sources) {
      const TensorSet::Entry& entry = *tensors.find(source.name);
      const File& file = tensors.file_of(entry);
      const bool packed = entry.packed != nullptr;
      std::vector<std::byte> whole(packed ? 0 : file.bytes());
      EXPECT_TRUE(file.read(0, whole));
      const std::vector<float> values =
          packed ? values_of(tensors, source.name) : std::vector<float>();
      const StoredType type = packed ? StoredType::kF32 : entry.tensor.type;
      const std::byte* const from = packed ? reinterpret_cast<const std::byte*>(values.data())
                                           : whole.data() + entry.tensor.offset;
      const std::uint64_t element = stored_type_bits(type) / 8;
      for (std::int64_t i = 0; i < source.rows * tensor.columns; ++i) {
        const std::size_t stored =
            first_of_row(source, i / tensor.columns) + static_cast<std::size_t>(i % tensor.columns);
        convert(type, from + stored * element, tensor.dtype, image.data() + at, 1);
        if (tensor.less_one || tensor.logarithm) {
          float value = 0;
          std::memcpy(&value, image.data() + at, sizeof(value));
          value = tensor.less_one ? value + 1.0F : -std::exp(value);
          std::memcpy(image.data() + at, &value, sizeof(value));
        }
        at += spec::dtype_bytes(tensor.dtype);
      }
    }
  }
  return image;
}

/// Loads `directory`, or a shard of it, into scattered pages and holds the result against the naive
/// one.
void expect_loads(const std::filesystem::path& directory,
                  DType dtype,
                  std::size_t page_bytes,
                  spec::Shard shard = {}) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory);
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  const ImageLayout layout = plan_image(spec::shard_of(checkpoint->config.model, shard), dtype);
  const std::uint64_t count = pages_for(layout.bytes, page_bytes);
  Rng rng(5);
  const ScatteredPages pages(count + 1, page_bytes, rng);
  std::vector<std::uint64_t> reports;
  const Result<void> loaded = load_image(
      checkpoint->tensors, layout, pages.target(), {.progress = [&](std::uint64_t bytes) {
        reports.push_back(bytes);
      }});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_TRUE(pages.gathered(count * page_bytes) ==
              naive_image(checkpoint->tensors, layout, page_bytes));
  EXPECT_TRUE(pages.rest_untouched(count));
  const std::string image = image_of(checkpoint->tensors, layout);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(image)), pages.gathered(layout.bytes)));
  // Small models: nothing between the stages, of which an encoder's last is empty.
  std::vector<std::uint64_t> ends = layout.stage_end;
  ends.erase(std::ranges::unique(ends).begin(), ends.end());
  EXPECT_EQ(reports, ends);
}

/// A tiny model of random weights on disk; matrices of all three types.
class LoadTest : public testing::Test {
 protected:
  LoadTest() {
    constexpr std::array kTypes = {StoredType::kF32, StoredType::kBf16, StoredType::kF16};
    write(random_model(tiny_model(), rng_, [&](std::size_t i) { return kTypes.at(i % 3); }));
  }
  void write(const TestTensors& tensors) {
    write_text(path() / "config.json", kTinyConfig);
    write_safetensors(path() / "model.safetensors", tensors);
  }
  [[nodiscard]] TensorSet tensors() const { return TensorSet::open(path()).value(); }
  [[nodiscard]] const std::filesystem::path& path() const { return directory_.path(); }

  Rng rng_{17};
  TempDirectory directory_{};
};

TEST_F(LoadTest, EqualsANaiveLoader) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8}) {
    for (const std::size_t page_bytes : {64U, 192U, 4096U, 1U << 20U}) {
      SCOPED_TRACE(fmt::format("{} pages of {}", spec::dtype_name(dtype), page_bytes));
      expect_loads(path(), dtype, page_bytes);
    }
  }
}

TEST_F(LoadTest, EqualsANaiveLoaderForEveryTypeAlone) {
  for (const StoredType type : {StoredType::kF32, StoredType::kBf16, StoredType::kF16}) {
    write(random_model(tiny_model(), rng_, [&](std::size_t) { return type; }));
    expect_loads(path(), DType::kF32, 4096);
    expect_loads(path(), DType::kBf16, 4096);
    expect_loads(path(), DType::kI8, 4096);
  }
}

TEST_F(LoadTest, ShardsEqualANaiveLoaders) {
  for (const StoredType type : {StoredType::kF32, StoredType::kBf16, StoredType::kF16}) {
    write(random_model(tiny_model(), rng_, [&](std::size_t) { return type; }));
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8}) {
      for (const std::int64_t rank : {0, 1}) {
        SCOPED_TRACE(fmt::format(
            "{} as {}, rank {}", stored_type_name(type), spec::dtype_name(dtype), rank));
        expect_loads(path(), dtype, 192, {.rank = rank, .ranks = 2});
      }
    }
  }
}

/// An image of float32, and what is in it.
struct Image {
  ImageLayout layout{};
  std::vector<std::byte> bytes{};

  Image(const TensorSet& tensors, const spec::ModelSpec& model)
      : layout(plan_image(model, DType::kF32)) {
    std::vector<std::byte> page(layout.bytes + 64);
    std::byte* const memory = page.data();
    EXPECT_TRUE(load_image(
        tensors, layout, {.pages = {&memory, 1}, .page_bytes = (layout.bytes + 63) / 64 * 64}));
    bytes = std::move(page);
  }
  [[nodiscard]] std::vector<float> values(Role role) const {
    std::vector<float> found;
    for (const ImageTensor& tensor : layout.tensors) {
      if (tensor.role == role && tensor.layer <= 0) {
        found.resize(tensor.bytes / sizeof(float));
        std::memcpy(found.data(), bytes.data() + tensor.offset, tensor.bytes);
      }
    }
    return found;
  }
};

// Without a word of the layout: what each rank is to have, by hand.
TEST_F(LoadTest, ShardsHaveTheirHeadsTheirPartOfTheMlpAndTheirTokens) {
  write(random_model(tiny_model(), rng_, [](std::size_t) { return StoredType::kF32; }));
  const TensorSet set = tensors();
  for (const std::int64_t rank : {0, 1}) {
    const Image image(set, spec::shard_of(tiny_model(), {.rank = rank, .ranks = 2}));
    // Appends the elements of [rows) x [columns) of a tensor of `width` columns.
    std::vector<float> expected;
    const auto append = [&](const std::string& name, auto rows, auto columns, std::size_t width) {
      const std::vector<float> values = values_of(set, name);
      for (std::size_t row = rows.first; row < rows.second; ++row) {
        for (std::size_t column = columns.first; column < columns.second; ++column) {
          expected.push_back(values[row * width + column]);
        }
      }
    };
    const auto expect = [&](Role role) {
      const std::vector<float> found = image.values(role);
      ASSERT_EQ(found.size(), expected.size());
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0);
      expected.clear();
    };
    const auto half = [&](std::size_t n) {
      const std::size_t from = n / 2 * static_cast<std::size_t>(rank);
      return std::pair(from, from + n / 2);
    };
    const std::pair<std::size_t, std::size_t> hidden{0, 24};
    const std::string layer = "model.layers.0.";
    append(layer + "self_attn.q_proj.weight", half(32), hidden, 24);  // Two heads of four.
    append(layer + "self_attn.k_proj.weight", half(16), hidden, 24);
    append(layer + "self_attn.v_proj.weight", half(16), hidden, 24);
    expect(Role::kQkv);
    append(layer + "self_attn.o_proj.weight", hidden, half(32), 32);
    expect(Role::kOut);
    append(layer + "mlp.gate_proj.weight", half(40), hidden, 24);
    append(layer + "mlp.up_proj.weight", half(40), hidden, 24);
    expect(Role::kGateUp);
    append(layer + "mlp.down_proj.weight", hidden, half(40), 40);
    expect(Role::kDown);
    append("model.embed_tokens.weight", half(50), hidden, 24);
    expect(Role::kEmbedding);
    append("lm_head.weight", half(50), hidden, 24);
    expect(Role::kHead);
  }
}

TEST(LoadImage, EqualsANaiveLoaderForTheGoldenModels) {
  const std::filesystem::path goldens = std::filesystem::path(places::kSources) / "tests/golden";
  int models = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(goldens)) {
    if (std::filesystem::exists(entry.path() / "config.json")) {
      SCOPED_TRACE(entry.path().string());
      expect_loads(entry.path(), DType::kF32, 4096);
      expect_loads(entry.path(), DType::kBf16, 65536);
      expect_loads(entry.path(), DType::kI8, 4096);
      ++models;
    }
  }
  if (models == 0) {
    GTEST_SKIP() << "no models in " << goldens;
  }
}

TEST_F(LoadTest, LeavesOnlyWholeStagesBehindWhatItReported) {
  const TensorSet set = tensors();
  const ImageLayout layout = plan_image(tiny_model(), DType::kF32);
  const std::vector<std::byte> expected = naive_image(set, layout, 4096);
  const ScatteredPages pages(pages_for(layout.bytes, 4096), 4096, rng_);
  std::size_t calls = 0;
  const LoadOptions options{.progress = [&](std::uint64_t bytes) {
    const std::vector<std::byte> now = pages.gathered(bytes);
    EXPECT_TRUE(std::equal(now.begin(), now.end(), expected.begin())) << bytes;
    ++calls;
  }};
  ASSERT_TRUE(load_image(set, layout, pages.target(), options));
  EXPECT_EQ(calls, layout.stage_end.size());
}

TEST_F(LoadTest, StopsWhenAsked) {
  const TensorSet set = tensors();
  const ImageLayout layout = plan_image(tiny_model(), DType::kF32);
  const ScatteredPages pages(pages_for(layout.bytes, 4096), 4096, rng_);
  std::stop_source stop;
  std::vector<std::uint64_t> reports;
  const Result<void> loaded = load_image(set,
                                         layout,
                                         pages.target(),
                                         {.progress =
                                              [&](std::uint64_t bytes) {
                                                reports.push_back(bytes);
                                                stop.request_stop();
                                              },
                                          .stop = stop.get_token()});
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, Code::kCancelled);
  EXPECT_EQ(reports, std::vector{layout.stage_end.front()});
}

TEST_F(LoadTest, AStopEndsTheWaitOfAPacedLoad) {
  const TensorSet set = tensors();
  const ImageLayout layout = plan_image(tiny_model(), DType::kF32);
  const ScatteredPages pages(pages_for(layout.bytes, 4096), 4096, rng_);
  std::stop_source stop;
  stop.request_stop();
  // A byte per second: waiting it out would take hours.
  const Result<void> loaded =
      load_image(set, layout, pages.target(), {.stop = stop.get_token(), .bytes_per_second = 1});
  EXPECT_EQ(loaded.error().code, Code::kCancelled);
}

TEST_F(LoadTest, APacedLoadIsNoFasterThanItsPace) {
  const TensorSet set = tensors();
  const ImageLayout layout = plan_image(tiny_model(), DType::kF32);
  const ScatteredPages pages(pages_for(layout.bytes, 4096), 4096, rng_);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(load_image(set, layout, pages.target(), {.bytes_per_second = layout.bytes * 20}));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
}

TEST_F(LoadTest, AFileThatShrinksIsAnError) {
  const TensorSet set = tensors();
  const ImageLayout layout = plan_image(tiny_model(), DType::kF32);
  std::filesystem::resize_file(path() / "model.safetensors", 4000);
  const ScatteredPages pages(pages_for(layout.bytes, 4096), 4096, rng_);
  const Result<void> loaded = load_image(set, layout, pages.target());
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, Code::kCorrupt);
  EXPECT_THAT(loaded.error().message, HasSubstr("model.safetensors has no byte "));
}

TEST_F(LoadTest, ReportsWithinLongStages) {
  spec::ModelSpec model = tiny_model();
  model.vocab = 120'000;  // An embedding of 11 MiB as float32.
  const TestTensors big = random_model(model, rng_, [](std::size_t) { return StoredType::kBf16; });
  write_safetensors(path() / "model.safetensors", big);
  const TensorSet set = tensors();
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const ImageLayout layout = plan_image(model, dtype);
    const ScatteredPages pages(pages_for(layout.bytes, 1 << 20), 1 << 20, rng_);
    std::vector<std::uint64_t> reports;
    ASSERT_TRUE(load_image(set, layout, pages.target(), {.progress = [&](std::uint64_t bytes) {
                             reports.push_back(bytes);
                           }}));
    EXPECT_TRUE(std::is_sorted(reports.begin(), reports.end()));
    std::uint64_t before = 0;
    for (const std::uint64_t bytes : reports) {
      EXPECT_LE(bytes - before, 12U << 20U);
      before = bytes;
    }
    EXPECT_TRUE(std::includes(
        reports.begin(), reports.end(), layout.stage_end.begin(), layout.stage_end.end()));
    EXPECT_EQ(reports.size() > layout.stage_end.size(), dtype == DType::kF32);
    EXPECT_TRUE(pages.gathered(pages_for(layout.bytes, 1 << 20) << 20U) ==
                naive_image(set, layout, 1 << 20));
  }
}

}  // namespace
}  // namespace heddle::store
