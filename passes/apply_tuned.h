// Writing tuned configurations into a compiled module, and saying of them and of rewrites which
// landed.

#ifndef FELIX_PASSES_APPLY_TUNED_H
#define FELIX_PASSES_APPLY_TUNED_H

#include "tuned.h"

#include <string>
#include <utility>
#include <vector>

namespace felix {

/// What everything this project says about a task or a rewritten op begins with.
inline constexpr const char *messagePrefix = "felix: ";

/// What became of a tuned task: `executables` has, for each dispatch of its form, "" or why it did
/// not land. `near` says, where there is no such dispatch, which one differs least and in what (""
/// for none).
struct Landing {
  std::string task;
  std::vector<std::pair<std::string, std::string>> executables;
  std::string near;

  bool isFound() const { return !executables.empty(); }
  bool hasLanded() const;

  /// Why it is not in the module, in one line; "" if it is.
  std::string problem() const;

  /// The task and its problem as one message.
  std::string message() const { return messagePrefix + ("task " + task + " ") + problem(); }

  /// A line per dispatch, or the one that says there is none.
  std::vector<std::string> lines() const;
};

/// Whether a root op of a result was rewritten.
struct RewriteLanding {
  std::string root;
  bool hasLanded;

  std::string message() const;
};

/// Says which rewrites were applied to a module, right after the phase preprocessing.
std::vector<RewriteLanding> checkRewrites(MlirOperation module, const Rewrites &rewrites);

/// Sets the configuration of every dispatch whose form is a task's, in place. `module` is at the
/// phase executable-configurations. A configuration landed when all compute ops carry it; whether
/// code generation heeds it shows later, see `checkWorkgroups`.
std::vector<Landing> applyTuned(MlirOperation module, const Tuned &tuned);

/// Adds to `landings` (those of `tuned`) where generated code launches other workgroups than
/// configured. `module` is at the phase executable-targets. This catches a pipeline that ignores
/// the configuration.
void checkWorkgroups(MlirOperation module, const Tuned &tuned, std::vector<Landing> &landings);

} // namespace felix

#endif // FELIX_PASSES_APPLY_TUNED_H
