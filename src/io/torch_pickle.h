// What the pickle of a torch file means: tensors as windows on storages, and plain values beside them. The names that a
// file may use are the list at the top of the source; each is recognised, none is called.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "io/element_type.h"
#include "io/pickle.h"
#include "io/tensor_content.h"

namespace lamina {

// A storage as a pickle refers to it. An untyped one has no type and counts bytes.
struct TorchStorage {
  std::string_view key;
  const ElementType* type = nullptr;
  int64_t count = 0;
  int64_t bytes() const { return type == nullptr ? count : count * type->bytes; }
};

// The names that may occur in such a file.
std::span<const std::string_view> torch_callables();

// Of a node of kind `persistent`. Throws Error(invalid).
TorchStorage torch_storage(const Pickle& pickle, PickleId id, const std::string& where);

// The bytes of a storage, exactly storage.bytes() of them; throws where the file has no such storage.
using StorageBytes = std::function<std::span<const std::byte>(const TorchStorage& storage)>;

// Tensors and values by dotted names, in the order of the dictionaries. A file that is one tensor gives it an empty
// name.
void read_torch_tree(const Pickle& pickle, const StorageBytes& storages, const std::string& where,
                     TensorContent& content);

}  // namespace lamina
