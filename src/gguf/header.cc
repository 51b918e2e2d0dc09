#include "gguf/header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace heddle::gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kChunkBytes = std::uint64_t{256} << 10U;
constexpr std::uint64_t kSmallElements = 1024;
constexpr std::uint32_t kDimensionsMax = 4;
constexpr std::uint64_t kAlignmentMax = 1U << 16U;
constexpr std::uint64_t kAlignmentDefault = 32;
constexpr std::size_t kShown = 64;  // Of a name in a message.

/// Bytes of a value, without those that a string or array has beyond its length.
std::uint64_t least_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kArray:
      return 12;
    case ValueType::kText:
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
  }
  return 8;
}

/// A name as messages show it: printable, and not too long.
std::string shown(std::string_view name) {
  std::string text(name.substr(0, kShown));
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return name.size() > kShown ? text + "..." : text;
}

/// Numbers and strings one behind the other, through a buffer. The first thing that is wrong is
/// kept, and all that is read behind it is zero.
class Cursor {
 public:
  Cursor(const ReadAt& read, std::uint64_t file_bytes, std::string_view file)
      : read_(read), end_(std::min(file_bytes, kHeaderBytesMax)), file_(file) {
    cut_ = end_ < file_bytes ? "the header may have no more" : "the file ends there";
  }

  template <class T>
  T number(std::string_view what) {
    std::array<std::byte, sizeof(T)> bytes{};
    take(bytes, what);
    return std::bit_cast<T>(bytes);
  }

  /// A string of at most `most` bytes.
  std::string text(std::uint64_t most, std::string_view what) {
    const std::uint64_t length = text_length(most, what);
    std::string text(length, '\0');
    take(std::as_writable_bytes(std::span(text)), what);
    return ok() ? text : std::string();
  }
  void skip_text(std::uint64_t most, std::string_view what) { skip(text_length(most, what)); }
  /// `bytes` are known to be left.
  void skip(std::uint64_t bytes) { at_ += bytes; }

  [[nodiscard]] std::uint64_t at() const { return at_; }
  /// What is left to be read, of the file or of what a header may have.
  [[nodiscard]] std::uint64_t left() const { return end_ - at_; }
  [[nodiscard]] bool ok() const { return status_.has_value(); }
  [[nodiscard]] const Error& error() const { return status_.error(); }
  void fail(std::string what) {
    if (ok()) {
      status_ = Error{Code::kCorrupt, fmt::format("{}: {}", file_, what)};
    }
  }

 private:
  std::uint64_t text_length(std::uint64_t most, std::string_view what) {
    const auto length = number<std::uint64_t>(what);
    if (ok() && (length > most || length > left())) {
      fail(fmt::format("{} is a string of {} bytes; at most {} are read, and {} are left: {}",
                       what,
                       length,
                       most,
                       left(),
                       cut_));
    }
    return ok() ? length : 0;
  }

  void take(std::span<std::byte> target, std::string_view what) {
    if (!ok()) {
      return;
    }
    if (target.size() > left()) {
      return fail(fmt::format("{} needs {} bytes at byte {}, but {} are left: {}",
                              what,
                              target.size(),
                              at_,
                              left(),
                              cut_));
    }
    while (!target.empty() && ok()) {
      if (at_ < begin_ || at_ >= begin_ + buffer_.size()) {
        refill();
        continue;
      }
      const std::span<const std::byte> there = std::span(buffer_).subspan(at_ - begin_);
      const std::size_t count = std::min(there.size(), target.size());
      std::copy_n(there.begin(), count, target.begin());
      target = target.subspan(count);
      at_ += count;
    }
  }

  void refill() {
    begin_ = at_;
    buffer_.resize(std::min(kChunkBytes, left()));
    if (Result<void> read = read_(begin_, buffer_); !read) {
      status_ = read;
    }
  }

  const ReadAt& read_;
  std::uint64_t end_;
  std::string_view file_;
  std::string_view cut_{};
  std::uint64_t at_ = 0;
  std::uint64_t begin_ = 0;  ///< Of the buffer.
  std::vector<std::byte> buffer_{};
  Result<void> status_{};
};

/// That of a byte where something is wrong.
ValueType read_value_type(Cursor& cursor, std::string_view what) {
  const auto id = cursor.number<std::uint32_t>(what);
  if (id > static_cast<std::uint32_t>(ValueType::kF64)) {
    cursor.fail(fmt::format("{} has type {}; types are 0 to 12", what, id));
  }
  return cursor.ok() ? static_cast<ValueType>(id) : ValueType::kU8;
}

std::int64_t read_integer(Cursor& cursor, ValueType type, std::string_view what) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kBool:
      return cursor.number<std::uint8_t>(what);
    case ValueType::kI8:
      return cursor.number<std::int8_t>(what);
    case ValueType::kU16:
      return cursor.number<std::uint16_t>(what);
    case ValueType::kI16:
      return cursor.number<std::int16_t>(what);
    case ValueType::kU32:
      return cursor.number<std::uint32_t>(what);
    case ValueType::kI32:
      return cursor.number<std::int32_t>(what);
    default:
      return cursor.number<std::int64_t>(what);
  }
}

void read_elements(
    Cursor& cursor, Keep keep, std::string_view what, std::uint32_t depth, Array& array);

/// An array, of which `depth` are around it.
Array read_array(Cursor& cursor, Keep keep, std::string_view what, std::uint32_t depth) {
  Array array;
  array.type = read_value_type(cursor, what);
  array.count = cursor.number<std::uint64_t>(what);
  if (!cursor.ok()) {
    return {};
  }
  if (depth >= kNestingMax) {
    cursor.fail(
        fmt::format("{} has arrays in arrays {} deep; at most {}", what, depth + 1, kNestingMax));
  } else if (array.count > kElementsMax || array.count > cursor.left() / least_bytes(array.type)) {
    cursor.fail(fmt::format("{} is an array of {} {}; at most {} are read, and {} bytes are left",
                            what,
                            array.count,
                            value_type_name(array.type),
                            kElementsMax,
                            cursor.left()));
  } else {
    read_elements(cursor, keep, what, depth, array);
  }
  return array;
}

void read_elements(
    Cursor& cursor, Keep keep, std::string_view what, std::uint32_t depth, Array& array) {
  const bool counted = depth > 0 || (keep == Keep::kSmall && array.count > kSmallElements);
  const bool fixed = array.type != ValueType::kText && array.type != ValueType::kArray;
  if (counted && fixed) {
    return cursor.skip(array.count * least_bytes(array.type));
  }
  for (std::uint64_t i = 0; i < array.count && cursor.ok(); ++i) {
    if (array.type == ValueType::kArray) {
      (void)read_array(cursor, keep, what, depth + 1);
    } else if (array.type == ValueType::kText && counted) {
      cursor.skip_text(kTextBytesMax, what);
    } else if (array.type == ValueType::kText) {
      array.texts.push_back(cursor.text(kTextBytesMax, what));
    } else if (array.type == ValueType::kF32) {
      array.numbers.push_back(static_cast<double>(cursor.number<float>(what)));
    } else if (array.type == ValueType::kF64) {
      array.numbers.push_back(cursor.number<double>(what));
    } else {
      array.integers.push_back(read_integer(cursor, array.type, what));
    }
  }
}

Value read_value(Cursor& cursor, Keep keep, std::string_view what) {
  const ValueType type = read_value_type(cursor, what);
  switch (type) {
    case ValueType::kF32:
      return cursor.number<float>(what);
    case ValueType::kF64:
      return cursor.number<double>(what);
    case ValueType::kText:
      return cursor.text(kTextBytesMax, what);
    case ValueType::kArray:
      return read_array(cursor, keep, what, 0);
    case ValueType::kBool: {
      const auto byte = cursor.number<std::uint8_t>(what);
      if (byte > 1) {
        cursor.fail(fmt::format("{} is a bool of value {}; those are 0 and 1", what, byte));
      }
      return byte == 1;
    }
    case ValueType::kU64: {
      const auto number = cursor.number<std::uint64_t>(what);
      const bool fits = std::in_range<std::int64_t>(number);
      return fits ? Value(static_cast<std::int64_t>(number)) : Value(number);
    }
    default:
      return read_integer(cursor, type, what);
  }
}

