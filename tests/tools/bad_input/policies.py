"""Vocabularies and policies that are missing, damaged, or made for another compiler."""

from tests.tools.bad_input.mistake import Mistake

MISTAKES = (
    Mistake(
        "vocabulary missing",
        ("train_locally",),
        {"vocab_path": "no/such/vocabulary"},
        ("no/such/vocabulary: expected a vocabulary", "compiler_opt generate_vocab"),
    ),
    Mistake(
        "vocabulary lacks a feature",
        ("train_bc", "train_locally"),
        {"vocab_path": "vocabulary-lacking"},
        ("vocabulary-lacking: the vocabulary lacks the features callsite_height", "compiler_opt generate_vocab"),
    ),
    Mistake(
        "vocabulary is no numbers",
        ("train_locally",),
        {"vocab_path": "vocabulary-damaged"},
        ("callsite_height.buckets:1: expected a number, found b'tall'", "compiler_opt generate_vocab"),
    ),
    Mistake(
        "policy missing",
        ("policy margin", "evaluate", "explain", "export_policy", "search"),
        {"policy_path": "no/such/policy"},
        ("no/such/policy: expected a policy", "train one first"),
    ),
    Mistake(
        "policy that does not ship",
        ("evaluate", "export_policy"),
        {"policy_path": "pretrained:none"},
        ("pretrained:none: no such policy",),
    ),
    Mistake(
        "policy to import missing",
        ("import_policy",),
        {"policy_path": "no/such/policy"},
        ("no/such/policy: expected the folder of a policy, or a TFLite file",),
    ),
    Mistake(
        "no policy of TensorFlow's",
        ("import_policy",),
        {"policy_path": "corpus"},
        ("corpus: expected a folder with saved_model.pb, or a file *.tflite; found neither",),
    ),
    Mistake(
        "import into itself",
        ("import_policy",),
        {"output_dir": "policy"},
        ("--output_dir=policy: is the policy to import; expected another folder",),
    ),
    Mistake("policy without a name", ("deploy",), {"policy_path": "pretrained:"}, ("pretrained:: no such policy",)),
    Mistake(
        "policy of no name",
        ("deploy",),
        {"policy_path": ""},
        ("--policy_path", "expected the folder of a policy, or pre"),
    ),
    Mistake(
        "policy to start from that does not ship",
        ("train_locally",),
        {"warmstart_policy_dir": "pretrained:../policy"},
        ("pretrained:../policy: no such policy",),
    ),
    *(
        Mistake(
            "policy of TensorFlow's",
            ("deploy", "evaluate", "export_policy"),
            {"policy_path": policy},
            (f"{policy}: is a policy in TensorFlow's form", f"compiler_opt import_policy --policy_path={policy}"),
        )
        for policy in ("policy-saved-model", "policy-saved-model/model.tflite")
    ),
    Mistake("policy missing", ("deploy",), {"policy_path": "no/such/policy"}, ("no/such/policy: expected a policy",)),
    Mistake(
        "margin", ("deploy", "evaluate", "export_policy"), {"margin": "inf"}, ("margin: expected a finite number",)
    ),
    Mistake("margins", ("policy margin",), {"margins": "0,much"}, ("--margins=0,much: expected numbers",)),
    Mistake("margin twice", ("policy margin",), {"margins": "1,1.0"}, ("--margins: expected 1 to 8 different",)),
    Mistake("policy damaged", ("deploy",), {"policy_path": "policy-damaged"}, ("policy-damaged/network.npz: damaged",)),
    Mistake(
        "policy for other features",
        ("deploy",),
        {"policy_path": "policy-other"},
        ("policy-other: ", "number_of_moons", "use the compiler that it was trained with"),
    ),
    Mistake(
        "decisions missing", ("deploy",), {"decisions": "no/such/file"}, ("no/such/file: cannot be read (No such file",)
    ),
    Mistake(
        "decisions damaged",
        ("deploy",),
        {"decisions": "file"},
        ("file: not a decision file, or damaged", "make it again, or restore the file"),
    ),
    Mistake("no such level", ("deploy",), {"levels": "Oz,fast"}, ("--levels: expected some of O0", "found fast")),
    Mistake(
        "never worse above less than nothing",
        ("deploy",),
        {"never_worse_above_kb": "-1"},
        ("--never_worse_above_kb=-1: -1 is not an integer in the range",),
    ),
    Mistake(
        "versions of a folder",
        ("deploy",),
        {"output_dir": "corpus", "versioned": "true"},
        ("corpus: expected nothing, or the link of an earlier --versioned",),
    ),
    Mistake(
        "output is a file", ("deploy",), {"output_dir": "file"}, ("file: expected the name of a folder", "another")
    ),
    Mistake(
        "policy to start from missing",
        ("train_locally",),
        {"warmstart_policy_dir": "no/such/policy"},
        ("no/such/policy: expected a policy", "train one first"),
    ),
    Mistake(
        "policy damaged",
        ("evaluate", "export_policy"),
        {"policy_path": "policy-damaged"},
        ("policy-damaged/network.npz: damaged",),
    ),
    Mistake(
        "other policy damaged",
        ("explain",),
        {"other_policy_path": "policy-damaged"},
        ("policy-damaged/network.npz: damaged",),
    ),
    Mistake(
        "policy against itself",
        ("explain",),
        {"other_policy_path": "policy"},
        ("--other_policy_path=policy: is the policy of --policy_path",),
    ),
    Mistake(
        "policy for other features",
        ("explain",),
        {"policy_path": "policy-other"},
        ("policy-other: ", "number_of_moons"),
    ),
    Mistake(
        "policy not its model card's",
        ("evaluate", "export_policy"),
        {"policy_path": "policy-replaced"},
        ("policy-replaced: its weights are not those of its model card", "export the policy again"),
    ),
    Mistake(
        "no such format",
        ("export_policy",),
        {"format": "native,onnx"},
        ("--format: expected some of native, cpp, release_model, saved_model, tflite, aot", "found 'onnx'"),
    ),
    Mistake(
        "evaluation missing",
        ("export_policy",),
        {"evaluation": "no/such/evaluation"},
        ("no/such/evaluation/summary.json: No such file", "--evaluation"),
    ),
    Mistake(
        "policy for other features",
        ("evaluate", "search"),
        {"policy_path": "policy-other"},
        ("policy-other: ", "number_of_moons", "use the compiler that it was trained with"),
    ),
    Mistake(
        "compared policy for other features",
        ("generate_default_trace",),
        {"policy_path": "policy-other", "output_performance_path": "out/performance.csv"},
        ("policy-other: ", "number_of_moons", "use the compiler that it was trained with"),
    ),
    Mistake(
        "policy to start from for other features",
        ("train_locally",),
        {"warmstart_policy_dir": "policy-other"},
        ("policy-other: ", "number_of_moons", "use one that was made for the same compiler"),
    ),
)
