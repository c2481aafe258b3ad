// LightGBM: trains trees for classes and for numbers, predicts with them, and saves them as text.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void *Handle;
int LGBM_DatasetCreateFromMat(const void *data, int type, int32_t rows, int32_t columns, int row_major,
                              const char *parameters, const Handle reference, Handle *out);
int LGBM_DatasetSetField(Handle dataset, const char *name, const void *data, int count, int type);
int LGBM_DatasetFree(Handle dataset);
int LGBM_BoosterCreate(const Handle dataset, const char *parameters, Handle *out);
int LGBM_BoosterUpdateOneIter(Handle booster, int *finished);
int LGBM_BoosterPredictForMat(Handle booster, const void *data, int type, int32_t rows, int32_t columns, int row_major,
                              int kind, int start, int count, const char *parameters, int64_t *length, double *out);
int LGBM_BoosterSaveModelToString(Handle booster, int start, int count, int importance, int64_t size, int64_t *length,
                                  char *out);
int LGBM_BoosterFree(Handle booster);
const char *LGBM_GetLastError(void);

enum { ROWS = 1500, COLUMNS = 12, ROUNDS = 15, FLOAT32 = 0, FLOAT64 = 1, NORMAL = 0 };
static double data[ROWS * COLUMNS], predicted[ROWS * 3];
static float target[ROWS];
static char model[1 << 20];

static int check(int status) {
  if (status) puts(LGBM_GetLastError());
  return status;
}

static int train(const char *parameters, int outputs) {
  Handle dataset = NULL, booster = NULL;
  if (check(LGBM_DatasetCreateFromMat(data, FLOAT64, ROWS, COLUMNS, 1, parameters, NULL, &dataset)) ||
      check(LGBM_DatasetSetField(dataset, "label", target, ROWS, FLOAT32)) ||
      check(LGBM_BoosterCreate(dataset, parameters, &booster)))
    return 1;
  for (int i = 0, finished = 0; i < ROUNDS && !finished; ++i)
    if (check(LGBM_BoosterUpdateOneIter(booster, &finished))) return 1;
  int64_t length = 0, size = 0;
  if (check(LGBM_BoosterPredictForMat(booster, data, FLOAT64, ROWS, COLUMNS, 1, NORMAL, 0, -1, "", &length,
                                      predicted)) ||
      check(LGBM_BoosterSaveModelToString(booster, 0, -1, 0, sizeof model, &size, model)))
    return 1;
  int trees = 0;
  for (const char *p = model; (p = strstr(p, "\nTree=")); ++p) ++trees;
  double error = 0, sum = 0;
  for (int i = 0; i < ROWS; ++i) {
    if (outputs == 1) error += fabs(predicted[i] - target[i]);
    else error += 1 - predicted[i * outputs + (int)target[i]];
    sum += predicted[i * outputs];
  }
  printf("%d outputs, %d trees: error %.6f, mean %.6f\n", outputs, trees, error / ROWS, sum / ROWS);
  LGBM_BoosterFree(booster);
  LGBM_DatasetFree(dataset);
  return 0;
}

int main(void) {
  uint32_t state = 17;
  for (int i = 0; i < ROWS * COLUMNS; ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = (state >> 29) == 0 ? NAN : (double)(state >> 16) / 6553.6 - 5;
  }
#define X(k) (isnan(data[i * COLUMNS + (k)]) ? 1.5 : data[i * COLUMNS + (k)])
  for (int i = 0; i < ROWS; ++i) target[i] = (float)(X(0) * X(1) / 5 + (X(2) > 1 ? X(3) : 2 * X(4)));
  if (train("objective=regression num_leaves=15 verbosity=-1 num_threads=1 deterministic=true", 1) ||
      train("objective=regression_l1 num_leaves=15 verbosity=-1 num_threads=1 bagging_freq=1 bagging_fraction=0.7", 1))
    return 1;
  for (int i = 0; i < ROWS; ++i) target[i] = (float)((X(0) > X(1)) + (X(2) > 0));
  return train("objective=multiclass num_class=3 num_leaves=7 verbosity=-1 num_threads=1", 3);
}