void read_metadata(Cursor& cursor, std::uint64_t count, Keep keep, Metadata& metadata) {
  for (std::uint64_t i = 0; i < count && cursor.ok(); ++i) {
    std::string key = cursor.text(kNameBytesMax, fmt::format("key {} of {}", i + 1, count));
    const std::string what = fmt::format("key \"{}\"", shown(key));
    Value value = read_value(cursor, keep, what);
    if (!metadata.try_emplace(std::move(key), std::move(value)).second) {
      cursor.fail(what + " is there twice");
    }
  }
}

/// Reads dimensions and type, and counts the bytes that these take.
void read_shape(Cursor& cursor, const std::string& what, Tensor& tensor) {
  const auto dimensions = cursor.number<std::uint32_t>(what);
  if (dimensions == 0 || dimensions > kDimensionsMax) {
    return cursor.fail(fmt::format(
        "{} has {} dimensions; tensors have 1 to {}", what, dimensions, kDimensionsMax));
  }
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / 512;
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions && cursor.ok(); ++i) {
    const auto size = cursor.number<std::uint64_t>(what);
    if (size == 0 || size > kMost / elements) {
      return cursor.fail(fmt::format(
          "{} has size {} in its shape; sizes are from 1, and their product fits 54 bits",
          what,
          size));
    }
    elements *= size;
    tensor.shape.push_back(static_cast<std::int64_t>(size));
  }
  const auto id = cursor.number<std::uint32_t>(what);
  const auto shape = find_block_shape(id);
  if (!cursor.ok()) {
    return;
  }
  if (!shape) {
    return cursor.fail(fmt::format("{} has type {}, which is none of the types known; read are {}",
                                   what,
                                   id,
                                   decoded_types()));
  }
  if (tensor.shape.front() % shape->elements != 0) {
    return cursor.fail(fmt::format("{} has rows of {} numbers; {} has blocks of {}",
                                   what,
                                   tensor.shape.front(),
                                   shape->name,
                                   shape->elements));
  }
  tensor.type = shape->type;
  tensor.bytes = elements / shape->elements * shape->bytes;
  std::ranges::reverse(tensor.shape);
}

void read_tensors(Cursor& cursor,
                  std::uint64_t count,
                  std::uint64_t alignment,
                  std::vector<Tensor>& tensors) {
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < count && cursor.ok(); ++i) {
    Tensor tensor{.name = cursor.text(kNameBytesMax,
                                      fmt::format("the name of tensor {} of {}", i + 1, count))};
    const std::string what = fmt::format("tensor \"{}\"", shown(tensor.name));
    read_shape(cursor, what, tensor);
    tensor.offset = cursor.number<std::uint64_t>(what);
    if (!names.insert(tensor.name).second) {
      cursor.fail(what + " is there twice");
    }
    if (tensor.offset % alignment != 0) {
      cursor.fail(
          fmt::format("{} begins at byte {} of the data, which is no multiple of the alignment, {}",
                      what,
                      tensor.offset,
                      alignment));
    }
    tensors.push_back(std::move(tensor));
  }
}

