// The dispatches of a module and the configurations they carry, as tasks.

#ifndef FELIX_PASSES_EXTRACT_TASKS_H
#define FELIX_PASSES_EXTRACT_TASKS_H

#include "mlir_c.h"

#include <string>

namespace felix {

/// The tasks of a module at the phase executable-configurations, in order of appearance, as text in
/// the style of configurations.mlir: per task the executables of its form, the form, and the
/// configuration of the first.
std::string extractTasks(MlirOperation module);

/// Writes `extractTasks(module)` to a file. Returns what is wrong in one line, "" for nothing.
std::string writeTasks(MlirOperation module, const std::string &path);

} // namespace felix

#endif // FELIX_PASSES_EXTRACT_TASKS_H
