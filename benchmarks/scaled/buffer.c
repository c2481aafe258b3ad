struct buffer { char data[64]; int n; };
static void put(struct buffer *b, char c) {
  if (b->n < 64) b->data[b->n++] = c;
}
void f(struct buffer *b, const char *s) {
  put(b, s[@]);
}
