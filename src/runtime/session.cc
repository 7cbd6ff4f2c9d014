#include "runtime/session.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "kernels/arithmetic.h"

namespace lamina {
namespace {

void check_memory(const Plan& plan, int threads, int64_t limit) {
  const int64_t needed = plan.total_bytes(threads);
  const int64_t available = available_memory();
  if (limit > 0) check_memory_limit(plan, threads, limit);
  if (available >= 0 && needed > available)
    throw_error(ErrorCode::memory,
                "not enough memory for the plan: this machine, expected at least {} bytes available, got {}", needed,
                available);
}

bool can_run(const Kernel& kernel) {
  const KernelTable& table = table_of(kernel);
  return cpu_has(table.isa, table.arithmetic);
}

}  // namespace

int64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string key, unit;
  int64_t value = 0;
  while (info >> key >> value >> unit)
    if (key == "MemAvailable:") return value * 1024;
  return -1;
}

void check_memory_limit(const Plan& plan, int threads, int64_t limit) {
  if (const int64_t needed = plan.total_bytes(threads); needed > limit)
    throw_error(ErrorCode::memory, "not enough memory for the plan: the limit, expected at least {} bytes, got {}",
                needed, limit);
}

Memory::Memory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
  if (bytes == 0) return;
  void* address = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    bytes_ = 0;
    throw_error(ErrorCode::memory, "not enough memory: the system refused {} bytes", bytes);
  }
  data_ = static_cast<std::byte*>(address);
  ::madvise(address, bytes_, MADV_HUGEPAGE);
}

Memory::~Memory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Session::Session(Plan plan, int threads, int64_t memory_limit) : plan_(std::move(plan)), team_(threads) {
  check_memory(plan_, threads, memory_limit);
  for (size_t i = 0; i < regions_.size(); ++i) regions_[i] = Memory(plan_.region_bytes[i]);
  scratch_stride_ = (plan_.scratch_bytes + 4095) / 4096 * 4096;
  scratch_ = Memory(scratch_stride_ * threads);
  bind();
}

void Session::bind() {
  std::unordered_map<std::string_view, const Kernel*> kernels;
  size_t operands = 0;
  for (const PlanProgram& program : plan_.programs)
    for (const PlanStep& step : program.steps) operands += step.in.size() + step.out.size();
  operands_.reserve(operands);
  const auto bind_list = [&](const std::vector<int32_t>& list) {
    const TensorArg* first = operands_.data() + operands_.size();
    for (int32_t index : list) {
      if (index < 0) {
        operands_.push_back({});
        continue;
      }
      const PlanTensor& tensor = plan_.tensors[static_cast<size_t>(index)];
      operands_.push_back({address(tensor), tensor.shape, tensor.layout, tensor.dtype});
    }
    return first;
  };
  for (const PlanProgram& program : plan_.programs) {
    std::vector<Launch>& launches = programs_.emplace_back();
    launches.reserve(program.steps.size());
    for (const PlanStep& step : program.steps) {
      const Kernel*& kernel = kernels[step.kernel];
      if (kernel == nullptr) kernel = find_kernel_by_id(step.kernel);
      if (kernel == nullptr || kernel->op != step.op || !can_run(*kernel))
        throw_error(ErrorCode::invalid, "plan does not fit this machine: step {} needs kernel {}", step.name,
                    step.kernel);
      Args args;
      args.in = bind_list(step.in);
      args.out = bind_list(step.out);
      args.n_in = static_cast<int32_t>(step.in.size());
      args.n_out = static_cast<int32_t>(step.out.size());
      args.attrs = std::visit([](const auto& attrs) -> const void* { return &attrs; }, step.attrs);
      args.precision = step.precision;
      LAMINA_CHECK(kernel->tasks(args) == step.tasks && kernel->scratch(args) <= plan_.scratch_bytes,
                   "step {} of the plan: {} tasks and {} bytes of scratch, its kernel wants {} and {}", step.name,
                   step.tasks, plan_.scratch_bytes, kernel->tasks(args), kernel->scratch(args));
      for_each_phase(*kernel, args, step.tasks, [&](int64_t first, int64_t end) {
        launches.push_back({kernel->run, args, first, end - first});
      });
    }
  }
}

