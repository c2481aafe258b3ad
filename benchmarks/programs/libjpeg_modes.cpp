// Encodes generated images in each mode of JPEG, and decodes them again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

struct JPG_TagItem {
  std::uint32_t tag;
  union {
    std::int32_t number;
    void *pointer;
  };
  JPG_TagItem(std::uint32_t tag = 0, int value = 0) : tag(tag), pointer(nullptr) { number = value; }
  JPG_TagItem(std::uint32_t tag, void *value) : tag(tag), pointer(value) {}
  std::int32_t GetTagData(std::uint32_t tag, std::int32_t otherwise) const;
  void *GetTagPtr(std::uint32_t tag, void *otherwise) const;
  void SetTagData(std::uint32_t tag, std::int32_t value);
  void SetTagPtr(std::uint32_t tag, void *value);
};
struct JPG_Hook {
  std::int32_t (*entry)(JPG_Hook *hook, JPG_TagItem *tags);
  void *unused, *data;
};
class JPEG {
 public:
  static JPEG *Construct(JPG_TagItem *tags);
  static void Destruct(JPEG *jpeg);
  std::int32_t Read(JPG_TagItem *tags);
  std::int32_t Write(JPG_TagItem *tags);
  std::int32_t DisplayRectangle(JPG_TagItem *tags);
  std::int32_t ProvideImage(JPG_TagItem *tags);
  std::int32_t LastError(const char *&error);
};

