#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/document.h"
#include "config/fields.h"

namespace heddle::config {

/// Where a document comes from, and all that is wrong with it.
struct Diagnosis {
  std::string origin{};     ///< File name, for messages.
  std::string directory{};  ///< What relative paths are relative to.
  std::vector<std::string> problems{};
  std::vector<std::string> warnings{};  ///< What is read over, or will not do what was hoped for.
};

/// Reads one map of a document into the variables that are declared to it. finish() reports keys
/// that were not declared, with the nearest one that was.
class Reader final : public Fields {
 public:
  /// `where` is the dotted name of the section, empty for the root.
  Reader(const Node& node, std::string where, Diagnosis& diagnosis);

  void flag(Key key, bool& value) override;
  void integer(Key key, Range range, std::int64_t& value) override;
  void fraction(Key key, double& value) override;
  void text(Key key, std::string& value) override;
  void choice(Key key, const std::vector<std::string_view>& names, std::size_t& value) override;
  void bytes(Key key, std::uint64_t& value) override;
  void rate(Key key, std::uint64_t& value) override;
  void duration(Key key, Duration& value) override;
  void seconds(Key key, Duration& value) override;
  void path(Key key, std::string& value) override;
  void texts(Key key, std::vector<std::string>& value) override;
  void entries(Key key,
               const std::function<void(const std::string& text)>& plain,
               const Declare& declare) override;
  void command(Key key, std::vector<std::string>& value) override;
  void named_texts(Key key, std::vector<std::pair<std::string, std::string>>& value) override;
  void values(Key key, std::vector<std::pair<std::string, std::string>>& value) override;
  void section(Key key, const Declare& declare) override;
  void sections(Key key, const Declare& declare) override;
  void named_sections(Key key, const DeclareNamed& declare) override;
  void require(std::string_view key, std::string_view why) override;
  void require_one(const std::vector<std::string_view>& keys, std::string_view why) override;
  void ignore(const std::vector<std::string_view>& keys, std::string_view why) override;
  [[nodiscard]] bool has(std::string_view key) const override;
  void reject(std::string_view key, const std::string& problem) override;
  void warn(std::string_view key, const std::string& warning) override;

  /// Call after all keys were declared.
  void finish();

 private:
  const Node* find(std::string_view key);
  const Node* find(std::string_view key, Node::Kind kind, std::string_view want);
  const Node* scalar(std::string_view key, std::string_view want);
  [[nodiscard]] std::string full_name(std::string_view key) const;
  void problem(int line, std::string_view key, const std::string& text);
  /// The line of the key, or of the section when it has none such.
  [[nodiscard]] int line_of(std::string_view key) const;
  [[nodiscard]] std::string at(int line, std::string_view key, const std::string& text) const;
  void read_section(const Node& node, const std::string& where, const Declare& declare);
  template <class T>
  void store(const Node& node, const Result<T>& parsed, T& value);

  const Node& node_;
  std::string where_;
  Diagnosis& diagnosis_;
  std::set<std::string, std::less<>> known_{};
  std::set<std::string, std::less<>> malformed_{};  ///< Keys whose values could not be read.
};

/// A number from 0 to 1.
[[nodiscard]] std::optional<double> parse_fraction(std::string_view text);

}  // namespace heddle::config
