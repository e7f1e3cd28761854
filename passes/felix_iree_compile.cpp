// felix-iree-compile: iree-compile plus the flags --felix-*.
//
// Without them it is the stock tool. With them the module is taken out of the compiler at the phase
// executable-configurations, tuned configurations are written to its dispatches, and the compiler
// goes on from there. The module is never serialised in between: bytecode loses weights that are
// packed in attributes at that phase, and text would spell them out. Rewrites are applied by a flag
// of iree-compile; the module is taken out after that phase too, to see that they were.

#include "apply_tuned.h"
#include "command_line.h"
#include "extract_tasks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace {

using namespace felix;
namespace fs = std::filesystem;

struct Destroy {
  void operator()(iree_compiler_session_t *it) const { ireeCompilerSessionDestroy(it); }
  void operator()(iree_compiler_invocation_t *it) const { ireeCompilerInvocationDestroy(it); }
  void operator()(iree_compiler_source_t *it) const { ireeCompilerSourceDestroy(it); }
  void operator()(iree_compiler_output_t *it) const { ireeCompilerOutputDestroy(it); }
};

template <typename T> using Owned = std::unique_ptr<T, Destroy>;

struct GlobalCompiler {
  GlobalCompiler() { ireeCompilerGlobalInitialize(); }
  ~GlobalCompiler() { ireeCompilerGlobalShutdown(); }
};

void say(const std::string &kind, const std::string &message) {
  std::fprintf(stderr, "%s%s\n", kind.c_str(), message.c_str());
}

int refuse(const UsageProblem &problem) {
  say("felix-iree-compile: ", problem.message);
  return problem.status;
}

bool succeeded(iree_compiler_error_t *error, const char *kind) {
  if (!error)
    return true;
  say(kind, ireeCompilerErrorGetMessage(error));
  ireeCompilerErrorDestroy(error);
  return false;
}

/// One run of the compiler over one input.
class Compilation {
public:
  Compilation(const CommandLine &line, const Tuned *tuned)
      : line(line), tuned(tuned), session(ireeCompilerSessionCreate()), reached(line.compileFrom) {}

  /// Returns the exit status.
  int run() {
    if (!open())
      return 1;
    if (line.compileFrom >= line.compileTo) {
      // IREE has words for this.
      runTo(line.compileTo);
      return 1;
    }
    if (line.compileTo >= Phase::Preprocessing && !seeRewrites())
      return 1;
    const bool isEarly = line.compileTo < Phase::ExecutableConfigurations;
    if (const int status = isEarly ? stopEarly() : configure(); status != 0)
      return status;
    if (reached != line.compileTo && !runTo(line.compileTo))
      return 1;
    if (!succeeded(emit(), "error: "))
      return 1;
    ireeCompilerOutputKeep(output.get());
    return 0;
  }

private:
  bool open() {
    iree_compiler_source_t *opened = nullptr;
    auto *error = ireeCompilerSourceOpenFile(session.get(), line.input->c_str(), &opened);
    source.reset(opened);
    if (!succeeded(error, "error opening input file: "))
      return false;
    iree_compiler_output_t *created = nullptr;
    error = ireeCompilerOutputOpenFile(line.output.c_str(), &created);
    output.reset(created);
    if (!succeeded(error, "error opening output file: "))
      return false;
    invocation.reset(ireeCompilerInvocationCreate(session.get()));
    iree_compiler_invocation_t *inv = invocation.get();
    ireeCompilerInvocationEnableConsoleDiagnostics(inv);
    ireeCompilerInvocationSetVerifyIR(inv, line.verify);
    ireeCompilerInvocationSetupRemarks(inv, line.remarksFilter.c_str(),
                                       line.remarksOutputFile.c_str());
    const bool isParsed = ireeCompilerInvocationParseSource(inv, source.get());
    // Remarks are on now. Importing a module would turn them on again, and empty the file.
    ireeCompilerInvocationSetupRemarks(inv, "", "");
    return isParsed;
  }

