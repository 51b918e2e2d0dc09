#include "store/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "spec/json.h"

namespace heddle::store {
namespace {

using spec::Json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kRankMax = 16;

/// Reads the entries of a header one by one; every message begins with file and tensor.
class HeaderReader {
 public:
  HeaderReader(std::string_view file, std::uint64_t data_bytes)
      : file_(file), data_bytes_(data_bytes) {}

  /// Offsets count from the start of the data.
  Result<StoredTensor> read(const std::string& name, const Json& entry) const {
    if (entry.as<Json::Object>() == nullptr) {
      return error(name, fmt::format("is {}; it must be an object", spec::describe(entry)));
    }
    StoredTensor tensor{.name = name};
    for (const auto& step :
         {&HeaderReader::read_type, &HeaderReader::read_shape, &HeaderReader::read_range}) {
      if (Result<void> status = (this->*step)(entry, tensor); !status) {
        return status.error();
      }
    }
    return tensor;
  }

  /// The ranges, in order of offset, cover the data once.
  Result<void> check_cover(const std::vector<StoredTensor>& tensors) const {
    std::uint64_t end = 0;
    for (const StoredTensor& tensor : tensors) {
      if (tensor.offset < end) {
        return error(
            tensor.name,
            fmt::format("begins at byte {} of the data, within the tensor before it, which "
                        "ends at {}; tensors must not overlap",
                        tensor.offset,
                        end));
      }
      if (tensor.offset > end) {
        return error(tensor.name,
                     fmt::format("begins at byte {} of the data, but the tensor before it ends at "
                                 "{}; there must be no hole",
                                 tensor.offset,
                                 end));
      }
      end = tensor.offset + tensor.bytes;
    }
    if (end != data_bytes_) {
      return Error{
          Code::kCorrupt,
          fmt::format("{}: the tensors end at byte {} of {} bytes of data; they must cover "
                      "all of it",
                      file_,
                      end,
                      data_bytes_)};
    }
    return {};
  }

 private:
  Result<void> read_type(const Json& entry, StoredTensor& tensor) const {
    const Json* value = entry.find("dtype");
    const auto* name = value != nullptr ? value->as<std::string>() : nullptr;
    const auto type = name != nullptr ? find_stored_type(*name) : std::nullopt;
    if (!type) {
      return error(tensor.name,
                   fmt::format("has dtype {}; known are F32, F16, BF16 and the other types of the "
                               "safetensors format",
                               value != nullptr ? spec::describe(*value) : "missing"));
    }
    tensor.type = *type;
    return {};
  }

  Result<void> read_shape(const Json& entry, StoredTensor& tensor) const {
    const Json* value = entry.find("shape");
    const auto* sizes = value != nullptr ? value->as<Json::Array>() : nullptr;
    if (sizes == nullptr || sizes->size() > kRankMax) {
      return error(tensor.name,
                   fmt::format("has shape {}; it must be an array of at most {} sizes",
                               value != nullptr ? spec::describe(*value) : "missing",
                               kRankMax));
    }
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::uint64_t bits = stored_type_bits(tensor.type);
    for (const Json& item : *sizes) {
      const auto* size = item.as<std::int64_t>();
      if (size == nullptr || *size < 0) {
        return error(tensor.name,
                     fmt::format("has size {} in its shape; sizes are integers from 0",
                                 spec::describe(item)));
      }
      const auto factor = static_cast<std::uint64_t>(*size);
      if (factor != 0 && bits > kMax / factor) {
        return error(tensor.name, "has a shape whose product does not fit 63 bits");
      }
      bits *= factor;
      tensor.shape.push_back(*size);
    }
    if (bits % 8 != 0) {
      return error(tensor.name, fmt::format("({}) does not end at a whole byte", describe(tensor)));
    }
    tensor.bytes = bits / 8;
    return {};
  }

  Result<void> read_range(const Json& entry, StoredTensor& tensor) const {
    const Json* value = entry.find("data_offsets");
    const auto* ends = value != nullptr ? value->as<Json::Array>() : nullptr;
    const bool pair = ends != nullptr && ends->size() == 2;
    const auto* begin = pair ? (*ends)[0].as<std::int64_t>() : nullptr;
    const auto* end = pair ? (*ends)[1].as<std::int64_t>() : nullptr;
    if (begin == nullptr || end == nullptr || *begin < 0 || *end < *begin) {
      const std::string found =
          pair ? fmt::format("[{}, {}]", spec::describe((*ends)[0]), spec::describe((*ends)[1]))
               : (value != nullptr ? spec::describe(*value) : "missing");
      return error(tensor.name,
                   fmt::format("has data_offsets {}; they must be [begin, end] with 0 <= begin <= "
                               "end",
                               found));
    }
    if (std::cmp_greater(*end, data_bytes_)) {
      return error(
          tensor.name,
          fmt::format("ends at byte {}, but the file has {} bytes of data: it is truncated "
                      "or its header lies",
                      *end,
                      data_bytes_));
    }
    if (std::cmp_not_equal(*end - *begin, tensor.bytes)) {
      return error(tensor.name,
                   fmt::format("({}) has {} bytes of data; its shape takes {}",
                               describe(tensor),
                               *end - *begin,
                               tensor.bytes));
    }
    tensor.offset = static_cast<std::uint64_t>(*begin);
    return {};
  }

