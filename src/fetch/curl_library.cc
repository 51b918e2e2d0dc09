#include "fetch/curl_library.h"

#include <string>

#include "base/driver_library.h"

namespace heddle::fetch {

Result<CurlLibrary> CurlLibrary::open(const char* name) {
  const auto failed = [name](const std::string& why) {
    return Error{
        Code::kFailedPrecondition,
        "libcurl is needed to fetch models: " + why + "; Debian's package libcurl4 has " + name};
  };
  const Result<DriverLibrary> library = DriverLibrary::open(name);
  if (!library) {
    return failed(library.error().message);
  }
  CurlLibrary curl;
  Result<void> found;
  const auto find = [&](const char* symbol, auto& function) {
    found = found ? library->find(symbol, function) : found;
  };
  find("curl_global_init", curl.global_init);
  find("curl_easy_init", curl.easy_init);
  find("curl_easy_reset", curl.easy_reset);
  find("curl_easy_cleanup", curl.easy_cleanup);
  find("curl_easy_setopt", curl.easy_setopt);
  find("curl_easy_getinfo", curl.easy_getinfo);
  find("curl_easy_perform", curl.easy_perform);
  find("curl_easy_strerror", curl.easy_strerror);
  find("curl_slist_append", curl.slist_append);
  find("curl_slist_free_all", curl.slist_free_all);
  if (!found) {
    return failed(found.error().message);
  }
  if (const CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK) {
    return failed(curl.easy_strerror(code));
  }
  return curl;
}

const Result<CurlLibrary>& curl_library() {
  static const Result<CurlLibrary> library = CurlLibrary::open("libcurl.so.4");
  return library;
}

}  // namespace heddle::fetch
