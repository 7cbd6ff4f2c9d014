// lamina_rewrite FROM FORMAT TO: streams the tensors of a file of any format into another, names as they are. What the
// Python tests load with the programs that the formats belong to.
#include <cstdio>
#include <map>

#include "base/error.h"
#include "io/formats.h"

namespace {

using namespace lamina;

int run(const std::string& from, WeightFormat format, const std::string& to) {
  const TensorFile file(from);
  check_sums(file.content(), from);
  std::vector<TensorEntry> entries;
  for (const StoredTensor& tensor : file.content().tensors)
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
  AtomicFile out(to);
  TensorWriter writer(format, out, entries);
  for (const StoredTensor& tensor : file.content().tensors) {
    for_each_part(tensor, [&](std::span<const std::byte> part) { writer.write(part); });
    file.forget(tensor);
  }
  writer.finish();
  out.commit();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, WeightFormat> formats{{"safetensors", WeightFormat::safetensors},
                                                    {"mindspore-safetensors", WeightFormat::mindspore_safetensors},
                                                    {"torch", WeightFormat::torch},
                                                    {"mindspore-ckpt", WeightFormat::mindspore_ckpt}};
  if (argc != 4 || !formats.contains(argv[2])) {
    std::fprintf(stderr, "usage: lamina_rewrite FROM FORMAT TO\n");
    return 2;
  }
  try {
    return run(argv[1], formats.at(argv[2]), argv[3]);
  } catch (const Error& error) {
    std::fprintf(stderr, "lamina: error: %s\n", error.what());
    return 1;
  }
}
