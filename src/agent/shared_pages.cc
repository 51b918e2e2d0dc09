#include "agent/shared_pages.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>
#include <string>

#include "base/descriptor_limit.h"
#include "base/log.h"
#include "rpc/frame.h"

#include <fcntl.h>

namespace heddle::agent {
namespace {

/// Of the descriptors that this process may have, those of lent pages may be one in so many: as
/// many again are on their way to a worker.
constexpr std::uint64_t kPartOfDescriptors = 4;

/// A descriptor of the same memory; none where that cannot be had, which is logged.
rpc::Descriptor duplicate(const rpc::Descriptor& descriptor) {
  rpc::Descriptor copy(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    log::warning("a lent page cannot be passed on", {{"error", std::strerror(errno)}});
  }
  return copy;
}

/// `make(pages, descriptors)` of as many pages at once as a frame takes.
template <class Make>
void in_frames(std::span<const std::pair<PageId, const rpc::Descriptor*>> pages, const Make& make) {
  for (std::size_t first = 0; first < pages.size(); first += rpc::kFrameDescriptorsMax) {
    const std::size_t count = std::min(pages.size() - first, rpc::kFrameDescriptorsMax);
    std::vector<PageId> numbers;
    std::vector<rpc::Descriptor> descriptors;
    for (const auto& [page, descriptor] : pages.subspan(first, count)) {
      rpc::Descriptor copy = descriptor == nullptr ? rpc::Descriptor() : duplicate(*descriptor);
      if (descriptor == nullptr || copy) {
        numbers.push_back(page);
      }
      if (copy) {
        descriptors.push_back(std::move(copy));
      }
    }
    if (!numbers.empty()) {
      make(std::move(numbers), std::move(descriptors));
    }
  }
}

}  // namespace

Result<std::vector<SharedPages::Message>> SharedPages::share(DeviceId host,
                                                             ModelId model,
                                                             const std::vector<PageId>& pages) {
  const auto found = pages_.find({host, model});
  const auto more = static_cast<std::size_t>(std::ranges::count_if(
      pages, [&](PageId page) { return found == pages_.end() || !found->second.contains(page); }));
  if (size() + more > descriptor_limit() / kPartOfDescriptors) {
    return Error{Code::kResourceExhausted,
                 "lend " + std::to_string(more) + " pages of a GPU beside " +
                     std::to_string(size()) + ": each takes a descriptor, of which " +
                     std::to_string(descriptor_limit()) + " may be open; raise LimitNOFILE or " +
                     "ulimit -n, or have larger pages"};
  }
  Pages& own = pages_[{host, model}];
  std::vector<std::pair<PageId, const rpc::Descriptor*>> known;
  std::vector<std::pair<PageId, const rpc::Descriptor*>> fresh;
  for (const PageId page : pages) {
    const rpc::Descriptor& descriptor = own[page];
    if (descriptor) {
      known.emplace_back(page, &descriptor);
    } else {
      fresh.emplace_back(page, nullptr);
    }
  }
  std::vector<Message> messages;
  const auto add = [&](std::vector<PageId> numbers, std::vector<rpc::Descriptor> descriptors) {
    messages.push_back({.body = rpc::ShareGuests{.model = model, .pages = std::move(numbers)},
                        .descriptors = std::move(descriptors)});
  };
  in_frames(known, add);
  in_frames(fresh, add);
  return messages;
}

bool SharedPages::keep(DeviceId host,
                       const core::GuestsShared& shared,
                       std::vector<rpc::Descriptor> descriptors) {
  if (descriptors.size() != (shared.failure ? 0 : shared.pages.size())) {
    return false;
  }
  const auto own = pages_.find({host, shared.model});
  for (std::size_t i = 0; own != pages_.end() && i < descriptors.size(); ++i) {
    if (const auto page = own->second.find(shared.pages[i]); page != own->second.end()) {
      page->second = std::move(descriptors[i]);
    }
  }
  return true;
}

std::vector<SharedPages::Message> SharedPages::pass(DeviceId host,
                                                    ModelId model,
                                                    const std::vector<PageId>& pages,
                                                    std::int64_t device_pages) const {
  std::vector<std::pair<PageId, const rpc::Descriptor*>> known;
  const auto own = pages_.find({host, model});
  for (const PageId page : pages) {
    const auto found = own == pages_.end() ? Pages::const_iterator() : own->second.find(page);
    if (own != pages_.end() && found != own->second.end() && found->second) {
      known.emplace_back(page, &found->second);
    }
  }
  std::vector<Message> messages;
  in_frames(known, [&](std::vector<PageId> numbers, std::vector<rpc::Descriptor> descriptors) {
    messages.push_back({.body = rpc::GuestMemory{.model = model,
                                                 .pages = std::move(numbers),
                                                 .device_pages = device_pages},
                        .descriptors = std::move(descriptors)});
  });
  return messages;
}

void SharedPages::lease(DeviceId host, ModelId model, const std::vector<PageId>& pages) {
  const auto own = pages_.find({host, model});
  if (own == pages_.end()) {
    return;
  }
  const std::set<PageId> keep(pages.begin(), pages.end());
  std::erase_if(own->second, [&](const auto& entry) { return !keep.contains(entry.first); });
  if (own->second.empty()) {
    pages_.erase(own);
  }
}

std::size_t SharedPages::size() const {
  std::size_t size = 0;
  for (const auto& [key, pages] : pages_) {
    size += pages.size();
  }
  return size;
}

}  // namespace heddle::agent
