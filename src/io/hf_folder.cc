#include "io/hf_folder.h"

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/hf_config.h"
#include "io/name_profile.h"
#include "io/safetensors.h"

namespace lamina {
namespace {

void save_weights(const std::string& path, const ModelConfig& config, const ParameterSource& source) {
  const NameProfile& names = *find_profile("hf");
  const std::vector<ProfileTensor> tensors = profile_tensors(names, config);
  std::vector<TensorEntry> entries;
  for (const ProfileTensor& tensor : tensors) entries.push_back({file_name(names, tensor), "F32", tensor.shape});
  AtomicFile file(path);
  SafetensorsWriter writer(file, entries);
  std::vector<float> buffer;
  for (const ProfileTensor& tensor : tensors) {
    buffer.resize(static_cast<size_t>(elements_of(tensor)));
    for (const ParameterView& view : tensor.parts)
      source(view.spec, buffer.data() + view.offset, view.stride_k, view.stride_d);
    writer.write(std::as_bytes(std::span(buffer)));
  }
  writer.finish();
  file.commit();
}

}  // namespace

void save_hf_folder(const std::string& folder, const ModelConfig& config, const ParameterSource& source) {
  make_folder(folder);
  const std::filesystem::path base(folder);
  write_file((base / "config.json").string(), hf_config_text(config));
  write_file((base / "generation_config.json").string(), generation_config_text(config));
  save_weights((base / "model.safetensors").string(), config, source);
}

}  // namespace lamina
