// lamina plan: what a run of training would need, before anything runs.
#include "plan_report.h"

namespace lamina::cli {
namespace {

struct Options : ShapeOptions {
  bool json = false;
};

template <OptionsOf<Options> O, typename F>
void for_each_option(O& options, F&& f) {
  for_each_shape_option(options, f);
}

int run(const Options& options) {
  validate(options);
  const CompiledModel model = compile_model(options, true);
  const int64_t available = available_memory();
  if (const int64_t needed = model.compiled.plan.total_bytes(model.threads); available >= 0 && needed > available)
    say("warning: this plan needs {} and this machine has {} now: see --recompute and --memory-limit",
        bytes_text(needed), bytes_text(available));
  const Prediction prediction = predict(model);
  Json summary = plan_summary_json(model);
  if (options.json) {
    summary["predicted_step_ms"] = prediction.step_ms;
    summary["available_bytes"] = available < 0 ? Json(nullptr) : Json(available);
    summary["operations"] = prediction.operations;
    summary["bytes_moved"] = prediction.bytes;
    summary["rates"] = {{"fp32_gflops", prediction.rates.flops_per_s * 1e-9},
                        {"memory_gb_s", prediction.rates.bytes_per_s * 1e-9}};
    print_json(summary);
  } else {
    print(fmt::format("model {}: {} parameters, batch {} x {} tokens, {} micro-batches, {} on {}\n", model.model.name,
                      summary["parameters"].get<int64_t>(), model.options.batch, model.options.seq,
                      model.options.accumulate, options.precision, isa_name(model.options.isa)));
    if (options.precision != "fp32") print(precision_text(model));
    print(fmt::format("plan {}: compiled in {:.1f} ms, {:.3f} Tflop a step\n", model.compiled.plan.digest,
                      model.compiled.compile_ms, summary["model_flops"].get<double>() * 1e-12));
    print(fmt::format("nodes: forward {} (before the passes {}), backward {} (before {})\n",
                      model.compiled.forward_nodes, model.compiled.forward_nodes_before, model.compiled.backward_nodes,
                      model.compiled.backward_nodes_before));
    print(prediction_text(prediction) + recompute_text(model) + nodes_text(model) + memory_text(model));
  }
  check_memory_limit(options, model);
  return 0;
}

}  // namespace

void add_plan(const Command& program) {
  const Command command = program.add("plan", "memory, operations and nodes of a training run, before it runs");
  const auto options = std::make_shared<Options>();
  command.options(*options);
  command.run(options, &run);
}

}  // namespace lamina::cli
