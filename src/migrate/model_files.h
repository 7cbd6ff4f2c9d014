// What stands beside the weights of a converted model.
#pragma once

#include <string>

#include "io/staged_folder.h"
#include "migrate/convert.h"

namespace lamina {

// config.json with every key of the one that was read and those that matter written out, generation_config.json, the
// tokenizer's files where they lie beside that one, conversion.json, and for MindSpore a script that loads strictly.
void write_model_files(const Conversion& conversion, const TargetFormat& format, const StagedFolder& folder);

}  // namespace lamina
