// Whole training steps of GPT-2 in llm.c's C trainer, for `lamina bench peers`, one for each line on standard input. Its
// train_gpt2.c is found through -I and brings its own functions; this file only calls them.
//   usage: llmc CHECKPOINT BATCH SEQ WARMUP VOCAB POSITIONS LAYERS HEADS CHANNELS BETA1 BETA2 EPS WEIGHT_DECAY
// It has no accumulation, no dropout and no clipping, and its weight decay is that of every parameter.
#define TESTING
#include "train_gpt2.c"

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static long peak_bytes(void) {
  char line[256];
  long kib = 0;
  FILE* status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL)
    if (sscanf(line, "VmHWM: %ld kB", &kib) == 1) break;
  if (status != NULL) fclose(status);
  return kib * 1024;
}

// Weights of about GPT-2's size: uniform around 0. The vocabulary is padded to a multiple of 128, as llm.c's own files do.
static void write_checkpoint(const char* path, const int* shape) {
  int header[256] = {20240326, 3, shape[1], shape[0], shape[2], shape[3], shape[4], (shape[0] + 127) / 128 * 128};
  GPT2Config config = {header[2], header[3], header[7], header[4], header[5], header[6]};
  size_t sizes[NUM_PARAMETER_TENSORS], count = 0;
  fill_in_parameter_sizes(sizes, config);
  for (int i = 0; i < NUM_PARAMETER_TENSORS; ++i) count += sizes[i];
  FILE* file = fopen(path, "wb");
  if (file == NULL || fwrite(header, sizeof header, 1, file) != 1) exit(1);
  unsigned state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    float value = ((float)(state >> 8) / 8388608.0f - 1.0f) * 0.035f;
    if (fwrite(&value, sizeof value, 1, file) != 1) exit(1);
  }
  if (fclose(file) != 0) exit(1);
}

int main(int argc, char** argv) {
  if (argc != 14) return 2;
  float adamw[4];
  for (int i = 0; i < 4; ++i) adamw[i] = strtof(argv[10 + i], NULL);
  int B = atoi(argv[2]), T = atoi(argv[3]), warmup = atoi(argv[4]), shape[5], done = 0;
  for (int i = 0; i < 5; ++i) shape[i] = atoi(argv[5 + i]);
  write_checkpoint(argv[1], shape);
  int out = dup(1);
  dup2(2, 1);  // what it prints about itself is for people
  FILE* answers = fdopen(out, "w");
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  remove(argv[1]);
  int* ids = (int*)malloc(sizeof(int) * (size_t)(B * T + 1));
  for (int i = 0; i <= B * T; ++i) ids[i] = (int)((unsigned)i * 2654435761u % (unsigned)shape[0]);
  double first = 0.0, start = 0.0;
  char line[64];
  while (done < warmup || fgets(line, sizeof line, stdin) != NULL) {
    start = now_ms();
    gpt2_forward(&model, ids, ids + 1, (size_t)B, (size_t)T);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, adamw[0], adamw[1], adamw[2], adamw[3], ++done);
    if (done == 1) first = now_ms() - start;
    if (done > warmup) fprintf(answers, "{\"step_ms\": %.3f}\n", now_ms() - start);
    if (done == warmup) fprintf(answers, "{\"ready\": true}\n");
    fflush(answers);
  }
  fprintf(answers,
          "{\"engine_version\": \"C, compiled here\", \"process_peak_bytes\": %ld, \"compile_ms\": %.3f, \"vocab_size\": %d, "
          "\"settings\": \"-Ofast -march=native -fopenmp\"}\n",
          peak_bytes(), first, (shape[0] + 127) / 128 * 128);
  fclose(answers);
  return 0;
}
