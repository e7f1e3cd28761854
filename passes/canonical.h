// The canonical form of a configured dispatch: one text for all dispatches that need the same code.

#ifndef FELIX_PASSES_CANONICAL_H
#define FELIX_PASSES_CANONICAL_H

#include "mlir_c.h"

#include <optional>
#include <string>
#include <string_view>

namespace felix {

/// The form of a dispatch function (inside its hal.executable.variant) at the phase
/// executable-configurations.
///
/// The first line is the executable target, then every op has one, operands before users:
/// `%number = name(operands) {attributes} : result types`. Blocks begin with `^(argument types)`,
/// regions lie between lines of one brace. Names, locations, the order of independent ops, the
/// values of constant tensors, the bindings and the tile sizes do not show.
/// felix_mlir/passes/canonical.py writes the same text.
std::string canonicalForm(MlirOperation function);

/// In what two forms differ ("" for the same form), nothing if it is the ops or how they are
/// connected.
std::optional<std::string> difference(std::string_view form, std::string_view other);

} // namespace felix

#endif // FELIX_PASSES_CANONICAL_H
