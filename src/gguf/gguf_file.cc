#include "gguf/gguf_file.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "gguf/part_name.h"

namespace heddle::gguf {
namespace {

namespace fs = std::filesystem;

struct Part {
  File file;
  Header header{};
};

Result<Part> open_part(const fs::path& path, Keep keep) {
  Result<File> file = File::open(path);
  if (!file) {
    return file.error();
  }
  const ReadAt read = [&file](std::uint64_t offset, std::span<std::byte> target) {
    return file->read(offset, target);
  };
  Result<Header> header = parse_header(read, file->bytes(), path.string(), keep);
  if (!header) {
    return header.error();
  }
  return Part{.file = std::move(*file), .header = std::move(*header)};
}

/// An integer of the metadata, `otherwise` where there is none.
std::int64_t integer_or(const Metadata& metadata, std::string_view key, std::int64_t otherwise) {
  const auto found = metadata.find(key);
  const auto* number =
      found == metadata.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return number != nullptr ? *number : otherwise;
}

}  // namespace

bool is_gguf(const fs::path& path) {
  std::error_code ignored;
  return path.native().ends_with(kGgufEnd) && fs::is_regular_file(path, ignored);
}

std::vector<fs::path> part_paths(const fs::path& path) {
  const auto part = part_name(path.filename().string());
  if (!part) {
    return {path};
  }
  std::vector<fs::path> paths;
  for (int number = 1; number <= part->count; ++number) {
    paths.push_back(path.parent_path() /
                    fmt::format("{}-{:05}-of-{:05}{}", part->stem, number, part->count, kGgufEnd));
  }
  return paths;
}

Result<GgufFile> GgufFile::open(const fs::path& path, Keep keep) {
  const std::vector<fs::path> paths = part_paths(path);
  if (path != paths.front()) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{} is a later part of a split model; give its first, {}",
                             path.string(),
                             paths.front().filename().string())};
  }
  GgufFile model{.name = path.string()};
  std::set<std::string> names;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Result<Part> part = open_part(paths[i], keep);
    if (!part) {
      return part.error();
    }
    const std::int64_t number = integer_or(part->header.metadata, "split.no", 0);
    const std::int64_t count = integer_or(part->header.metadata, "split.count", 1);
    if (std::cmp_not_equal(number, i) ||
        std::cmp_not_equal(std::max<std::int64_t>(count, 1), paths.size())) {
      return Error{Code::kCorrupt,
                   fmt::format("{} says that it is part {} of {}; by its name it is part {} of {}",
                               paths[i].string(),
                               number + 1,
                               count,
                               i + 1,
                               paths.size())};
    }
    for (Tensor& tensor : part->header.tensors) {
      if (!names.insert(tensor.name).second) {
        return Error{
            Code::kCorrupt,
            fmt::format(
                "{}: tensor \"{}\" is in a part before it, too", paths[i].string(), tensor.name)};
      }
      tensor.file = i;
      model.tensors.push_back(std::move(tensor));
    }
    if (i == 0) {
      model.version = part->header.version;
      model.metadata = std::move(part->header.metadata);
    }
    model.files.push_back(std::move(part->file));
  }
  const std::int64_t said =
      integer_or(model.metadata, "split.tensors.count", std::ssize(model.tensors));
  if (said != std::ssize(model.tensors)) {
    return Error{
        Code::kCorrupt,
        fmt::format("{}: key \"split.tensors.count\" is {}, but its {} parts have {} tensors",
                    model.name,
                    said,
                    paths.size(),
                    model.tensors.size())};
  }
  return model;
}

const Value* GgufFile::find(std::string_view key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

const Tensor* GgufFile::tensor(std::string_view wanted) const {
  const auto found = std::ranges::find(tensors, wanted, &Tensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace heddle::gguf
