// embedding, embedding_bwd, select_rows: copies chosen by an index. Indices are not differentiated.
#pragma once

#include "kernels/ref/math.h"

namespace lamina::ref {

// The table is (C, V), as the weight of a linear layer from C to V is, so that a tied table has one home.
template <typename S>
void embedding(const RefCall<S>& call) {
  const RefTensor<S>& table = *call.in[0];
  const RefTensor<S>& ids = *call.in[1];
  const int64_t C = table.shape[0];
  const int64_t V = table.shape[1];
  for (size_t i = 0; i < ids.ints.size(); ++i)
    for (int64_t c = 0; c < C; ++c)
      call.out[0]->values[i * static_cast<size_t>(C) + static_cast<size_t>(c)] =
          table.values[static_cast<size_t>(c * V + ids.ints[i])];
}

template <typename S>
void embedding_bwd(const RefCall<S>& call) {
  const RefTensor<S>& dy = *call.in[0];
  const RefTensor<S>& ids = *call.in[1];
  RefTensor<S>& dtable = *call.out[0];
  const int64_t C = dtable.shape[0];
  const int64_t V = dtable.shape[1];
  add_optional(call, 2, 0);
  for (size_t i = 0; i < ids.ints.size(); ++i)
    for (int64_t c = 0; c < C; ++c)
      dtable.values[static_cast<size_t>(c * V + ids.ints[i])] +=
          dy.values[i * static_cast<size_t>(C) + static_cast<size_t>(c)];
}

template <typename S>
void select_rows(const RefCall<S>& call) {
  const RefTensor<S>& x = *call.in[0];
  const RefTensor<S>& index = *call.in[1];
  const int64_t B = x.shape[0];
  const int64_t T = x.shape[1];
  const int64_t C = x.shape[2];
  for (int64_t b = 0; b < B; ++b)
    for (int64_t c = 0; c < C; ++c)
      call.out[0]->values[static_cast<size_t>(b * C + c)] =
          x.values[static_cast<size_t>((b * T + index.ints[static_cast<size_t>(b)]) * C + c)];
}

}  // namespace lamina::ref
