"""The gin settings `inlining`: what policies may observe besides LLVM's features."""

import dataclasses
from pathlib import Path

from compiler_opt.errors import ConfigError
from compiler_opt.llvm import ir2vec, plugin_features
from compiler_opt.llvm.advisors import INLINING, AdvisorFlags
from compiler_opt.llvm.inliner_plugin import with_plugin_features
from compiler_opt.llvm.plugin_features import SETTING
from compiler_opt.llvm.toolchain import Toolchain

FEATURES = {
    "llvm": (),
    "plugin": plugin_features.NAMES,
    "plugin_with_default": (*plugin_features.NAMES, plugin_features.DEFAULT_DECISION),
    "plugin_for_speed": (*plugin_features.NAMES, *plugin_features.HOTNESS, plugin_features.DEFAULT_DECISION),
}
"""What `InliningConfig.features` can be, and the plugin's features that each adds to LLVM's."""


@dataclasses.dataclass(frozen=True)
class InliningConfig:
    """The gin settings `inlining`.

    Attributes:
      features: `llvm` for LLVM's features, which every form of a policy can have; `plugin` for more, which only our
        plugin computes (see docs/plugin_features.md); `plugin_with_default` for these and LLVM's own decision;
        `plugin_for_speed` for these and how often code runs. Traces, vocabularies and policies remember theirs, so that
        only recording a trace needs this setting.
      ir2vec_vocabulary: file of an IR2Vec vocabulary, which adds embeddings of caller and callee to the features; empty
        for none.
    """

    features: str = "llvm"
    ir2vec_vocabulary: str = ""

    def __post_init__(self) -> None:
        if self.features not in FEATURES:
            raise ConfigError(f"{SETTING}: expected one of {', '.join(FEATURES)}; found {self.features!r}")
        if self.plugin_features and self.ir2vec_vocabulary:
            raise ConfigError(
                f"{SETTING}: {self.features!r} needs our plugin, but {ir2vec.SETTING} the channel; leave one out"
            )

    @property
    def plugin_features(self) -> tuple[str, ...]:
        """The features beside LLVM's, by name."""
        return FEATURES[self.features]

    def vocabulary(self, advisor: AdvisorFlags) -> ir2vec.Ir2VecVocabulary | None:
        """The checked vocabulary, if one is set; raises ConfigError if it is invalid or the problem is not inlining."""
        if not self.ir2vec_vocabulary:
            return None
        if advisor != INLINING:
            raise ConfigError(
                f"{ir2vec.SETTING}: expected decisions of inlining, found {advisor.problem}; leave it out"
            )
        return ir2vec.read_vocabulary(Path(self.ir2vec_vocabulary))

    def extend(self, toolchain: Toolchain, advisor: AdvisorFlags) -> Toolchain:
        """The toolchain with the plugin's features, if they are set.

        Raises:
          ConfigError: they are set, but the problem is not inlining.
          ToolchainError: the plugin cannot be built.
        """
        if not self.plugin_features:
            return toolchain
        if advisor != INLINING:
            raise ConfigError(
                f"{SETTING}: {self.features!r}: expected decisions of inlining, found {advisor.problem}; leave it out"
            )
        return with_plugin_features(toolchain, self.plugin_features)
