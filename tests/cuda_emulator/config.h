#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace emulator {

/// The machine that is emulated. Each field is a key of the text, sizes may end in KiB, MiB or GiB.
struct Config {
  std::size_t devices = 1;
  std::size_t memory = std::size_t{512} << 20U;     ///< Of each device.
  std::size_t held = 0;                             ///< Of it, by other processes.
  std::size_t granularity = std::size_t{2} << 20U;  ///< Of physical memory.
  std::size_t driver = 13000;                       ///< Version of CUDA.
  std::size_t capability = 90;                      ///< 90 is 9.0.
  std::size_t vmm = 1;                              ///< 0: no virtual memory management.
  std::size_t flags = 1;                            ///< 0: no stream operations on memory.
  std::size_t pin_max = 0;                          ///< Of host memory, at once; 0: any.
  std::size_t unmap_many = 1;                       ///< 0: pages are unmapped one by one only.
  std::size_t read_only = 1;                        ///< 0: mappings cannot be read-only.
  /// 1: host code that touches a device's memory faults, as it should, and so does a kernel that is
  /// given an address of memory that is not pinned.
  std::size_t strict = 1;
  /// 1: a kernel fails that is given an address of ordinary memory. Numbers beside padding, in
  /// which half an address was left, may look like one.
  std::size_t addresses = 0;
  std::size_t peers = 1;  ///< 0: no GPU reaches another; 2: over PCIe only.
  std::size_t link = 0;   ///< Each GPU's to the host [bytes/s]; 0: copies take no time.
  std::size_t seed = 0;   ///< Of the orders in which a kernel's threads run.
};

/// Reads "key=value,key=value" into `config`; returns what is wrong, or "".
std::string read_config(std::string_view text, Config& config);

}  // namespace emulator
