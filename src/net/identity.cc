#include "net/identity.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace heddle::net {

namespace {

constexpr std::array<std::string_view, 3> kRoles = {"manager", "gateway", "agent"};
constexpr std::size_t kNameMost = 200;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

Error malformed(const std::string& why) {
  return {.code = Code::kInvalidArgument,
          .message = why + "; want heddle://CLUSTER/ROLE/NAME, the role manager, gateway or agent"};
}

}  // namespace

std::string_view name(Role role) {
  return kRoles[static_cast<std::size_t>(role)];
}

Result<Role> parse_role(std::string_view text) {
  const auto* const found = std::find(kRoles.begin(), kRoles.end(), text);
  if (found == kRoles.end()) {
    return Error{.code = Code::kInvalidArgument,
                 .message = "there is no such role; want manager, gateway or agent"};
  }
  return static_cast<Role>(found - kRoles.begin());
}

Result<void> check_name(std::string_view what, std::string_view text) {
  const bool sane = !text.empty() && text.size() <= kNameMost && is_plain(text.front()) &&
                    std::all_of(text.begin(), text.end(), [](char c) {
                      return is_plain(c) || c == '.' || c == '-' || c == '_';
                    });
  if (sane) {
    return {};
  }
  return Error{.code = Code::kInvalidArgument,
               .message = "the name of the " + std::string(what) +
                          " cannot be used; want 1 to 200 letters, digits, '.', '-' and '_', of "
                          "which the first is a letter or a digit"};
}

std::string Identity::uri() const {
  return std::string(kScheme) + cluster + "/" + std::string(net::name(role)) + "/" + name;
}

std::string Identity::text() const {
  return std::string(net::name(role)) + " \"" + name + "\" of cluster \"" + cluster + "\"";
}

Result<Identity> parse_identity(std::string_view uri) {
  if (!uri.starts_with(kScheme)) {
    return malformed("it does not begin with heddle://");
  }
  const std::string_view rest = uri.substr(kScheme.size());
  const std::size_t first = rest.find('/');
  const std::size_t second = first == std::string_view::npos ? first : rest.find('/', first + 1);
  if (second == std::string_view::npos) {
    return malformed("it has fewer than three parts");
  }
  const std::string_view cluster = rest.substr(0, first);
  const std::string_view name = rest.substr(second + 1);
  const Result<Role> role = parse_role(rest.substr(first + 1, second - first - 1));
  if (!role) {
    return malformed("its role is none");
  }
  for (const Result<void>& checked :
       {check_name("cluster", cluster), check_name("process", name)}) {
    if (!checked) {
      return checked.error();
    }
  }
  return Identity{.cluster = std::string(cluster), .role = *role, .name = std::string(name)};
}

}  // namespace heddle::net
