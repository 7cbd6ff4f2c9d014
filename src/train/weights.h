// A model that was named: its configuration and, for a folder, its weights, into and out of a session.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"
#include "runtime/session.h"

namespace lamina {

struct ModelSource {
  std::string name;  // as it was given
  ModelConfig config;
  bool preset = false;  // a name that is built in
  std::string folder;   // with weights (and perhaps a tokenizer); empty: training starts from GPT-2's initialisation
  std::vector<std::string> warnings;
};

// "gpt2" and its sizes, a config.json, or a model folder. Throws Error that says which of the three was tried.
ModelSource open_model(const std::string& name);

// All parameters of the folder into the session. Returns a line for people; warnings are appended.
std::string load_weights(Session& session, const std::string& folder, const ModelConfig& config,
                         const std::vector<ParameterSpec>& specs, std::vector<std::string>& warnings);

// "wte.weight, expected finite numbers, got nan", of the first tensor that is not finite all over; empty where all are.
std::string find_non_finite(const Session& session, const std::vector<ParameterSpec>& specs);

// config.json, generation_config.json and model.safetensors, each replaced by rename.
void save_model(const Session& session, const std::string& folder, const ModelConfig& config,
                const std::vector<ParameterSpec>& specs);

}  // namespace lamina
