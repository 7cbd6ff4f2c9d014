#include "verify_engine.h"

#include <filesystem>
#include <fstream>

#include "command.h"
#include "embedded/kMindsporeWitness.h"
#include "embedded/kTorchWitness.h"
#include "python_engine.h"
#include "worker.h"

namespace lamina::cli {

void check_witness_engine(const std::string& engine) {
  if (engine != "torch" && engine != "mindspore") bad_value("with", "torch or mindspore", engine);
}

Witness run_witness(const std::string& engine, const std::string& model, const ModelConfig& config,
                    const VerifyInputs& inputs, int threads) {
  const TemporaryFolder folder("lamina-verify");
  const bool torch = engine == "torch";
  const std::string worker = folder.path + "/worker.py", out = folder.path + "/out.safetensors";
  const std::string given = folder.path + "/inputs.safetensors";
  std::ofstream(worker) << (torch ? kTorchWitness : kMindsporeWitness);
  if (!torch) write_mindspore_package(folder.path);
  write_witness(given, config, {.path = given, .engine = engine, .unit = 1.0, .hash = inputs.hash(), .inputs = inputs});
  const Json task{
      {"model", std::filesystem::absolute(model).string()}, {"inputs", given}, {"out", out}, {"threads", threads}};
  const char* variable = torch ? "LAMINA_TORCH_PYTHON" : "LAMINA_MINDSPORE_PYTHON";
  run_command(fmt::format("{} as a witness of {}", engine, model), {python_of(variable, engine), worker, task.dump()},
              fmt::format("{} names a Python that has {} (tools/setup-venv.sh {} makes one)", variable,
                          torch ? "torch and transformers" : "mindspore", engine));
  return read_witness(out, config);
}

}  // namespace lamina::cli
