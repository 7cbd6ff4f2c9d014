// lamina_rewrite FROM FORMAT TO: streams the tensors of a file of any format into another, names as they are. What the
// Python tests load with the programs that the formats belong to.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

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
  static const std::map<std::string, WeightFormat> kFormats = {
      {"safetensors", WeightFormat::safetensors},
      {"mindspore-safetensors", WeightFormat::mindspore_safetensors},
      {"torch", WeightFormat::torch},
      {"mindspore-ckpt", WeightFormat::mindspore_ckpt}};
  CLI::App app("rewrites a file of tensors");
  std::string from, to;
  WeightFormat format{};
  app.add_option("from", from)->required();
  app.add_option("format", format)->required()->transform(CLI::CheckedTransformer(kFormats));
  app.add_option("to", to)->required();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(from, format, to);
  } catch (const Error& error) {
    std::fprintf(stderr, "lamina: error: %s\n", error.what());
    return 1;
  }
}
