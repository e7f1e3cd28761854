// Tuned configurations as a file: `configurations.mlir`, a module with one empty module per task
// and all of it in attributes, and the script of rewrites beside it. felix_mlir/passes/tuned.py
// describes and writes both.

#ifndef FELIX_PASSES_TUNED_H
#define FELIX_PASSES_TUNED_H

#include "dispatch.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace felix {

inline constexpr int64_t tunedFormat = 1;

/// The configuration of one task. `form` is the canonical form of the dispatches it is for,
/// `workgroups` how many workgroups generated code must launch if the configuration took effect
/// (nothing where that is not known).
struct TunedTask {
  std::string id;
  std::string form;
  ConfigurationAttributes attributes;
  std::optional<int64_t> workgroups;
};

/// What a result rewrites: the ids of root ops, and the file of the transform script that does so.
struct Rewrites {
  std::vector<std::string> roots;
  std::string script;
};

/// A tuning result to compile with. `model` says what it was tuned on, `compiler` with which
/// version of iree-base-compiler. `targetFlags` and `modelFlags` are those of iree-compile that
/// select `target` and that the configurations were tuned with. The tasks are those of the model as
/// `rewrites` leave it.
struct Tuned {
  std::string model;
  std::string target;
  std::string compiler;
  std::vector<std::string> targetFlags;
  std::vector<std::string> modelFlags;
  std::vector<TunedTask> tasks;
  std::optional<Rewrites> rewrites;
};

/// Those of `roots` that a module has no replacement for: a model's after preprocessing, or a
/// script.
std::set<std::string> missingRoots(MlirOperation module, const std::vector<std::string> &roots);

/// Reads a result folder or its configurations.mlir, made with the version of iree-base-compiler at
/// hand. Returns nothing for anything else, and in `error` one line that says what is wrong. IREE
/// must be initialised.
std::optional<Tuned> readTuned(const std::string &path, std::string &error);

} // namespace felix

#endif // FELIX_PASSES_TUNED_H
