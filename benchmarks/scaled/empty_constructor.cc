struct A {
  A() {}
  ~A() {}
};
void use(const A &);
void f() {
  { A a; use(a); } // @
}