int32_t Session::index(std::string_view name) const {
  const int32_t found = plan_.find_tensor(name);
  if (found < 0) throw_error(ErrorCode::invalid, "no such tensor in the plan: {}", name);
  return found;
}

std::byte* Session::address(const PlanTensor& tensor) const {
  return regions_[static_cast<size_t>(tensor.region)].data() + tensor.offset;
}

ProgramId Session::program(std::string_view name) const {
  for (size_t i = 0; i < plan_.programs.size(); ++i)
    if (plan_.programs[i].name == name) return static_cast<ProgramId>(i);
  return ProgramId::none;
}

bool Session::has_tensor(std::string_view name) const { return plan_.find_tensor(name) >= 0; }

const PlanTensor& Session::tensor(std::string_view name) const {
  return plan_.tensors[static_cast<size_t>(index(name))];
}

template <typename T>
std::span<T> Session::view(std::string_view name, Dtype dtype) {
  const PlanTensor& found = tensor(name);
  if (found.dtype != dtype || found.layout.kind != LayoutKind::row_major)
    throw_error(ErrorCode::invalid, "tensor {} is {} {}, expected {} row_major", name, dtype_name(found.dtype),
                found.layout.text(), dtype_name(dtype));
  return {reinterpret_cast<T*>(address(found)), static_cast<size_t>(found.shape.elements())};
}

std::span<float> Session::floats(std::string_view name) { return view<float>(name, Dtype::f32); }
std::span<int32_t> Session::ints(std::string_view name) { return view<int32_t>(name, Dtype::i32); }
std::span<int64_t> Session::longs(std::string_view name) { return view<int64_t>(name, Dtype::i64); }

void Session::write(std::string_view name, const MatrixView& from) {
  const PlanTensor& to = tensor(name);
  auto* data = reinterpret_cast<float*>(address(to));
  const int64_t rows = to.shape.rows(), columns = to.shape.last();
  if (to.layout.kind == LayoutKind::panel) {
    pack_panel(from.data, from.stride_row, from.stride_column, data, rows, columns, to.layout.nr);
    return;
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      data[i * columns + j] = from.data[i * from.stride_row + j * from.stride_column];
}

void Session::read(std::string_view name, float* to, int64_t stride_row, int64_t stride_column) const {
  const PlanTensor& from = tensor(name);
  const auto* data = reinterpret_cast<const float*>(address(from));
  const int64_t rows = from.shape.rows(), columns = from.shape.last();
  if (from.layout.kind == LayoutKind::panel) {
    unpack_panel(data, to, stride_row, stride_column, rows, columns, from.layout.nr);
    return;
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * stride_row + j * stride_column] = data[i * columns + j];
}

void Session::fill(std::string_view name, float value) {
  const PlanTensor& to = tensor(name);
  auto* data = reinterpret_cast<float*>(address(to));
  if (value == 0.0f || to.layout.kind == LayoutKind::row_major) {
    std::fill_n(data, storage_elements(to.shape, to.layout), value);
    return;
  }
  write(name, {&value, 0, 0});  // the padding of a panel stays zero
}

void Session::run(ProgramId program) noexcept {
  const FlushDenormals flush;
  struct Context {
    const Launch* launch;
    std::byte* scratch;
    int64_t stride;
  };
  for (const Launch& launch : programs_[static_cast<size_t>(program)]) {
    Context context{&launch, scratch_.data(), scratch_stride_};
    team_.run(
        launch.tasks,
        [](void* pointer, int64_t task, int thread) noexcept {
          const Context& c = *static_cast<const Context*>(pointer);
          const int64_t own = c.launch->first + task;
          c.launch->run(c.launch->args, own, own + 1, c.scratch + thread * c.stride);
        },
        &context);
  }
}

}  // namespace lamina
