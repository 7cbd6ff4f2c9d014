// Stands for llm.c's trainer in the tests of `bench peers`: its names, and no arithmetic. What it is asked for it prints.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NUM_PARAMETER_TENSORS 1

typedef struct {
  int max_seq_len, vocab_size, padded_vocab_size, num_layers, num_heads, channels;
} GPT2Config;

typedef struct {
  GPT2Config config;
} GPT2;

static void fill_in_parameter_sizes(size_t* sizes, GPT2Config config) { sizes[0] = (size_t)config.channels; }
static void gpt2_build_from_checkpoint(GPT2* model, const char* path) { memset(model, path == NULL, sizeof *model); }
static void gpt2_forward(GPT2* model, int* ids, int* targets, size_t B, size_t T) {}
static void gpt2_zero_grad(GPT2* model) {}
static void gpt2_backward(GPT2* model) {}
static void gpt2_update(GPT2* model, float lr, float beta1, float beta2, float eps, float weight_decay, int t) {
  fprintf(stderr, "update %d: %g %g %g %g\n", t, beta1, beta2, eps, weight_decay);
}
