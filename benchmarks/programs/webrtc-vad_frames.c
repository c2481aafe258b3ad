// Voice activity in frames of tones, noise and silence, at two sample rates.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct WebRtcVadInst VadInst;
int WebRtcVad_Create(VadInst **vad);
int WebRtcVad_Init(VadInst *vad);
int WebRtcVad_set_mode(VadInst *vad, int mode);
int WebRtcVad_Process(VadInst *vad, int rate, const int16_t *frame, size_t length);

int main(void) {
  static int16_t samples[480 * 64];
  unsigned state = 1;
  for (int i = 0; i < 480 * 64; ++i) {
    state = state * 1103515245 + 12345;
    const int noise = (int)(state >> 20) - 2048, phase = i * 37 % 512;
    const int tone = (phase < 256 ? phase - 128 : 384 - phase) * 90;
    samples[i] = (int16_t)(i / 4800 % 3 == 0 ? noise / 16 : i / 4800 % 3 == 1 ? tone + noise : noise);
  }
  const int rates[] = {8000, 16000};
  for (int i = 0; i < 2; ++i) {
    VadInst *vad = NULL;
    if (WebRtcVad_Create(&vad) || WebRtcVad_Init(vad) || WebRtcVad_set_mode(vad, 2)) return 1;
    const size_t length = (size_t)rates[i] / 1000 * 30;
    long active = 0;
    for (int frame = 0; frame < 20000; ++frame) {
      const int decision = WebRtcVad_Process(vad, rates[i], samples + (size_t)frame % 64 * 480, length);
      if (decision < 0) return 1;
      active += decision * (frame % 101);
    }
    printf("%d %ld\n", rates[i], active);
  }
  return 0;
}
