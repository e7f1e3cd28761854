// The command line of felix-iree-compile: its own flags, and those of iree-compile that the
// embedding API hides.

#ifndef FELIX_PASSES_COMMAND_LINE_H
#define FELIX_PASSES_COMMAND_LINE_H

#include "arguments.h"

#include <optional>
#include <string>

namespace felix {

/// The phases of iree-compile, in order.
enum class Phase {
  Start,
  Input,
  ABI,
  Preprocessing,
  GlobalOptimization,
  DispatchCreation,
  Flow,
  Stream,
  ExecutableSources,
  ExecutableConfigurations,
  ExecutableTargets,
  HAL,
  VM,
  End,
};

/// What iree-compile calls a phase.
const char *nameOf(Phase phase);

struct CommandLine {
  // Ours.
  std::optional<std::string> tuned;
  std::optional<std::string> extractTasks;
  bool requireLanded = true;
  bool printLanded = false;

  // Options that iree-compile's main function has to itself, with its defaults.
  std::optional<std::string> input;
  std::string output = "-";
  std::string outputFormat = "vm-bytecode";
  Phase compileFrom = Phase::Start;
  Phase compileTo = Phase::End;
  std::string dumpCompilationPhasesTo;
  bool emitMLIRBytecode = false;
  int emitMLIRBytecodeVersion = -1;
  bool verify = true;
  std::string remarksFilter;
  std::string remarksOutputFile = "mlir-remarks.yaml";

  /// All else: for LLVM's parser.
  Arguments rest;
};

/// What is wrong with a command line, in one line, and the exit status for it.
struct UsageProblem {
  int status;
  std::string message;
};

/// The help for our flags.
extern const char *const felixHelp;

/// Reads a command line without the program's name. `line.input` stays empty if there is no bare
/// word.
std::optional<UsageProblem> parseCommandLine(const Arguments &arguments, CommandLine &line);

} // namespace felix

#endif // FELIX_PASSES_COMMAND_LINE_H
