// A HuggingFace folder into a session that was compiled for it. What is generated or evaluated is the caller's
// business.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compile.h"
#include "io/hf_config.h"
#include "io/model_weights.h"
#include "runtime/session.h"

namespace lamina {

struct LoadedModel {
  ModelConfig config;
  std::vector<ParameterSpec> specs;
  std::unique_ptr<Session> session;
  std::vector<std::string> warnings;  // a line each, for people
};

struct LoadOptions {
  // What to compile; asked once the files were judged. The ISA is set here.
  std::function<CompileOptions()> needs = {};
  int threads = 1;
  int64_t memory_limit = 0;            // bytes, 0: what the machine has
  std::function<void()> poll = [] {};  // between tensors; may throw
};

// `folder` holds weights and the config.json that was read. Everything that can be wrong with the files is found before
// memory is taken.
LoadedModel load_model(const std::string& folder, HfConfig config, const LoadOptions& options);

}  // namespace lamina