  bool runTo(Phase phase) {
    const fs::path folder = line.dumpCompilationPhasesTo, apart = folder / ".resumed";
    const bool dumpsApart = !folder.empty() && reached != line.compileFrom;
    iree_compiler_invocation_t *inv = invocation.get();
    ireeCompilerInvocationSetDumpCompilationPhasesTo(inv, (dumpsApart ? apart : folder).c_str());
    ireeCompilerInvocationSetCompileFromPhase(inv, nameOf(reached));
    ireeCompilerInvocationSetCompileToPhase(inv, nameOf(phase));
    const bool isDone = ireeCompilerInvocationPipeline(inv, IREE_COMPILER_PIPELINE_STD);
    if (dumpsApart)
      moveDumps(apart, folder, reached);
    reached = phase;
    return isDone;
  }

  /// Keeps the dumps of a run that resumed at `first`, but for those of phases before it.
  static void moveDumps(const fs::path &from, const fs::path &to, Phase first) {
    std::error_code ignored;
    for (const fs::directory_entry &dump : fs::directory_iterator(from, ignored)) {
      // They are called MODULE.NUMBER.PHASE.mlir.
      const std::string number = dump.path().stem().stem().extension().string();
      if (!number.empty() && std::atoi(number.c_str() + 1) >= static_cast<int>(first))
        fs::rename(dump.path(), to / dump.path().filename(), ignored);
    }
    fs::remove_all(from, ignored);
  }

  /// Calls `visit` with the module while the compiler does not hold it.
  template <typename Visit> bool withModule(Visit visit) {
    const MlirOperation module = ireeCompilerInvocationExportStealModule(invocation.get());
    visit(module);
    return ireeCompilerInvocationImportStealModule(invocation.get(), module);
  }

  /// Finds out which rewrites were applied. Returns whether the compiler got there.
  bool seeRewrites() {
    if (!tuned || !tuned->rewrites)
      return true;
    return (reached == Phase::Preprocessing || runTo(Phase::Preprocessing)) &&
           withModule(
               [&](MlirOperation module) { rewrites = checkRewrites(module, *tuned->rewrites); });
  }

  /// Says what comes of a result in a compilation that ends before configurations enter. Returns
  /// the exit status.
  int stopEarly() const {
    const std::string what = rewrites.empty() ? "nothing is" : "only rewrites are";
    say("felix: ", what + " applied before the phase executable-configurations");
    return report();
  }

  /// Gets the configurations into the module and into code. Returns the exit status.
  int configure() {
    if (reached != Phase::ExecutableConfigurations && !runTo(Phase::ExecutableConfigurations))
      return 1;
    std::string problem;
    const bool isImported = withModule([&](MlirOperation module) {
      if (line.extractTasks)
        problem = writeTasks(module, *line.extractTasks);
      if (tuned)
        landings = applyTuned(module, *tuned);
    });
    if (!problem.empty())
      say("error: felix: ", problem);
    if (!problem.empty() || !isImported)
      return 1;
    if (!tuned)
      return 0;
    if ((line.requireLanded && (isForAnother() || isAnyLost())) ||
        line.compileTo == Phase::ExecutableConfigurations)
      return report();
    const bool isGenerated =
        runTo(Phase::ExecutableTargets) &&
        withModule([&](MlirOperation module) { checkWorkgroups(module, *tuned, landings); });
    const int status = report();
    return isGenerated ? status : 1;
  }

  static bool isFound(const Landing &landing) { return landing.isFound(); }
  static bool isLost(const Landing &landing) { return landing.isFound() && !landing.hasLanded(); }
  static bool isRewritten(const RewriteLanding &rewrite) { return rewrite.hasLanded; }
  bool isAnyLost() const {
    return !std::all_of(rewrites.begin(), rewrites.end(), isRewritten) ||
           std::any_of(landings.begin(), landings.end(), isLost);
  }
  bool isForAnother() const {
    return !(rewrites.empty() && landings.empty()) &&
           std::none_of(rewrites.begin(), rewrites.end(), isRewritten) &&
           std::none_of(landings.begin(), landings.end(), isFound);
  }

