// Trains taggers of generated sequences by three algorithms, and tags with their models.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  int aid;
  double value;
} Attribute;
typedef struct {
  int count, capacity;
  Attribute *attributes;
} Item;
typedef struct {
  int count, capacity;
  Item *items;
  int *labels;
  double weight;
  int group;
} Instance;
typedef struct Dictionary Dictionary;
struct Dictionary {
  void *internal;
  int references;
  int (*addref)(Dictionary *), (*release)(Dictionary *);
  int (*get)(Dictionary *, const char *), (*to_id)(Dictionary *, const char *);
};
typedef struct {
  int count, capacity;
  Instance *instances;
  Dictionary *attributes, *labels;
} Data;
typedef struct Params Params;
struct Params {
  void *internal;
  int references;
  int (*addref)(Params *), (*release)(Params *);
  int (*num)(Params *), (*name)(Params *, int, char **), (*set)(Params *, const char *, const char *);
};
typedef struct Trainer Trainer;
struct Trainer {
  void *internal;
  int references;
  int (*addref)(Trainer *), (*release)(Trainer *);
  Params *(*params)(Trainer *);
  void (*set_message_callback)(Trainer *, void *, int (*)(void *, const char *, va_list));
  int (*train)(Trainer *, const Data *, const char *, int);
};
typedef struct Tagger Tagger;
struct Tagger {
  void *internal;
  int references;
  int (*addref)(Tagger *), (*release)(Tagger *), (*set)(Tagger *, Instance *), (*length)(Tagger *);
  int (*viterbi)(Tagger *, int *, double *), (*score)(Tagger *, int *, double *), (*lognorm)(Tagger *, double *);
  int (*marginal_point)(Tagger *, int, int, double *);
};
typedef struct Model Model;
struct Model {
  void *internal;
  int references;
  int (*addref)(Model *), (*release)(Model *), (*get_tagger)(Model *, Tagger **);
  int (*get_labels)(Model *, Dictionary **), (*get_attributes)(Model *, Dictionary **);
};
int crfsuite_create_instance(const char *name, void **object);
int crfsuite_create_instance_from_file(const char *path, void **model);
void crfsuite_item_init(Item *item);
int crfsuite_item_append_attribute(Item *item, const Attribute *attribute);
void crfsuite_item_finish(Item *item);
void crfsuite_instance_init(Instance *instance);
int crfsuite_instance_append(Instance *instance, const Item *item, int label);
void crfsuite_instance_finish(Instance *instance);
void crfsuite_data_init(Data *data);
int crfsuite_data_append(Data *data, const Instance *instance);

static unsigned state = 1;

static unsigned draw(unsigned end) {
  state = state * 1103515245 + 12345;
  return (state >> 16) % end;
}

static int quiet(void *user, const char *format, va_list arguments) {
  (void)user, (void)format, (void)arguments;
  return 0;
}

// The number of a text, which is added to a dictionary unless that is a model's.
static int number(Dictionary *dictionary, const char *text, int added) {
  return added ? dictionary->get(dictionary, text) : dictionary->to_id(dictionary, text);
}

// A sequence whose labels depend on their words and on the label before.
static void make(Instance *instance, Dictionary *attributes, Dictionary *labels, int added) {
  int words[24], count = 8 + draw(16), label = 0;
  char text[32];
  for (int i = 0; i < count; ++i) words[i] = draw(10) * draw(10);
  crfsuite_instance_init(instance);
  for (int i = 0; i < count; ++i) {
    Item item;
    crfsuite_item_init(&item);
    for (int offset = -1; offset <= 1; ++offset) {
      if (i + offset < 0 || i + offset >= count) continue;
      snprintf(text, sizeof text, "word[%d]=%d", offset, words[i + offset]);
      const Attribute attribute = {number(attributes, text, added), 1};
      if (attribute.aid >= 0) crfsuite_item_append_attribute(&item, &attribute);
    }
    label = (words[i] % 7 + label / 2 + (draw(8) == 0)) % 6;
    snprintf(text, sizeof text, "label%d", label);
    crfsuite_instance_append(instance, &item, number(labels, text, added));
    crfsuite_item_finish(&item);
  }
}

int main(int argc, char **argv) {
  static const char *const kParameters[][3] = {{"train/crf1d/lbfgs", "max_iterations", "20"},
                                               {"train/crf1d/averaged-perceptron", "max_iterations", "10"},
                                               {"train/crf1d/arow", "max_iterations", "6"}};
  char path[4096];
  Data data;
  if (argc != 2) return 2;
  snprintf(path, sizeof path, "%s/model", argv[1]);
  crfsuite_data_init(&data);
  if (!crfsuite_create_instance("dictionary", (void **)&data.attributes)) return 1;
  if (!crfsuite_create_instance("dictionary", (void **)&data.labels)) return 1;
  for (int i = 0; i < 300; ++i) {
    Instance instance;
    make(&instance, data.attributes, data.labels, 1);
    crfsuite_data_append(&data, &instance);
    crfsuite_instance_finish(&instance);
  }
  for (int algorithm = 0; algorithm < 3; ++algorithm) {
    const char *const *parameters = kParameters[algorithm];
    Trainer *trainer;
    Model *model;
    Tagger *tagger;
    Dictionary *attributes, *labels;
    int correct = 0, items = 0;
    double norms = 0, probabilities = 0;
    if (!crfsuite_create_instance(parameters[0], (void **)&trainer)) return 1;
    trainer->set_message_callback(trainer, NULL, quiet);
    Params *params = trainer->params(trainer);
    if (params->set(params, parameters[1], parameters[2]) != 0) return 1;
    params->release(params);
    if (trainer->train(trainer, &data, path, -1) != 0) return 1;
    trainer->release(trainer);
    if (crfsuite_create_instance_from_file(path, (void **)&model) != 0) return 1;
    model->get_tagger(model, &tagger);
    model->get_attributes(model, &attributes);
    model->get_labels(model, &labels);
    for (int i = 0; i < 300; ++i) {
      Instance instance;
      int predicted[24];
      double score, norm, probability;
      make(&instance, attributes, labels, 0);
      tagger->set(tagger, &instance);
      tagger->viterbi(tagger, predicted, &score);
      tagger->lognorm(tagger, &norm);
      norms += norm - score;
      for (int j = 0; j < instance.count; ++j) {
        correct += predicted[j] == instance.labels[j];
        tagger->marginal_point(tagger, predicted[j], j, &probability);
        probabilities += probability;
      }
      items += instance.count;
      crfsuite_instance_finish(&instance);
    }
    printf("%d of %d, %.6g %.6g\n", correct, items, norms, probabilities);
    labels->release(labels);
    attributes->release(attributes);
    tagger->release(tagger);
    model->release(model);
  }
  return 0;
}
