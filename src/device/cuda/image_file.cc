#include "device/cuda/image_file.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/file.h"

namespace heddle::device {
namespace {

/// How a fat binary begins: fatBinaryHeader_t of NVIDIA's fatbinary_section.h.
struct FatHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t header_bytes = 0;
  std::uint64_t bytes = 0;  ///< Behind the header.
};
constexpr std::uint32_t kFatMagic = 0xBA55ED50;
constexpr std::uint64_t kImageBytesMax = std::uint64_t{1} << 30U;

Error no_image(const std::string& path, const std::string& why) {
  return {Code::kCorrupt, path + ": " + why + "; wanted is what nvcc -fatbin makes"};
}

}  // namespace

std::optional<std::string> image_folder() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
  const char* const named = std::getenv("HEDDLE_CUDA_IMAGES");
  return named == nullptr || *named == '\0' ? std::nullopt : std::optional<std::string>(named);
}

std::string image_file(const std::string& folder, const std::string& part) {
  return folder + "/" + part + ".fatbin";
}

Result<std::vector<std::byte>> read_image(const std::string& path) {
  const Result<File> file = File::open(path);
  if (!file) {
    return file.error();
  }
  FatHeader header;
  if (file->bytes() < sizeof(header) || file->bytes() > kImageBytesMax) {
    return no_image(path, "it has " + std::to_string(file->bytes()) + " bytes");
  }
  std::vector<std::byte> image(file->bytes());
  if (const Result<void> read = file->read(0, image); !read) {
    return read.error();
  }
  std::memcpy(&header, image.data(), sizeof(header));
  if (header.magic != kFatMagic || header.header_bytes < sizeof(header)) {
    return no_image(path, "it is no fat binary");
  }
  const std::uint64_t behind =
      image.size() - std::min<std::uint64_t>(header.header_bytes, image.size());
  if (header.bytes > behind) {
    return no_image(path,
                    "it is cut short: " + std::to_string(header.bytes) +
                        " bytes are to follow its header, and " + std::to_string(behind) + " do");
  }
  return image;
}

}  // namespace heddle::device
