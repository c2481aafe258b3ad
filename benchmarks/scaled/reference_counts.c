struct object { int refs; void (*free)(struct object *); };
static inline void unref(struct object *p) {
  if (p && --p->refs == 0) p->free(p);
}
void f(struct object **p) {
  unref(p[@]);
}
