// What tests of conversions share: Tiny as a folder, a conversion of it, and the account of one.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "io/hf_config.h"
#include "io/tiny.h"
#include "migrate/convert.h"

namespace lamina {

using Json = nlohmann::json;
using test::expect_error;
using test::read_bytes;
using test::TempDir;
using test::tensor_of;
using test::tiny_config;
using test::tiny_safetensors;
using test::tiny_tensors;
using test::TinyFile;

inline const std::function<void()> kNoPoll = [] {};

inline std::string put_model(const TempDir& dir, const std::string& name, const TinyFile& file,
                             const ModelConfig& config = tiny_config()) {
  dir.write(name + "/config.json", hf_config_text(config));
  dir.write(name + "/model.safetensors", tiny_safetensors(file));
  return dir.file(name);
}

inline Conversion there(const std::string& from, const std::string& to, const std::string& format,
                        const std::string& names = "", const std::string& names_from = "") {
  return convert({.from = from, .to = to, .format = format, .names_from = names_from, .names_to = names}, kNoPoll);
}

inline Json account(const std::string& folder) { return Json::parse(read_bytes(folder + "/conversion.json")); }

}  // namespace lamina
