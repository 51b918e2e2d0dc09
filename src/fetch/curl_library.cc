#include "fetch/curl_library.h"

#include <string>
#include <type_traits>

#include <dlfcn.h>

namespace heddle::fetch {

Result<CurlLibrary> CurlLibrary::open(const char* name) {
  const auto failed = [name](const std::string& why) {
    return Error{
        Code::kFailedPrecondition,
        "libcurl is needed to fetch models: " + why + "; Debian's package libcurl4 has " + name};
  };
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return failed(::dlerror());
  }
  CurlLibrary curl;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* symbol) {
    void* const found = ::dlsym(library, symbol);
    missing = found == nullptr ? symbol : missing;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(curl.global_init, "curl_global_init");
  find(curl.easy_init, "curl_easy_init");
  find(curl.easy_reset, "curl_easy_reset");
  find(curl.easy_cleanup, "curl_easy_cleanup");
  find(curl.easy_setopt, "curl_easy_setopt");
  find(curl.easy_getinfo, "curl_easy_getinfo");
  find(curl.easy_perform, "curl_easy_perform");
  find(curl.easy_strerror, "curl_easy_strerror");
  find(curl.slist_append, "curl_slist_append");
  find(curl.slist_free_all, "curl_slist_free_all");
  if (missing != nullptr) {
    ::dlclose(library);
    return failed(std::string(name) + " has no " + missing);
  }
  if (const CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK) {
    return failed(curl.easy_strerror(code));
  }
  return curl;  // It stays loaded: its threads and handlers are the process's.
}

const Result<CurlLibrary>& curl_library() {
  static const Result<CurlLibrary> library = CurlLibrary::open("libcurl.so.4");
  return library;
}

}  // namespace heddle::fetch
