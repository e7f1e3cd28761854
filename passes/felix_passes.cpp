#include "felix_passes.h"

#include "apply_tuned.h"
#include "canonical.h"
#include "extract_tasks.h"

#include <cstdio>

namespace felix {
namespace {

struct ApplyTunedPass {
  static constexpr std::string_view name = "FelixApplyTuned";
  static constexpr std::string_view argument = "felix-apply-tuned";
  static constexpr std::string_view description = "Set tuned configurations of dispatches";

  Tuned tuned;
  bool requireLanded;
  void (*onLanding)(const char *line, void *user);
  void *user;

  void run(MlirOperation module, MlirExternalPass pass) const {
    for (const Landing &landing : applyTuned(module, tuned)) {
      if (onLanding)
        for (const std::string &line : landing.lines())
          onLanding(line.c_str(), user);
      if (requireLanded && landing.isFound() && !landing.hasLanded()) {
        mlirEmitError(mlirOperationGetLocation(module), landing.message().c_str());
        mlirExternalPassSignalFailure(pass);
      }
    }
  }
};

struct ExtractTasksPass {
  static constexpr std::string_view name = "FelixExtractTasks";
  static constexpr std::string_view argument = "felix-extract-tasks";
  static constexpr std::string_view description = "Write the configured dispatches to a file";

  std::string path;

  void run(MlirOperation module, MlirExternalPass pass) const {
    const std::string problem = writeTasks(module, path);
    if (problem.empty())
      return;
    mlirEmitError(mlirOperationGetLocation(module), (messagePrefix + problem).c_str());
    mlirExternalPassSignalFailure(pass);
  }
};

template <typename Pass> void addPass(MlirPassManager pm, Pass pass) {
  // MLIR knows a pass by an address, and wants it aligned.
  alignas(8) static const char id = 0;
  MlirExternalPassCallbacks callbacks;
  callbacks.construct = [](void *) {};
  callbacks.destruct = [](void *self) { delete static_cast<Pass *>(self); };
  callbacks.initialize = nullptr;
  callbacks.clone = [](void *self) -> void * { return new Pass(*static_cast<Pass *>(self)); };
  callbacks.run = [](MlirOperation op, MlirExternalPass external, void *self) {
    static_cast<Pass *>(self)->run(op, external);
  };
  mlirPassManagerAddOwnedPass(
      pm, mlirCreateExternalPass(mlirTypeIDCreate(&id), stringRef(Pass::name),
                                 stringRef(Pass::argument), stringRef(Pass::description),
                                 stringRef("builtin.module"), 0, nullptr, callbacks,
                                 new Pass(std::move(pass))));
}

} // namespace
} // namespace felix

bool felixAddApplyTunedPass(MlirPassManager pm, const char *path, bool requireLanded,
                            void (*onLanding)(const char *line, void *user), void *user,
                            char *error, size_t errorSize) {
  // Counted by IREE. It is never given back: the process of a caller may need it after us.
  ireeCompilerGlobalInitialize();
  std::string problem;
  std::optional<felix::Tuned> tuned = felix::readTuned(path, problem);
  if (!tuned) {
    std::snprintf(error, errorSize, "%s", problem.c_str());
    return false;
  }
  felix::addPass(pm, felix::ApplyTunedPass{std::move(*tuned), requireLanded, onLanding, user});
  return true;
}

void felixAddExtractTasksPass(MlirPassManager pm, const char *path) {
  felix::addPass(pm, felix::ExtractTasksPass{path});
}

void felixCanonicalForm(MlirOperation op, void (*sink)(const char *, size_t, void *), void *user) {
  const std::string form = felix::canonicalForm(op);
  sink(form.data(), form.size(), user);
}

void felixDifference(const char *form, const char *other,
                     void (*sink)(const char *, size_t, void *), void *user) {
  if (const std::optional<std::string> what = felix::difference(form, other))
    sink(what->data(), what->size(), user);
}
