// lamina inspect graph: a program as the compiler has it, at the end or after one of its passes.
#include <algorithm>
#include <array>

#include "graph/text.h"
#include "inspect.h"
#include "observe/graph_export.h"
#include "plan_report.h"

namespace lamina::cli {
namespace {

constexpr std::array<const char*, 7> kPrograms{"step", "micro_step", "update", "eval", "forward", "prefill", "decode"};

struct Options : ShapeOptions {
  std::string program;
  std::string after;
  std::string format = "text";
  bool json = false;
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& o, F&& f) {
  f(
      OptionRow{
          "program", "NAME",
          "step, micro_step, update, eval, forward, prefill or decode (default: step, with --accumulate micro_step)"},
      o.program);
  f(OptionRow{"after", "PASS", "the graph after this pass (default: after the last one)"}, o.after);
  f(OptionRow{"format", "FORMAT", "text, dot or json"}, o.format);
  for_each_shape_option(o, f);
}

void check(const Options& options) {
  validate(options);
  if (options.format != "text" && options.format != "dot" && options.format != "json")
    bad_value("format", "text, dot or json", options.format);
  const bool known =
      std::any_of(kPrograms.begin(), kPrograms.end(), [&](const char* n) { return options.program == n; });
  if (!options.program.empty() && !known)
    bad_value("program", "step, micro_step, update, eval, forward, prefill or decode", options.program);
  if (!options.after.empty()) check_pass_names({options.after});
}

// Which programs are compiled follows from the one that is asked for.
CompileOptions requested(const Options& options, const ModelConfig& config, const std::string& program) {
  CompileOptions out = compile_options(options, config);
  out.train = program == "step" || program == "micro_step" || program == "update";
  out.keep_gradients = program == "micro_step" || program == "update";
  out.eval = program == "eval";
  out.forward = program == "forward";
  if (program == "prefill" || program == "decode") out.generate_batch = options.batch;
  return out;
}

Graph compiled_graph(const Options& options, const ModelConfig& config) {
  const std::string program = !options.program.empty() ? options.program
                              : options.accumulate > 1 ? "micro_step"
                                                       : "step";
  if (program == "step" && options.accumulate > 1)
    throw_error(ErrorCode::usage,
                "contradiction: --program step and --accumulate {}: such a run has micro_step and update",
                options.accumulate);
  CompileOptions request = requested(options, config, program);
  std::optional<Graph> after;
  request.pipeline.observe = [&](const Graph& graph, std::string_view pass) {
    if (graph.name == program && pass == options.after) after = graph;
  };
  Compiled compiled = compile(config, request);
  if (!options.after.empty()) {
    if (!after) throw_error(ErrorCode::invalid, "pass {} does not run on program {}", options.after, program);
    return std::move(*after);
  }
  for (Graph& graph : compiled.graphs)
    if (graph.name == program) return std::move(graph);
  throw_error(ErrorCode::invalid, "no such program in the plan: {}", program);
}

int run(const Options& options) {
  check(options);
  const ModelSource model = open_model(options.model);
  for (const std::string& warning : model.warnings) say("warning: {}", warning);
  const Graph graph = compiled_graph(options, with_dropout(model.config, options.dropout));
  if (options.json || options.format == "json")
    print_json(graph_json(graph));
  else
    print(options.format == "dot" ? graph_dot(graph) : to_text(graph));
  return 0;
}

}  // namespace

void add_inspect_graph(const Command& inspect) {
  const Command command = inspect.add("graph", "a program as a graph, after any pass");
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli
