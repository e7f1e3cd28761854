// Arguments of a command line as LLVM's parser sees them, and what to know before it reads them.

#ifndef FELIX_PASSES_ARGUMENTS_H
#define FELIX_PASSES_ARGUMENTS_H

#include "tuned.h"

#include <optional>
#include <string>
#include <vector>

namespace felix {

using Arguments = std::vector<std::string>;

/// One argument: one or two dashes, a name, perhaps `=value`; or a bare word.
struct Token {
  bool isFlag;
  std::string name;
  std::optional<std::string> value;

  explicit Token(const std::string &argument);
  bool isFelix() const { return name.rfind("felix-", 0) == 0; }
};

/// The flag of iree-compile that names a script to apply in the phase preprocessing.
inline constexpr const char *specFlagName = "iree-preprocessing-transform-spec-filename";

bool hasFelixFlag(const Arguments &arguments);
bool hasSpecFlag(const Arguments &arguments);
bool asksForHelp(const Arguments &arguments);

/// Whether iree-compile answers and exits instead of compiling: help, version, lists.
bool asksForInformation(const Arguments &arguments);

Arguments withoutFelixFlags(const Arguments &arguments);

/// The flags to compile with in front of `arguments`: those a result was tuned with, but for those
/// that `arguments` set (none that selects a target, if any of `arguments` does), those IREE needs
/// to mark root ops, and the one that applies rewrites.
Arguments withFlags(const Tuned *tuned, const Arguments &arguments);

} // namespace felix

#endif // FELIX_PASSES_ARGUMENTS_H
