// XGBoost: trains trees for numbers and ranks, and a linear model, predicts with them, and dumps them as text.
#include <math.h>
#include <stdint.h>
#include <stdio.h>

typedef void *Handle;
typedef uint64_t Size;
const char *XGBGetLastError(void);
int XGDMatrixCreateFromMat(const float *data, Size rows, Size columns, float missing, Handle *out);
int XGDMatrixSetFloatInfo(Handle matrix, const char *field, const float *array, Size length);
int XGDMatrixFree(Handle matrix);
int XGBoosterCreate(const Handle matrices[], Size length, Handle *out);
int XGBoosterFree(Handle booster);
int XGBoosterSetParam(Handle booster, const char *name, const char *value);
int XGBoosterUpdateOneIter(Handle booster, int iteration, Handle matrix);
int XGBoosterPredict(Handle booster, Handle matrix, int options, unsigned limit, int training, Size *length,
                     const float **out);
int XGBoosterDumpModel(Handle booster, const char *names, int statistics, Size *length, const char ***out);

enum { ROWS = 1200, COLUMNS = 10, ROUNDS = 12 };
static float data[ROWS * COLUMNS], target[ROWS];

static int check(int status) {
  if (status) puts(XGBGetLastError());
  return status;
}

static int train(const char *const parameters[][2], int count) {
  Handle matrix = NULL, booster = NULL;
  if (check(XGDMatrixCreateFromMat(data, ROWS, COLUMNS, NAN, &matrix)) ||
      check(XGDMatrixSetFloatInfo(matrix, "label", target, ROWS)) || check(XGBoosterCreate(&matrix, 1, &booster)))
    return 1;
  if (check(XGBoosterSetParam(booster, "nthread", "1")) || check(XGBoosterSetParam(booster, "verbosity", "0")))
    return 1;
  for (int i = 0; i < count; ++i)
    if (check(XGBoosterSetParam(booster, parameters[i][0], parameters[i][1]))) return 1;
  for (int i = 0; i < ROUNDS; ++i)
    if (check(XGBoosterUpdateOneIter(booster, i, matrix))) return 1;
  Size length = 0, trees = 0, characters = 0;
  const float *out = NULL;
  const char **dump = NULL;
  if (check(XGBoosterPredict(booster, matrix, 0, 0, 0, &length, &out))) return 1;
  double error = 0, sum = 0;
  for (Size i = 0; i < length; ++i) error += fabs(out[i] - target[i]), sum += out[i];
  if (check(XGBoosterDumpModel(booster, "", 0, &trees, &dump))) return 1;
  for (Size i = 0; i < trees; ++i)
    for (const char *p = dump[i]; *p; ++p) characters += *p == '\n';
  printf("%s %s: %llu parts, %llu lines, error %.6f, mean %.6f\n", parameters[0][1], parameters[1][1],
         (unsigned long long)trees, (unsigned long long)characters, error / ROWS, sum / ROWS);
  XGBoosterFree(booster);
  XGDMatrixFree(matrix);
  return 0;
}

int main(void) {
  uint32_t state = 23;
  for (int i = 0; i < ROWS * COLUMNS; ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = (state >> 29) == 0 ? NAN : (float)(state >> 16) / 6553.6f - 5;
  }
#define X(k) (isnan(data[i * COLUMNS + (k)]) ? 1.5f : data[i * COLUMNS + (k)])
  for (int i = 0; i < ROWS; ++i) target[i] = X(0) * X(1) / 5 + (X(2) > 1 ? X(3) : 2 * X(4));
  typedef const char *const Parameters[][2];
  static Parameters hist = {{"tree_method", "hist"}, {"objective", "reg:squarederror"}, {"max_depth", "5"}};
  static Parameters exact = {{"tree_method", "exact"}, {"objective", "reg:absoluteerror"}, {"subsample", "0.7"}};
  static Parameters linear = {{"booster", "gblinear"}, {"objective", "reg:squarederror"}};
  static Parameters logistic = {{"tree_method", "approx"}, {"objective", "binary:logistic"}, {"max_depth", "4"}};
  if (train(hist, 3) || train(exact, 3) || train(linear, 2)) return 1;
  for (int i = 0; i < ROWS; ++i) target[i] = X(0) > X(1);
  return train(logistic, 3);
}
