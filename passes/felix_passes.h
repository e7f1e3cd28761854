// The C API of libFelixPasses.so: the passes felix-apply-tuned and felix-extract-tasks, both on
// builtin.module, and the canonical form by itself.

#ifndef FELIX_PASSES_FELIX_PASSES_H
#define FELIX_PASSES_FELIX_PASSES_H

#include "mlir_c.h"

#define FELIX_EXPORTED __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/// Adds the pass that applies a result folder or its configurations.mlir to a module at the phase
/// executable-configurations. When it runs it calls `onLanding` (unless null) with a line about
/// each dispatch of each task; it fails if a configuration does not land where it belongs and
/// `requireLanded`.
///
/// Returns false, with one line in `error`, and adds nothing if the file cannot be read.
FELIX_EXPORTED bool felixAddApplyTunedPass(MlirPassManager pm, const char *path, bool requireLanded,
                                           void (*onLanding)(const char *line, void *user),
                                           void *user, char *error, size_t errorSize);

/// Adds the pass that writes the tasks of a module at the phase executable-configurations to a
/// file, and changes nothing.
FELIX_EXPORTED void felixAddExtractTasksPass(MlirPassManager pm, const char *path);

/// Calls `sink` with the canonical form of a configured dispatch function.
FELIX_EXPORTED void felixCanonicalForm(MlirOperation op, void (*sink)(const char *, size_t, void *),
                                       void *user);

/// Calls `sink` with what differs between two forms ("" for nothing); not at all if it is the ops
/// or how they are connected.
FELIX_EXPORTED void felixDifference(const char *form, const char *other,
                                    void (*sink)(const char *, size_t, void *), void *user);

#ifdef __cplusplus
}
#endif

#endif // FELIX_PASSES_FELIX_PASSES_H
