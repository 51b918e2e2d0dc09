#pragma once

#include <string>
#include <utility>

#include "base/result.h"

#include <dlfcn.h>

namespace heddle {

/// A library that is looked for at run time, since most machines do not have it. Once loaded it
/// stays: drivers have threads of their own and do not like to be unloaded.
class DriverLibrary {
 public:
  /// kUnavailable, with the loader's words.
  static Result<DriverLibrary> open(const std::string& name) {
    void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
      // NOLINTNEXTLINE(concurrency-mt-unsafe): the C library keeps it by thread.
      const char* why = ::dlerror();
      return Error{Code::kUnavailable, why == nullptr ? name + " cannot be loaded" : why};
    }
    return DriverLibrary(name, handle);
  }

  DriverLibrary(DriverLibrary&& other) noexcept
      : name_(std::move(other.name_)), handle_(std::exchange(other.handle_, nullptr)) {}
  DriverLibrary& operator=(DriverLibrary&&) = delete;
  DriverLibrary(const DriverLibrary&) = delete;
  DriverLibrary& operator=(const DriverLibrary&) = delete;
  ~DriverLibrary() {
    if (handle_ != nullptr) {
      (void)::dlclose(handle_);
    }
  }

  /// Points `function` at what the library has under `name`. kUnavailable: it has no such thing.
  template <class Function>
  Result<void> find(const char* name, Function*& function) const {
    void* found = ::dlsym(handle_, name);
    if (found == nullptr) {
      return Error{Code::kUnavailable, name_ + " has no " + name + ": it is too old"};
    }
    function = reinterpret_cast<Function*>(found);
    return {};
  }

 private:
  DriverLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}

  std::string name_;
  void* handle_;
};

}  // namespace heddle
