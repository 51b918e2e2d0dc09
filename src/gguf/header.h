#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "gguf/blocks.h"

namespace heddle::gguf {

/// Types of metadata values, by the ids of the format.
enum class ValueType : std::uint8_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kText = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
[[nodiscard]] std::string_view value_type_name(ValueType type);

/// An array of a metadata value. Its elements are in the vector that suits their type; in none
/// where they are arrays themselves, or were only counted (Keep).
struct Array {
  ValueType type = ValueType::kU8;  ///< Of the elements.
  std::uint64_t count = 0;
  std::vector<std::string> texts{};
  std::vector<std::int64_t> integers{};  ///< Of bool too; u64 beyond 63 bits become negative.
  std::vector<double> numbers{};
};

/// A float32 stays one, so that its shortest decimal is what its author wrote.
using Value = std::variant<std::int64_t, std::uint64_t, float, double, bool, std::string, Array>;
/// "u32 7", "array of 3 strings", "\"llama\"", for messages.
[[nodiscard]] std::string describe(const Value& value);

using Metadata = std::map<std::string, Value, std::less<>>;

/// A tensor of a file. Row-major and little-endian, rows of whole blocks.
struct Tensor {
  std::string name{};
  BlockType type = BlockType::kF32;
  /// The last dimension is contiguous, as everywhere in heddle: the format's, reversed.
  std::vector<std::int64_t> shape{};
  std::uint64_t offset = 0;  ///< Bytes from the start of the file.
  std::uint64_t bytes = 0;
  std::size_t file = 0;  ///< Which of the parts of a split file has it.
};

struct Header {
  std::uint32_t version = 0;
  Metadata metadata{};
  std::vector<Tensor> tensors{};  ///< In order of offset.
  std::uint64_t bytes = 0;        ///< Of the header; the tensors' data begins behind it.
};

/// Which arrays are kept: a vocabulary has hundreds of thousands of strings, and who loads weights
/// needs none of them.
enum class Keep : std::uint8_t {
  kAll,
  kSmall,  ///< Arrays of more than 1,024 elements are checked and counted alone.
};

/// Fills `target` with the bytes of a file from `offset` on.
using ReadAt = std::function<Result<void>(std::uint64_t offset, std::span<std::byte> target)>;

/// Headers of more bytes than this are refused, and so are those with more of anything than below.
inline constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{256} << 20U;
inline constexpr std::uint64_t kKeysMax = 1U << 16U;
inline constexpr std::uint64_t kTensorsMax = 1U << 16U;
inline constexpr std::uint64_t kNameBytesMax = 1U << 12U;  ///< Of keys and names of tensors.
inline constexpr std::uint64_t kTextBytesMax = std::uint64_t{16} << 20U;
inline constexpr std::uint64_t kElementsMax = 1U << 24U;  ///< Of an array.
inline constexpr std::uint32_t kNestingMax = 4;           ///< Arrays in arrays.

/// Reads the header of a GGUF file, version 2 or 3, little-endian, of which `file_bytes` exist.
/// Whatever it says is held against these bounds and the file before anything is allocated or read
/// by it: each key and name is there once; each tensor has a known type, up to four dimensions,
/// rows of whole blocks, and data within the file, at its alignment, that no other tensor shares.
/// kCorrupt, naming `file`, the key or tensor and the numbers, otherwise; as `read` fails.
[[nodiscard]] Result<Header> parse_header(const ReadAt& read,
                                          std::uint64_t file_bytes,
                                          std::string_view file,
                                          Keep keep);

}  // namespace heddle::gguf
