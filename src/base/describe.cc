#include "base/describe.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace heddle {

namespace {

using Kind = Type::Kind;

/// Ends the process: a description is code, and this one is wrong.
void must(bool good, const std::string& what) {
  if (!good) {
    detail::check_failed(what.c_str(), __FILE__, __LINE__);
  }
}

/// Whether a field that is absent on a wire reads as it is in `initial`, and in its range.
bool reads_back(const Field& field, const void* initial);

/// Whether all elements of an array of structs are as their type is by default.
bool plain_elements(const Type& type, const void* value) {
  const Type& element = *type.element;
  const auto* at = static_cast<const std::byte*>(type.list.data(value));
  for (std::size_t i = 0; i < type.list.fixed; ++i, at += element.bytes) {
    for (const Field& field : element.fields) {
      const auto* const usual = static_cast<const std::byte*>(element.initial) + field.offset;
      if (field.type->number_like()
              ? !std::equal(usual, usual + field.type->bytes, at + field.offset)
              : !reads_back(field, at)) {
        return false;
      }
    }
  }
  return true;
}

bool reads_back(const Field& field, const void* initial) {
  const void* value = static_cast<const std::byte*>(initial) + field.offset;
  const Type& type = *field.type;
  switch (type.kind) {
    case Kind::kText:
      return static_cast<const std::string*>(value)->empty();
    case Kind::kOptional:
      return type.peek(value) == nullptr;
    case Kind::kStruct:
      return std::all_of(type.fields.begin(), type.fields.end(), [value](const Field& inner) {
        return reads_back(inner, value);
      });
    case Kind::kList:
      return type.element->number_like() ||
             (type.list.fixed > 0 ? plain_elements(type, value) : type.list.size(value) == 0);
    case Kind::kSigned: {
      const std::int64_t number = type.bytes == sizeof(std::int32_t)
                                      ? *static_cast<const std::int32_t*>(value)
                                      : *static_cast<const std::int64_t*>(value);
      return type.bytes < sizeof(std::int32_t) || number >= field.least;
    }
    default:
      return true;
  }
}

/// The greatest number of so many bytes, which may be signed.
std::uint64_t greatest(std::size_t bytes, bool is_signed) {
  return std::numeric_limits<std::uint64_t>::max() >> (64 - 8 * bytes + (is_signed ? 1 : 0));
}

void set_bounds(Field& field) {
  const Type* type = field.type;
  while (type->element != nullptr) {
    type = type->element;
  }
  const auto most = static_cast<std::uint64_t>(field.range.most);
  switch (type->kind) {
    case Kind::kBool:
      field.most = 1;
      return;
    case Kind::kEnum:
      field.most = type->values.size() - 1;
      return;
    case Kind::kUnsigned:
      field.most = greatest(type->bytes, false);
      field.most = field.range.most < Range{}.most ? std::min(field.most, most) : field.most;
      return;
    case Kind::kSigned:
      field.most = std::min(greatest(type->bytes, true), most);
      field.least =
          std::max(field.range.least, -static_cast<std::int64_t>(greatest(type->bytes, true)) - 1);
      return;
    default:
      return;
  }
}

}  // namespace

void Fields::add(Field field) {
  set_bounds(field);
  const std::string what = std::string(type_.name) + "." + std::string(field.name);
  constexpr std::uint32_t kNumberMost = 999;
  must(field.number > 0 && field.number <= kNumberMost, what + ": numbers are from 1 to 999");
  must(type_.find(field.number) == nullptr,
       what + ": number " + std::to_string(field.number) + " is there twice");
  if (field.number >= type_.by_number.size()) {
    type_.by_number.resize(field.number + 1, -1);
  }
  type_.by_number[field.number] = static_cast<std::int16_t>(type_.fields.size());
  type_.fields.push_back(field);
}

namespace described {

void finish_struct(Type& type) {
  for (const Field& field : type.fields) {
    if (field.type->kind == Kind::kVariant) {
      must(type.variant == nullptr, std::string(type.name) + ": more than one variant");
      type.variant = &field;
    }
    must(reads_back(field, type.initial),
         std::string(type.name) + "." + std::string(field.name) +
             ": what it is by default must be empty, and in its range");
  }
}

void finish_optional(const Type& type) {
  must(type.element->kind < Kind::kOptional || type.element->kind == Kind::kVariant,
       "an optional of an optional or a list");
}

void finish_list(const Type& type) {
  must(type.element->kind < Kind::kOptional || type.element->kind == Kind::kVariant,
       "a list of optionals or lists");
}

void finish_variant(const Type& type) {
  for (std::size_t i = 0; i < type.alternatives.size(); ++i) {
    const Type& one = *type.alternatives[i];
    must(one.kind == Kind::kStruct && one.number > 0,
         std::string(one.name) + ": an alternative without a number of its own");
    for (std::size_t j = 0; j < i; ++j) {
      must(type.alternatives[j]->number != one.number,
           std::string(one.name) + ": number " + std::to_string(one.number) + " is " +
               std::string(type.alternatives[j]->name) + "'s, too");
    }
  }
}

}  // namespace described
}  // namespace heddle