  [[nodiscard]] Error error(const std::string& name, std::string_view what) const {
    return {Code::kCorrupt, fmt::format("{}: tensor \"{}\" {}", file_, name, what)};
  }

  std::string_view file_;
  std::uint64_t data_bytes_;
};

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

Result<std::vector<StoredTensor>> parse_safetensors_header(std::string_view json,
                                                           std::uint64_t data_begin,
                                                           std::uint64_t data_bytes,
                                                           std::string_view file) {
  if (!json.starts_with('{')) {
    return Error{Code::kCorrupt, fmt::format("{}: the header does not begin with {{", file)};
  }
  const Result<Json> parsed = spec::parse_json(json, file);
  if (!parsed) {
    return parsed.error();
  }
  const HeaderReader reader(file, data_bytes);
  std::vector<StoredTensor> tensors;
  for (const Json::Member& member : *parsed->as<Json::Object>()) {
    if (member.key == "__metadata__") {
      continue;
    }
    Result<StoredTensor> tensor = reader.read(member.key, member.value);
    if (!tensor) {
      return tensor.error();
    }
    tensors.push_back(std::move(tensor).value());
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  if (const Result<void> covered = reader.check_cover(tensors); !covered) {
    return covered.error();
  }
  for (StoredTensor& tensor : tensors) {
    tensor.offset += data_begin;
  }
  return tensors;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  Result<File> file = File::open(path);
  if (!file) {
    return file.error();
  }
  const std::string name = path.string();
  std::array<unsigned char, kLengthBytes> prefix{};
  if (file->bytes() < prefix.size()) {
    return Error{Code::kCorrupt,
                 fmt::format("{}: {} bytes are too few for a safetensors file, which begins with 8 "
                             "bytes of header length",
                             name,
                             file->bytes())};
  }
  if (Result<void> read = file->read(0, std::as_writable_bytes(std::span(prefix))); !read) {
    return read.error();
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    length |= std::uint64_t{prefix.at(i)} << (8 * i);
  }
  const std::uint64_t rest = file->bytes() - kLengthBytes;
  if (length > kHeaderBytesMax || length > rest) {
    return Error{Code::kCorrupt,
                 fmt::format("{}: claims a header of {} bytes; the file has {} more and at most {} "
                             "are read",
                             name,
                             length,
                             rest,
                             kHeaderBytesMax)};
  }
  std::string header(length, '\0');
  const auto target = std::as_writable_bytes(std::span(header));
  if (Result<void> read = file->read(kLengthBytes, target); !read) {
    return read.error();
  }
  auto tensors = parse_safetensors_header(header, kLengthBytes + length, rest - length, name);
  if (!tensors) {
    return tensors.error();
  }
  return SafetensorsFile{.file = std::move(file).value(), .tensors = std::move(tensors).value()};
}

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json,
                                                                   std::string_view file) {
  const Result<Json> parsed = spec::parse_json(json, file);
  if (!parsed) {
    return parsed.error();
  }
  const Json* weight_map = parsed->find("weight_map");
  const auto* entries = weight_map != nullptr ? weight_map->as<Json::Object>() : nullptr;
  if (entries == nullptr) {
    return Error{Code::kCorrupt,
                 fmt::format("{}: weight_map is {}; it must be an object from tensor to file",
                             file,
                             weight_map != nullptr ? spec::describe(*weight_map) : "missing")};
  }
  std::map<std::string, std::string> shards;
  for (const Json::Member& entry : *entries) {
    const auto* shard = entry.value.as<std::string>();
    if (shard == nullptr || !is_plain_name(*shard)) {
      return Error{
          Code::kCorrupt,
          fmt::format("{}: weight_map[\"{}\"] is {}; it must be the plain name of a file in "
                      "the same directory",
                      file,
                      entry.key,
                      spec::describe(entry.value))};
    }
    shards.emplace(entry.key, *shard);
  }
  return shards;
}

}  // namespace heddle::store