namespace {  // The library has classes called Image and Frame, too.
enum Tag : std::uint32_t {
  kUser = 1u << 31,
  // Of images, and how they are encoded.
  kWidth = kUser + 0x201, kHeight, kDepth, kPrecision, kFrame, kQuality, kLevels = kUser + 0x208,
  kRestarts = kUser + 0x20b, kSubsamplingX, kSubsamplingY, kScan, kDeadZone = kUser + 0x219, kDeringing = kUser + 0x230,
  kResidualFrame = kUser + 0x245, kResidualQuality = kUser + 0x24f, kColors = kUser + 0x600,
  kQuantization = kUser + 0x701, kLoop = kUser + 0xf82,
  // Of progressive scans.
  kScanLuma = kUser + 0x301, kScanChroma = kUser + 0x305, kStart, kStop, kLowBit, kHighBit,
  // Of decoding.
  kMinY = kUser + 0xf02, kMaxY = kUser + 0xf04, kUpsample = kUser + 0xf08,
  // Of hooks, and what they are asked.
  kImageHook = kUser + 0x501, kStreamHook = kUser + 0xb01, kStreamBuffer = kUser + 0x102, kStreamSize, kStreamAction,
  kRowMemory = kUser + 0x401, kRowWidth, kRowHeight, kBytesPerRow, kBytesPerPixel, kPixelType, kRowMinY = kUser + 0x411,
  kComponent = kUser + 0x420
};
enum Frame {
  kBaseline, kSequential, kProgressive, kResidual = 5, kArithmetic = 8, kPyramid = 16, kResiduals = 64, kOptimize = 128
};

struct Image {
  int width, height, depth, bits;
  std::vector<std::uint16_t> wide = std::vector<std::uint16_t>(width * height * depth);
  std::vector<std::uint8_t> narrow = std::vector<std::uint8_t>(width * height * depth);
  int at(int i) const { return bits > 8 ? wide[i] : narrow[i]; }
};

std::int32_t image_hook(JPG_Hook *hook, JPG_TagItem *tags) {
  Image &image = *static_cast<Image *>(hook->data);
  const int component = tags->GetTagData(kComponent, 0), bytes = image.bits > 8 ? 2 : 1;
  if (bytes == 2)
    tags->SetTagPtr(kRowMemory, image.wide.data() + component);
  else
    tags->SetTagPtr(kRowMemory, image.narrow.data() + component);
  tags->SetTagData(kRowWidth, image.width);
  tags->SetTagData(kRowHeight, tags->GetTagData(kRowMinY, 0) + 8);
  tags->SetTagData(kBytesPerRow, image.width * image.depth * bytes);
  tags->SetTagData(kBytesPerPixel, image.depth * bytes);
  tags->SetTagData(kPixelType, bytes);
  return 0;
}

struct Stream {
  std::string bytes;
  std::size_t position = 0;
};

std::int32_t stream_hook(JPG_Hook *hook, JPG_TagItem *tags) {
  Stream &stream = *static_cast<Stream *>(hook->data);
  char *buffer = static_cast<char *>(tags->GetTagPtr(kStreamBuffer, nullptr));
  const std::size_t size = tags->GetTagData(kStreamSize, 0);
  switch (tags->GetTagData(kStreamAction, 0)) {
    case 'W': stream.bytes.append(buffer, size); return size;
    case 'R': {
      const std::size_t copied = stream.bytes.copy(buffer, size, stream.position);
      stream.position += copied;
      return copied;
    }
    case 'Q': return 0;
    default: return -1;
  }
}

void check(JPEG *jpeg, bool ok) {
  if (ok) return;
  const char *error = "";
  const int code = jpeg->LastError(error);
  std::printf("%d: %s\n", code, error);
  std::exit(1);
}

Image draw(int depth, int bits) {
  Image image{160, 120, depth, bits};
  unsigned state = 1;
  for (int i = 0; i < image.width * image.height * depth; ++i) {
    state = state * 1103515245 + 12345;
    const int c = i % depth, x = i / depth % image.width, y = i / depth / image.width;
    const int noise = (state >> 16) % 8, edges = (x / 23 + y / 17) % 3 * 40, waves = x * y / (50 + 30 * c) % 64;
    const int value = 20 + (x + y * (c + 1)) / 4 + edges + waves / (1 + x / 60) + noise;
    image.narrow[i] = value > 255 ? 255 : value;
    image.wide[i] = image.narrow[i] << (bits - 8) | state >> 24 >> (16 - bits);
  }
  return image;
}

// Decodes a stream, and prints how far that is from the image.
void show(const char *name, const Image &image, int colors, Stream stream) {
  Image decoded = image;
  JPG_Hook source{stream_hook, nullptr, &stream}, target{image_hook, nullptr, &decoded};
  JPG_TagItem read[] = {{kStreamHook, &source}, {}};
  JPG_TagItem shown[] = {{kImageHook, &target}, {kUpsample, 1}, {kColors, colors}, {kMinY, 0}, {kMaxY, 0}, {}};
  std::fill(decoded.narrow.begin(), decoded.narrow.end(), 0);
  std::fill(decoded.wide.begin(), decoded.wide.end(), 0);
  JPEG *jpeg = JPEG::Construct(nullptr);
  check(jpeg, jpeg->Read(read));
  for (int y = 0; y < image.height; y += 8) {
    shown[3].number = y;
    shown[4].number = y + 7;
    check(jpeg, jpeg->DisplayRectangle(shown));
  }
  JPEG::Destruct(jpeg);
  unsigned sum = 0, error = 0;
  for (const char c : stream.bytes) sum = sum * 31 + static_cast<unsigned char>(c);
  for (int i = 0; i < image.width * image.height * image.depth; ++i) {
    sum = sum * 31 + decoded.at(i);
    error += std::abs(decoded.at(i) - image.at(i));
  }
  std::printf("%s: %zu bytes, error %u, %u\n", name, stream.bytes.size(), error, sum);
}

void run(const char *name, Image &image, std::vector<JPG_TagItem> parameters) {
  Stream stream;
  JPG_Hook source{image_hook, nullptr, &image}, target{stream_hook, nullptr, &stream};
  JPG_TagItem written[] = {{kStreamHook, &target}, {}};
  for (const JPG_TagItem &each : {JPG_TagItem{kImageHook, &source}, {kLoop, 1}, {kWidth, image.width}, {kColors, 1},
                                  {kHeight, image.height}, {kDepth, image.depth}, {kPrecision, image.bits}, {}})
    parameters.push_back(each);
  JPEG *jpeg = JPEG::Construct(nullptr);
  check(jpeg, jpeg->ProvideImage(parameters.data()));
  check(jpeg, jpeg->Write(written));
  JPEG::Destruct(jpeg);
  show(name, image, 1, stream);
}

// A stream without loss, which the library only decodes: differences to the left, and all code words of 5 bits.
void lossless(const Image &image) {
  std::string bytes = "\xff\xd8\xff\xc3";
  const auto add = [&](std::initializer_list<int> added) {
    for (const int each : added) bytes += static_cast<char>(each);
  };
  add({0, 11, image.bits, 0, image.height, 0, image.width, 1, 1, 0x11, 0, 0xff, 0xc4, 0, 36, 0, 0, 0, 0, 0, 17});
  bytes.append(11, 0);
  for (int i = 0; i < 17; ++i) add({i});
  add({0xff, 0xda, 0, 8, 1, 1, 0, 1, 0, 0});
  std::uint64_t pending = 0;
  int count = 0;
  const auto put = [&](unsigned value, int size) {
    pending = pending << size | value;
    for (count += size; count >= 8; count -= 8) {
      const int byte = pending >> (count - 8) & 0xff;
      add({byte});
      if (byte == 0xff) add({0});
    }
  };
  for (int i = 0; i < image.width * image.height; ++i) {
    const int before = i == 0 ? 1 << (image.bits - 1) : image.at(i % image.width == 0 ? i - image.width : i - 1);
    const int difference = image.at(i) - before, size = 32 - (difference ? __builtin_clz(std::abs(difference)) : 32);
    put(size, 5);
    put((difference < 0 ? difference - 1 : difference) & ((1 << size) - 1), size);
  }
  put(0x7f, 7);
  add({0xff, 0xd9});
  show("lossless", image, 0, Stream{bytes});
}
}  // namespace

