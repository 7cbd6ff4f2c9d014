// lamina inspect config: a model's configuration as it is understood, defaults filled in.
#include "inspect.h"
#include "io/hf_config.h"
#include "train/flops.h"
#include "train/weights.h"

namespace lamina::cli {
namespace {

struct Options {
  std::string model;
  bool json = false;
};

int run(const Options& options) {
  const ModelSource model = open_model(options.model);
  for (const std::string& warning : model.warnings) say("warning: {}", warning);
  Json out = Json::parse(hf_config_text(model.config));
  const int64_t parameters = parameter_count(model.config);
  if (options.json) {
    out["parameters"] = parameters;
    out["parameter_bytes"] = 4 * parameters;
    out["warnings"] = model.warnings;
    print_json(out);
    return 0;
  }
  for (const auto& [key, value] : out.items()) print(fmt::format("{:<34} {}\n", key, value.dump()));
  print(fmt::format("{:<34} {} ({} bytes in fp32)\n", "parameters", parameters, 4 * parameters));
  print(fmt::format("{:<34} {:.0f} at {} tokens a row\n", "training flops per token",
                    model_flops_per_token(model.config, model.config.n_positions), model.config.n_positions));
  return 0;
}

}  // namespace

void add_inspect_config(const Command& inspect) {
  const Command command = inspect.add("config", "a model's configuration, defaults filled in");
  const auto options = std::make_shared<Options>();
  command.positional("MODEL", options->model,
                     "gpt2, gpt2-medium, gpt2-large, gpt2-xl, a config.json or a model folder");
  command.run(options, &run);
}

}  // namespace lamina::cli
