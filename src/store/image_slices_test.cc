#include "store/image_slices.h"

#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "spec/block_panels.h"
#include "store/checkpoint.h"
#include "store/packed_matrix.h"
#include "store/test_files.h"

namespace heddle::store {
namespace {

/// A tensor of some sources of `rows` rows each, 64 numbers wide, of which a set has the tensors.
struct Drawn {
  TempDirectory directory{};
  TensorSet tensors{};
  ImageLayout layout{};

  Drawn(const std::vector<std::int64_t>& rows, spec::DType dtype) {
    TestTensors stored;
    std::int64_t row = 0;
    ImageTensor tensor{.columns = 64, .dtype = dtype, .offset = 64};
    for (const std::int64_t count : rows) {
      const std::string name = "t" + std::to_string(tensor.sources.size());
      stored[name] = {.type = StoredType::kF32,
                      .shape = {count, 64},
                      .data = std::string(static_cast<std::size_t>(count) * 256, '\0')};
      tensor.sources.push_back(
          {.name = name, .row = row, .rows = count, .stored_rows = count, .stored_columns = 64});
      row += count;
    }
    write_safetensors(directory.path() / "model.safetensors", stored);
    tensors = TensorSet::open(directory.path()).value();
    tensor.rows = row;
    tensor.bytes = spec::matrix_bytes(dtype, row, 64);
    layout = {.tensors = {tensor}, .bytes = tensor.offset + tensor.bytes};
  }
  /// Makes a source one that cannot be read by row.
  void pack(const std::string& name) {
    TensorSet::Entry entry = *tensors.find(name);
    entry.tensor.name = name;
    entry.packed = std::make_shared<PackedMatrix>(
        PackedMatrix{.how = {.packing = spec::Packing::kGptq, .bits = 4}});
    tensors.exchange({name}, {std::move(entry)});
  }
  [[nodiscard]] std::vector<std::int64_t> ends(std::uint64_t bytes) const {
    std::vector<std::int64_t> ends;
    std::int64_t at = 0;
    for (const ImageSlice& slice : cut_image(tensors, layout, bytes)) {
      EXPECT_EQ(slice.row, at);
      at += slice.rows;
      ends.push_back(at);
    }
    return ends;
  }
};

using Ends = std::vector<std::int64_t>;

TEST(ImageSlices, AreOfSoManyRowsAcrossSources) {
  const Drawn drawn({10, 3, 20}, spec::DType::kF32);
  EXPECT_EQ(drawn.ends(8 * 256), (Ends{8, 16, 24, 32, 33}));
  EXPECT_EQ(drawn.ends(1), drawn.ends(256)) << "a row at least";
  EXPECT_EQ(drawn.ends(1 << 20), Ends{33});
}

TEST(ImageSlices, AreCutByWhatTheFileHasWhereThatIsMore) {
  EXPECT_EQ(Drawn({40}, spec::DType::kBf16).ends(8 * 256), (Ends{8, 16, 24, 32, 40}));
}

TEST(ImageSlices, OfBlocksAreWholePanels) {
  const Drawn drawn({40, 30}, spec::DType::kQ80);
  EXPECT_EQ(drawn.ends(1), (Ends{16, 32, 48, 64, 70}));
  EXPECT_EQ(drawn.ends(256 * 40), (Ends{32, 64, 70}));
}

TEST(ImageSlices, DoNotCutWhatCannotBeReadByRow) {
  Drawn drawn({10, 40, 20}, spec::DType::kF32);
  drawn.pack("t1");
  EXPECT_EQ(drawn.ends(8 * 256), (Ends{8, 10, 50, 58, 66, 70}));
  Drawn blocks({16, 40, 40}, spec::DType::kQ80);
  blocks.pack("t1");
  EXPECT_EQ(blocks.ends(1), (Ends{16, 64, 80, 96})) << "to the end of its last panel";
  blocks.pack("t2");
  EXPECT_EQ(blocks.ends(1), (Ends{16, 96})) << "a panel that two share";
}

TEST(ImageSlices, EndWhereTheNextBegins) {
  Rng rng(3);
  const TempDirectory directory;
  write_text(directory.path() / "config.json", kTinyConfig);
  write_safetensors(directory.path() / "model.safetensors",
                    random_model(tiny_model(), rng, [](std::size_t) { return StoredType::kBf16; }));
  const Checkpoint checkpoint = Checkpoint::open(directory.path()).value();
  for (const spec::DType dtype : {spec::DType::kF32, spec::DType::kI8}) {
    const ImageLayout layout = plan_image(checkpoint.config.model, dtype);
    const std::vector<ImageSlice> slices = cut_image(checkpoint.tensors, layout, 500);
    for (std::size_t i = 0; i + 1 < slices.size(); ++i) {
      const ImageTensor& next = layout.tensors[slices[i + 1].tensor];
      EXPECT_EQ(slices[i].end,
                next.offset + static_cast<std::uint64_t>(
                                  slices[i + 1].row * spec::row_bytes(next.dtype, next.columns)));
    }
    EXPECT_EQ(slices.back().end, layout.bytes);
  }
}

}  // namespace
}  // namespace heddle::store