/// Orders the tensors, whose offsets count from `data`, and sees that each has bytes of its own.
void place_tensors(Cursor& cursor,
                   std::uint64_t data,
                   std::uint64_t file_bytes,
                   std::vector<Tensor>& tensors) {
  std::ranges::sort(tensors, [](const Tensor& a, const Tensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  const std::uint64_t data_bytes = file_bytes > data ? file_bytes - data : 0;
  std::uint64_t end = 0;
  for (Tensor& tensor : tensors) {
    const std::string what = fmt::format("tensor \"{}\"", shown(tensor.name));
    if (tensor.bytes > data_bytes || tensor.offset > data_bytes - tensor.bytes) {
      return cursor.fail(
          fmt::format("{} has {} bytes from byte {} of the data on, but the file has {} bytes of "
                      "data: it is truncated or its header lies",
                      what,
                      tensor.bytes,
                      tensor.offset,
                      data_bytes));
    }
    if (tensor.offset < end) {
      return cursor.fail(
          fmt::format("{} begins at byte {} of the data, within the tensor before it, which ends "
                      "at {}; tensors must not overlap",
                      what,
                      tensor.offset,
                      end));
    }
    end = tensor.offset + tensor.bytes;
    tensor.offset += data;
  }
}

std::uint64_t read_alignment(Cursor& cursor, const Metadata& metadata) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) {
    return kAlignmentDefault;
  }
  const auto* number = std::get_if<std::int64_t>(&found->second);
  const bool right = number != nullptr && *number > 0 &&
                     std::cmp_less_equal(*number, kAlignmentMax) &&
                     std::has_single_bit(static_cast<std::uint64_t>(*number));
  if (!right) {
    cursor.fail(fmt::format("key \"general.alignment\" is {}; it must be a power of two up to {}",
                            describe(found->second),
                            kAlignmentMax));
  }
  return right ? static_cast<std::uint64_t>(*number) : kAlignmentDefault;
}

/// The magic and the version; 0 where they are not those of a file that is read.
std::uint32_t read_version(Cursor& cursor) {
  const auto magic = cursor.number<std::array<char, 4>>("the magic");
  const auto version = cursor.number<std::uint32_t>("the version");
  if (!cursor.ok()) {
    return 0;
  }
  if (std::string_view(magic.data(), magic.size()) != kMagic) {
    cursor.fail("is no GGUF file, which begins with \"GGUF\"");
  } else if ((version & 0xFFFFU) == 0 && version != 0) {
    cursor.fail("is a big-endian GGUF file; read are little-endian ones");
  } else if (version < 2 || version > 3) {
    cursor.fail(fmt::format("is a GGUF file of version {}; read are versions 2 and 3", version));
  }
  return version;
}

template <class T>
std::string number_text(const T& value) {
  return fmt::format("{}", value);
}

}  // namespace

std::string_view value_type_name(ValueType type) {
  constexpr std::array<std::string_view, 13> kNames = {"u8",
                                                       "i8",
                                                       "u16",
                                                       "i16",
                                                       "u32",
                                                       "i32",
                                                       "f32",
                                                       "bools",
                                                       "strings",
                                                       "arrays",
                                                       "u64",
                                                       "i64",
                                                       "f64"};
  return kNames.at(static_cast<std::size_t>(type));
}

std::string describe(const Value& value) {
  if (const auto* array = std::get_if<Array>(&value)) {
    return fmt::format("an array of {} {}", array->count, value_type_name(array->type));
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    return fmt::format("\"{}\"", shown(*text));
  }
  return std::visit(
      [](const auto& plain) -> std::string {
        if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(plain)>>) {
          return number_text(plain);
        }
        return "";
      },
      value);
}

Result<Header> parse_header(const ReadAt& read,
                            std::uint64_t file_bytes,
                            std::string_view file,
                            Keep keep) {
  Cursor cursor(read, file_bytes, file);
  Header header{.version = read_version(cursor)};
  const auto tensors = cursor.number<std::uint64_t>("the number of tensors");
  const auto keys = cursor.number<std::uint64_t>("the number of keys");
  if (keys > kKeysMax) {
    cursor.fail(fmt::format("has {} keys of metadata; at most {} are read", keys, kKeysMax));
  }
  if (tensors > kTensorsMax) {
    cursor.fail(fmt::format("has {} tensors; at most {} are read", tensors, kTensorsMax));
  }
  if (cursor.ok()) {
    read_metadata(cursor, keys, keep, header.metadata);
  }
  if (cursor.ok()) {
    const std::uint64_t alignment = read_alignment(cursor, header.metadata);
    read_tensors(cursor, tensors, alignment, header.tensors);
    header.bytes = cursor.at();
    const std::uint64_t data = (cursor.at() + alignment - 1) / alignment * alignment;
    if (cursor.ok()) {
      place_tensors(cursor, data, file_bytes, header.tensors);
    }
  }
  if (!cursor.ok()) {
    return cursor.error();
  }
  return header;
}

}  // namespace heddle::gguf