int main() {
  Image color = draw(3, 8), gray = draw(1, 8), deep = draw(1, 12);
  static std::uint8_t halves[] = {1, 2, 2, 2};
  JPG_TagItem dc[] = {{kStart, 0}, {kStop, 0}, {kLowBit, 1}, {}};
  JPG_TagItem luma[] = {{kScanLuma, 0}, {kStart, 1}, {kStop, 5}, {kLowBit, 2}, {}};
  JPG_TagItem chroma[] = {{kScanChroma, 0}, {kStart, 1}, {kStop, 63}, {kLowBit, 1}, {}};
  JPG_TagItem luma_rest[] = {{kScanLuma, 0}, {kStart, 6}, {kStop, 63}, {kLowBit, 2}, {}};
  JPG_TagItem luma_finer[] = {{kScanLuma, 0}, {kStart, 1}, {kStop, 63}, {kLowBit, 1}, {kHighBit, 2}, {}};
  JPG_TagItem dc_finer[] = {{kStart, 0}, {kStop, 0}, {kLowBit, 0}, {kHighBit, 1}, {}};
  JPG_TagItem finer[] = {{kStart, 1}, {kStop, 63}, {kLowBit, 0}, {kHighBit, 1}, {}};
  const std::vector<JPG_TagItem> scans = {{kScan, dc},         {kScan, luma},     {kScan, chroma}, {kScan, luma_rest},
                                          {kScan, luma_finer}, {kScan, dc_finer}, {kScan, finer},  {kQuality, 85}};
  const auto with_scans = [&](int frame) {
    std::vector<JPG_TagItem> parameters = scans;
    parameters.emplace_back(kFrame, frame);
    return parameters;
  };
  run("baseline", color, {{kFrame, kBaseline}, {kQuality, 75}, {kSubsamplingX, halves}, {kSubsamplingY, halves},
                          {kRestarts, 7}});
  run("sequential", color, {{kFrame, kSequential | kOptimize}, {kQuality, 90}, {kDeadZone, 1}, {kDeringing, 1}});
  run("12 bits", deep, {{kFrame, kSequential}, {kQuality, 80}});
  run("arithmetic", color, {{kFrame, kSequential | kArithmetic}, {kQuality, 60}, {kSubsamplingX, halves},
                            {kQuantization, 2}});
  run("progressive", color, with_scans(kProgressive | kOptimize));
  run("progressive, arithmetic", color, with_scans(kProgressive | kArithmetic));
  run("pyramid", gray, {{kFrame, kSequential | kPyramid | kOptimize}, {kLevels, 2}, {kQuality, 80}});
  run("residuals", color, {{kFrame, kSequential | kResiduals | kOptimize}, {kQuality, 60},
                           {kResidualFrame, kResidual | kOptimize}, {kResidualQuality, 100}});
  lossless(deep);
  lossless(gray);
  return 0;
}
