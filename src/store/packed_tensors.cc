#include "store/packed_tensors.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "store/packed_matrix.h"

namespace heddle::store {
namespace {

using spec::Packing;
using spec::Quantisation;
using Shape = std::vector<std::int64_t>;

/// Of activations and of KV, and what shapes say already.
constexpr std::array<std::string_view, 7> kIgnored = {".input_scale",
                                                      ".input_zero_point",
                                                      ".output_scale",
                                                      ".k_scale",
                                                      ".v_scale",
                                                      ".weight_shape",
                                                      ".activation_scale"};

/// What the numbers of a matrix end in, and the matrix without.
std::optional<std::string> matrix_of(std::string_view name, Packing packing) {
  const std::string_view ending = packing == Packing::kScaled   ? ".weight"
                                  : packing == Packing::kPacked ? ".weight_packed"
                                                                : ".qweight";
  if (!name.ends_with(ending)) {
    return std::nullopt;
  }
  return std::string(name.substr(0, name.size() - ending.size()));
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Makes the matrix `name` of its tensors. The first thing that is wrong is kept.
class Joiner {
 public:
  Joiner(const TensorSet& tensors, const Quantisation& how, std::string name)
      : tensors_(tensors), name_(std::move(name)) {
    matrix_.how = how;
  }

  Result<TensorSet::Entry> join(std::string_view numbers) {
    matrix_.numbers = part(numbers);
    if (matrix_.how.packing == Packing::kScaled) {
      join_scaled();
    } else if (matrix_.how.packing == Packing::kPacked) {
      join_packed_rows();
    } else {
      join_turned();
    }
    if (!status_) {
      return status_.error();
    }
    const StoredType type = rows_type(matrix_);
    const auto elements = static_cast<std::uint64_t>(matrix_.rows * matrix_.columns);
    return TensorSet::Entry{.tensor = {.name = name_ + ".weight",
                                       .type = type,
                                       .shape = {matrix_.rows, matrix_.columns},
                                       .bytes = stored_bytes(type, elements)},
                            .file = matrix_.numbers.file,
                            .packed = std::make_shared<const PackedMatrix>(matrix_)};
  }

  /// The names of the tensors that it is made of.
  [[nodiscard]] const std::vector<std::string>& used() const { return used_; }

 private:
  [[nodiscard]] const TensorSet::Entry* find(std::string_view suffix) const {
    return tensors_.find(name_ + std::string(suffix));
  }

  PackedMatrix::Part part(std::string_view suffix) {
    const TensorSet::Entry* entry = find(suffix);
    if (entry == nullptr) {
      fail(fmt::format("tensor \"{}{}\" is missing, which \"{}\" needs beside it",
                       name_,
                       suffix,
                       matrix_.numbers.tensor.name));
      return {};
    }
    used_.push_back(name_ + std::string(suffix));
    return {.tensor = entry->tensor, .file = entry->file};
  }

  void fail(std::string message) {
    if (status_) {
      const std::size_t file = matrix_.numbers.file;
      status_ = Error{
          Code::kCorrupt,
          fmt::format(
              "{} (quantization_config; {})", message, tensors_.files()[file].path().string())};
    }
  }

  void expect(const PackedMatrix::Part& part, const Shape& shape) {
    if (status_ && part.tensor.shape != shape) {
      fail(fmt::format("tensor \"{}\" is {}, but it must be [{}] beside \"{}\", which is {}",
                       part.tensor.name,
                       describe(part.tensor),
                       fmt::join(shape, ", "),
                       matrix_.numbers.tensor.name,
                       describe(matrix_.numbers.tensor)));
    }
  }

  void expect_type(const PackedMatrix::Part& part, std::initializer_list<StoredType> types) {
    if (!status_) {
      return;
    }
    std::vector<std::string_view> names;
    for (const StoredType type : types) {
      if (part.tensor.type == type) {
        return;
      }
      names.push_back(stored_type_name(type));
    }
    fail(fmt::format("tensor \"{}\" is {}, but it must be {}",
                     part.tensor.name,
                     describe(part.tensor),
                     fmt::join(names, " or ")));
  }

  void expect_words(const PackedMatrix::Part& part) {
    expect_type(part, {StoredType::kI32, StoredType::kU32});
  }
  void expect_numbers(const PackedMatrix::Part& part) {
    expect_type(part, {StoredType::kF16, StoredType::kBf16, StoredType::kF32});
  }

  /// Whether it is a matrix; so that its sides can be looked at.
  bool is_matrix(const PackedMatrix::Part& part) {
    if (status_ && part.tensor.shape.size() != 2) {
      fail(fmt::format(
          "tensor \"{}\" is {}, but it must be a matrix", part.tensor.name, describe(part.tensor)));
    }
    return status_.has_value();
  }

  std::int64_t groups() const { return ceil_divide(matrix_.columns, matrix_.group()); }
  std::int64_t each() const { return 32 / matrix_.how.bits; }

  /// AWQ and GPTQ: inputs by outputs.
  void join_turned() {
    const Quantisation& how = matrix_.how;
    matrix_.scales = part(".scales");
    matrix_.zeros = part(".qzeros");
    if (!is_matrix(matrix_.numbers) || !is_matrix(matrix_.scales)) {
      return;
    }
    const bool awq = how.packing == Packing::kAwq;
    const Shape& words = matrix_.numbers.tensor.shape;
    matrix_.columns = awq ? words[0] : words[0] * each();
    matrix_.rows = awq ? words[1] * each() : words[1];
    expect_words(matrix_.numbers);
    expect_numbers(matrix_.scales);
    expect(matrix_.scales, {groups(), matrix_.rows});
    expect_words(*matrix_.zeros);
    expect(*matrix_.zeros, {groups(), ceil_divide(matrix_.rows, each())});
    if (matrix_.rows % each() != 0) {
      fail(fmt::format("tensor \"{}\" has {} outputs, which fill no words of {}",
                       matrix_.numbers.tensor.name,
                       matrix_.rows,
                       each()));
    }
    if (how.ordered) {
      matrix_.groups = part(".g_idx");
      expect_words(*matrix_.groups);
      expect(*matrix_.groups, {matrix_.columns});
    } else if (find(".g_idx") != nullptr) {
      used_.push_back(name_ + ".g_idx");  // Says what the group's size does.
    }
  }

  /// compressed-tensors: outputs by inputs.
  void join_packed_rows() {
    matrix_.scales = part(".weight_scale");
    if (!is_matrix(matrix_.numbers) || !is_matrix(matrix_.scales)) {
      return;
    }
    const Shape& words = matrix_.numbers.tensor.shape;
    matrix_.rows = words[0];
    matrix_.columns = words[1] * each();
    expect_words(matrix_.numbers);
    expect_numbers(matrix_.scales);
    expect(matrix_.scales, {matrix_.rows, groups()});
    if (!matrix_.how.symmetric) {
      matrix_.zeros = part(".weight_zero_point");
      expect_words(*matrix_.zeros);
      expect(*matrix_.zeros, {ceil_divide(matrix_.rows, each()), groups()});
    }
    if (matrix_.how.ordered) {
      matrix_.groups = part(".weight_g_idx");
      expect_words(*matrix_.groups);
      expect(*matrix_.groups, {matrix_.columns});
    }
  }

  /// FP8 and int8: one scale, one a row, or one for each block.
  void join_scaled() {
    const bool inverse = find(".weight_scale_inv") != nullptr;
    matrix_.scales = part(inverse ? ".weight_scale_inv" : ".weight_scale");
    if (!is_matrix(matrix_.numbers)) {
      return;
    }
    matrix_.rows = matrix_.numbers.tensor.shape[0];
    matrix_.columns = matrix_.numbers.tensor.shape[1];
    expect_numbers(matrix_.scales);
    const Shape& shape = matrix_.scales.tensor.shape;
    const bool one = shape.empty() || shape == Shape{1} || shape == Shape{1, 1};
    const bool by_row = shape == Shape{matrix_.rows} || shape == Shape{matrix_.rows, 1};
    if (one || by_row) {
      matrix_.how.block_rows = matrix_.how.block_columns = 0;
      return;
    }
    const Quantisation& how = matrix_.how;
    if (how.block_rows == 0) {
      expect(matrix_.scales, {matrix_.rows, 1});
      return;
    }
    expect(matrix_.scales,
           {ceil_divide(matrix_.rows, how.block_rows),
            ceil_divide(matrix_.columns, how.block_columns)});
  }

  const TensorSet& tensors_;
  std::string name_;
  PackedMatrix matrix_{};
  std::vector<std::string> used_{};
  Result<void> status_{};
};

bool is_packed(const StoredTensor& tensor, Packing packing) {
  return packing != Packing::kScaled || tensor.type == StoredType::kF8E4M3 ||
         tensor.type == StoredType::kI8;
}

}  // namespace

Result<void> join_packed(TensorSet& tensors, const Quantisation& how) {
  if (how.packing == Packing::kNone || how.packing == Packing::kMxfp4) {
    return {};  // Of experts alone, which turned_experts.h has.
  }
  std::vector<std::string> gone;
  std::vector<TensorSet::Entry> joined;
  for (const auto& [name, entry] : tensors.entries()) {
    for (const std::string_view ignored : kIgnored) {
      if (name.ends_with(ignored)) {
        gone.push_back(name);
      }
    }
    const std::optional<std::string> matrix = matrix_of(name, how.packing);
    if (!matrix || !is_packed(entry.tensor, how.packing)) {
      continue;
    }
    Joiner joiner(tensors, how, *matrix);
    Result<TensorSet::Entry> whole = joiner.join(std::string_view(name).substr(matrix->size()));
    if (!whole) {
      return whole.error();
    }
    gone.insert(gone.end(), joiner.used().begin(), joiner.used().end());
    joined.push_back(std::move(*whole));
  }
  tensors.exchange(gone, std::move(joined));
  return {};
}

}  // namespace heddle::store
