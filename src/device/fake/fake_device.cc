#include "device/fake/fake_device.h"

#include <bit>
#include <cstring>

#include "base/aligned_bytes.h"
#include "base/check.h"

namespace heddle::device {
namespace {

class FakeStream final : public Stream {
 public:
  void copy(std::byte* target, const std::byte* source, std::size_t bytes) override {
    copies_.push_back({.target = target, .source = source, .bytes = bytes});
  }
  Result<void> synchronize() override {
    for (const Copy& copy : copies_) {
      std::memcpy(copy.target, copy.source, copy.bytes);
    }
    copies_.clear();
    return {};
  }

 private:
  struct Copy {
    std::byte* target = nullptr;
    const std::byte* source = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Copy> copies_{};
};

/// Counts down to a failure that was asked for.
bool is_the_one(std::uint64_t& fails_in) {
  const bool fails = fails_in == 1;
  fails_in -= fails_in > 0 ? 1U : 0U;
  return fails;
}

std::uint64_t number_of(const std::byte* address) {
  return std::bit_cast<std::uint64_t>(address);
}

}  // namespace

FakeDevice::FakeDevice(std::size_t page_bytes, std::uint64_t page_count)
    : properties_{.kind = Kind::kFake,
                  .name = "fake",
                  .page_bytes = page_bytes,
                  .page_count = page_count},
      memory_(std::make_unique<std::byte[]>(page_bytes * page_count)) {}  // NOLINT(*-c-arrays)

std::byte* FakeDevice::page_address(PageId page) const {
  HEDDLE_CHECK(page.value() < properties_.page_count);
  return &memory_[page.value() * properties_.page_bytes];
}

Result<Buffer> FakeDevice::allocate(Place /*place*/, std::size_t bytes) {
  HEDDLE_CHECK(bytes > 0);
  calls_.push_back("allocate " + std::to_string(bytes));
  if (is_the_one(allocate_fails_in_)) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "allocate " + std::to_string(bytes) + " bytes: told to fail"};
  }
  AlignedBytes memory = allocate_aligned(bytes);
  std::memset(memory.get(), 0, bytes);
  return Buffer(memory.release(), bytes, AlignedDelete{});
}

Result<AddressRange> FakeDevice::reserve(std::size_t bytes) {
  HEDDLE_CHECK(bytes > 0 && bytes % properties_.page_bytes == 0);
  calls_.push_back("reserve " + std::to_string(bytes));
  if (bytes > addresses_left_) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "reserve " + std::to_string(bytes) + " bytes of addresses: " +
                            std::to_string(addresses_left_) + " are left"};
  }
  addresses_left_ -= bytes;
  const std::uint64_t base = next_base_;
  next_base_ += bytes + properties_.page_bytes;  // A gap, so that ranges do not touch.
  ranges_.emplace(base, bytes);
  return AddressRange{.base = std::bit_cast<std::byte*>(base), .bytes = bytes};
}

void FakeDevice::release(AddressRange range) {
  calls_.push_back("release " + std::to_string(range.bytes));
  const std::uint64_t base = first_page(range, 0);
  ranges_.erase(base);
  mapped_.erase(mapped_.lower_bound(base), mapped_.lower_bound(base + range.bytes));
  addresses_left_ += range.bytes;
}

Result<void> FakeDevice::map(AddressRange range,
                             std::size_t offset,
                             std::span<const PageId> pages,
                             Access access) {
  calls_.push_back("map " + std::to_string(offset) + " " + std::to_string(pages.size()) +
                   (access == Access::kRead ? " pages" : " pages to write"));
  const std::uint64_t first = first_page(range, offset);
  HEDDLE_CHECK(pages.size() * properties_.page_bytes <= range.bytes - offset);
  if (is_the_one(map_fails_in_)) {
    return Error{.code = Code::kResourceExhausted,
                 .message = "map " + std::to_string(pages.size()) + " pages: told to fail"};
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    HEDDLE_CHECK(pages[i].value() < properties_.page_count);
    HEDDLE_CHECK(mapped_.emplace(first + i * properties_.page_bytes, pages[i]).second);
  }
  return {};
}

void FakeDevice::unmap(AddressRange range, std::size_t offset, std::size_t bytes) {
  calls_.push_back("unmap " + std::to_string(offset) + " " + std::to_string(bytes));
  const std::uint64_t first = first_page(range, offset);
  HEDDLE_CHECK(bytes % properties_.page_bytes == 0 && bytes <= range.bytes - offset);
  mapped_.erase(mapped_.lower_bound(first), mapped_.lower_bound(first + bytes));
}

Result<std::unique_ptr<Stream>> FakeDevice::create_stream() {
  return std::unique_ptr<Stream>(std::make_unique<FakeStream>());
}

std::optional<PageId> FakeDevice::page_at(const std::byte* address) const {
  const std::uint64_t start = number_of(address) / properties_.page_bytes * properties_.page_bytes;
  const auto found = mapped_.find(start);
  return found == mapped_.end() ? std::nullopt : std::optional(found->second);
}

std::size_t FakeDevice::reserved_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [base, size] : ranges_) {
    bytes += size;
  }
  return bytes;
}

/// Where `offset` of a range that is reserved begins.
std::uint64_t FakeDevice::first_page(AddressRange range, std::size_t offset) const {
  const auto found = ranges_.find(number_of(range.base));
  HEDDLE_CHECK(found != ranges_.end() && found->second == range.bytes);
  HEDDLE_CHECK(offset <= range.bytes && offset % properties_.page_bytes == 0);
  return found->first + offset;
}

}  // namespace heddle::device
