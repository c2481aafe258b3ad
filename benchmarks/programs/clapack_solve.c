// Systems of linear equations solved, and eigenvalues of a matrix.
#include <stdio.h>
#include <stdlib.h>

int igraphdgetrf_(int *rows, int *columns, double *a, int *lda, int *pivots, int *info);
int igraphdgetrs_(char *transpose, int *n, int *columns, double *a, int *lda, int *pivots, double *b, int *ldb, int *info);
int igraphdgeev_(char *left, char *right, int *n, double *a, int *lda, double *real, double *imaginary, double *vl, int *ldvl,
           double *vr, int *ldvr, double *work, int *work_size, int *info);

// Set by the main program of translated Fortran.
int xargc;
char **xargv;

static void fill(double *values, int size, unsigned state) {
  for (int i = 0; i < size; ++i) {
    state = state * 1103515245 + 12345;
    values[i] = (double)(state >> 16) / 65536 - 0.5;
  }
}

int main(void) {
  enum { kSize = 300, kEigen = 110 };
  static double a[kSize * kSize], b[kSize], work[kEigen * 16], real[kEigen], imaginary[kEigen], vectors[kEigen * kEigen];
  static int pivots[kSize];
  int n = kSize, one = 1, info = 0;
  double sum = 0;
  for (unsigned round = 1; round <= 16; ++round) {
    fill(a, kSize * kSize, round);
    fill(b, kSize, round + 100);
    igraphdgetrf_(&n, &n, a, &n, pivots, &info);
    if (info) return 1;
    igraphdgetrs_("N", &n, &one, a, &n, pivots, b, &n, &info);
    for (int i = 0; i < kSize; ++i) sum += b[i] > 0 ? b[i] : -b[i];
  }
  printf("%.4f\n", sum);
  n = kEigen;
  sum = 0;
  int work_size = kEigen * 16;
  for (unsigned round = 1; round <= 10; ++round) {
    fill(a, kEigen * kEigen, round);
    igraphdgeev_("N", "V", &n, a, &n, real, imaginary, vectors, &one, vectors, &n, work, &work_size, &info);
    if (info) return 1;
    for (int i = 0; i < kEigen; ++i) sum += real[i] * real[i] + imaginary[i] * imaginary[i];
  }
  printf("%.4f\n", sum);
  return 0;
}