  void printLandings() const {
    if (!line.printLanded)
      return;
    for (const RewriteLanding &rewrite : rewrites)
      say("", rewrite.message());
    for (const Landing &landing : landings)
      for (const std::string &message : landing.lines())
        say("", message);
  }

  /// Says what became of the result. Returns the exit status.
  int report() const {
    printLandings();
    if (line.requireLanded && isForAnother())
      return refuseOther();
    for (const RewriteLanding &rewrite : rewrites)
      if (!rewrite.hasLanded)
        say(line.requireLanded ? "error: " : "warning: ", rewrite.message());
    for (const Landing &landing : landings)
      if (!landing.hasLanded())
        say(line.requireLanded && landing.isFound() ? "error: " : "warning: ", landing.message());
    return line.requireLanded && isAnyLost() ? 1 : 0;
  }

  int refuseOther() const {
    const int status = refuse({2, *line.tuned + " was tuned for another model or target (" +
                                      tuned->model + "): none of its " +
                                      (rewrites.empty() ? "" : "ops and ") + "tasks is here"});
    for (const Landing &landing : landings)
      if (!landing.near.empty())
        say("  task " + landing.task + " ", landing.problem());
    return status;
  }

  iree_compiler_error_t *emit() const {
    iree_compiler_invocation_t *inv = invocation.get();
    if (line.compileTo == Phase::End && line.outputFormat == "vm-bytecode")
      return ireeCompilerInvocationOutputVMBytecode(inv, output.get());
    if (line.compileTo == Phase::End && line.outputFormat == "vm-c")
      return ireeCompilerInvocationOutputVMCSource(inv, output.get());
    if (line.emitMLIRBytecode)
      return ireeCompilerInvocationOutputIRBytecode(inv, output.get(),
                                                    line.emitMLIRBytecodeVersion);
    return ireeCompilerInvocationOutputIR(inv, output.get());
  }

  const CommandLine &line;
  const Tuned *tuned;
  Owned<iree_compiler_session_t> session;
  Owned<iree_compiler_source_t> source;
  Owned<iree_compiler_output_t> output;
  Owned<iree_compiler_invocation_t> invocation;
  Phase reached;
  std::vector<RewriteLanding> rewrites;
  std::vector<Landing> landings;
};

int runStockTool(char *program, Arguments arguments) {
  std::vector<char *> pointers{program};
  for (std::string &argument : arguments)
    pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return ireeCompilerRunMain(static_cast<int>(pointers.size() - 1), pointers.data());
}

} // namespace

int main(int argc, char **argv) {
  const Arguments arguments(argv + 1, argv + argc);
  if (asksForHelp(arguments)) {
    std::fputs(felixHelp, stdout);
    std::fflush(stdout);
  }
  if (asksForInformation(arguments) || !hasFelixFlag(arguments))
    return runStockTool(argv[0], withoutFelixFlags(arguments));
  CommandLine line;
  if (const auto problem = parseCommandLine(arguments, line))
    return refuse(*problem);
  // The stock tool has words for this.
  if (!line.input)
    return runStockTool(argv[0], withoutFelixFlags(arguments));

  const GlobalCompiler compiler;
  std::optional<Tuned> tuned;
  if (line.tuned) {
    std::string problem;
    tuned = readTuned(*line.tuned, problem);
    if (!tuned)
      return refuse({2, problem});
    // Where the input is beyond their phase it has them already.
    if (line.compileFrom > Phase::Preprocessing)
      tuned->rewrites.reset();
    if (tuned->rewrites && hasSpecFlag(line.rest))
      return refuse({2, std::string("--") + specFlagName + " can't be used here: " + *line.tuned +
                            " brings its own rewrites"});
  }
  const Arguments flags = withFlags(tuned ? &*tuned : nullptr, line.rest);
  std::vector<const char *> pointers{argv[0]};
  for (const std::string &flag : flags)
    pointers.push_back(flag.c_str());
  pointers.push_back(nullptr);
  ireeCompilerSetupGlobalCL(static_cast<int>(pointers.size() - 1), pointers.data(),
                            "IREE compilation driver\n", /*installSignalHandlers=*/true);
  return Compilation(line, tuned ? &*tuned : nullptr).run();
}
