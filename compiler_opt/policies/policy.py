"""The protocol of policies, and policies without a network.

decider = policy.start(header, seed)          # once per compilation
advice = decider(observation)                 # once per decision
decider.log_probs()                           # afterwards, if the policy samples
decider.sampled_actions()                     # and the actions, if advice is a rounded action
"""

import abc
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from compiler_opt.errors import PolicyError, ProtocolError
from compiler_opt.llvm.interactive import FollowsContexts
from compiler_opt.llvm.training_log import Header, record_dtype


class Decider(abc.ABC):
    """Takes the decisions of one compilation."""

    @abc.abstractmethod
    def __call__(self, observation: bytes) -> int | float:
        """The advice for one observation, given as its raw bytes (`Header.features` in order)."""

    def log_probs(self) -> np.ndarray | None:
        """`[T]` float32, log probability of each advice so far; None for a policy that does not sample."""
        return None

    def sampled_actions(self) -> np.ndarray | None:
        """`[T]` float32, continuous action behind each advice so far; None unless the policy samples such actions."""
        return None


class Policy(abc.ABC):
    """Decides for the compiler; immutable and picklable, so that it can be sent to workers."""

    name: str
    needs_default: bool = False
    """Whether it needs the compiler's own decision as a feature (`inlining_default`)."""
    is_default: bool = False
    """Whether it takes the compiler's own decisions, sent or rebuilt."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self, 'name', '')!r})"

    @abc.abstractmethod
    def start(self, header: Header, seed: int) -> Decider:
        """Begins one compilation.

        Args:
          header: the features that the compiler sends.
          seed: the same seed and observations give the same advice.

        Raises:
          PolicyError: the compiler does not send a feature that the policy needs; the message names it.
        """


class FunctionDecider(Decider):
    """Takes each decision by a function of the observation."""

    def __init__(self, function: Callable[[bytes], int | float]):
        self._function = function

    def __call__(self, observation: bytes) -> int | float:
        return self._function(observation)


class ConstantPolicy(Policy):
    """Always gives the same advice; for inlining, 0 never inlines and 1 always does."""

    def __init__(self, advice: int | float, name: str = ""):
        self.name = name or f"constant {advice}"
        self._advice = advice

    def start(self, header: Header, seed: int) -> Decider:
        del header, seed
        return FunctionDecider(lambda observation: self._advice)


class RandomPolicy(Policy):
    """Gives advice 1 with a fixed probability, otherwise 0."""

    def __init__(self, probability: float = 0.5, name: str = "random"):
        self.name = name
        self._probability = probability

    def start(self, header: Header, seed: int) -> Decider:
        del header
        uniform = uniforms(seed)
        return FunctionDecider(lambda observation: int(uniform() < self._probability))


class FeaturePolicy(Policy):
    """Gives a feature's value as advice; the compiler's own decision reproduces a plain compilation."""

    def __init__(self, feature: str, name: str = ""):
        self.name = name or feature
        self.feature = feature

    def start(self, header: Header, seed: int) -> Decider:
        del seed
        if self.feature not in header.names:
            raise PolicyError(f"policy {self.name!r}: the compiler does not send the feature {self.feature!r}")
        position = header.names.index(self.feature)
        offset = sum(spec.num_bytes for spec in header.features[:position])
        dtype = header.features[position].dtype
        return FunctionDecider(lambda observation: np.frombuffer(observation, dtype, 1, offset)[0].item())


class ReplayPolicy(Policy):
    """Repeats recorded advice, in order.

    Its decider raises ProtocolError when the compiler asks for more decisions than were recorded.
    """

    def __init__(self, advice: np.ndarray, name: str = "replay"):
        self.name = name
        self._advice = advice

    def start(self, header: Header, seed: int) -> Decider:
        del header, seed
        remaining = iter(self._advice.tolist())

        def replay(observation: bytes) -> int | float:
            del observation
            advice: int | float | None = next(remaining, None)
            if advice is None:
                raise ProtocolError(
                    f"replay: the compiler asks for more than the {len(self._advice)} decisions recorded"
                )
            return advice

        return FunctionDecider(replay)


class DeciderByFunction(Decider):
    """Takes each decision by `decide(function, index, observation)`; the index counts a function's decisions from 0."""

    def __init__(self, decide: Callable[[str, int, bytes], int | float], deciders: Sequence[Decider]):
        """`deciders`: what `decide` asks; those that follow contexts are told each function."""
        self._decide = decide
        self._following = [decider for decider in deciders if isinstance(decider, FollowsContexts)]
        self._num_decisions: Counter[str] = Counter()
        self._function: str | None = None

    def enter(self, context: str) -> None:
        self._function = context
        for decider in self._following:
            decider.enter(context)

    def __call__(self, observation: bytes) -> int | float:
        if self._function is None:
            raise ProtocolError("channel: a decision without the name of its function")
        index = self._num_decisions[self._function]
        self._num_decisions[self._function] += 1
        return self._decide(self._function, index, observation)


class FlippingPolicy(Policy):
    """Decides as another policy about binary actions, but flips some decisions: by position, and at random.

    Unless the other policy samples, a compilation is the same up to the first flip.
    """

    def __init__(
        self, policy: Policy, positions: Collection[int] = (), probability: float = 0.0, name: str = "flipped"
    ):
        """Flips the decisions at `positions`, counted from 0 in each compilation, and each other one by chance."""
        self.name = name
        self.needs_default = policy.needs_default
        self._policy = policy
        self.positions = frozenset(positions)
        self._probability = probability

    def start(self, header: Header, seed: int) -> Decider:
        decider, uniform, positions = self._policy.start(header, seed), uniforms(seed), itertools.count()

        def decide(observation: bytes) -> int | float:
            advice = decider(observation)
            is_flipped = uniform() < self._probability
            return 1 - advice if next(positions) in self.positions or is_flipped else advice

        return FunctionDecider(decide)


class UsesFeatures:
    """Reads features by name."""

    features: tuple[str, ...]
    """Features that the compiler must send."""

    optional: tuple[str, ...] = ()
    """Features that are used if the compiler sends them."""

    def used(self, compiler_features: Collection[str]) -> tuple[str, ...]:
        """Names of the features that are read."""
        return (*self.features, *(name for name in self.optional if name in compiler_features))


def deciding_by(
    choose: Callable[[dict[str, np.ndarray]], np.ndarray], names: Sequence[str], header: Header, policy: str
) -> Decider:
    """A decider that applies `choose` to the named features of each decision, as the compiler sends them.

    `choose` returns the advice, `[1]`; `policy` is the policy's name for error messages.

    Raises:
      PolicyError: the compiler does not send all the features.
    """
    missing = [name for name in names if name not in header.names]
    if missing:
        raise PolicyError(f"policy {policy!r}: the compiler does not send the features {', '.join(missing)}")
    dtype = record_dtype(header.features)

    def decide(observation: bytes) -> int | float:
        record = np.frombuffer(observation, dtype)
        return choose({name: record[name] for name in names})[0].item()

    return FunctionDecider(decide)


_BLOCK = 1024
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int) -> Callable[[], float]:
    """A stream of uniform numbers in [0, 1): SplitMix64 (Steele, Lea, Flood 2014), the upper 53 bits of each output.

    It takes a few lines in any language; the plugins generate the same stream.
    """
    state = seed % (1 << 64)
    block: list[float] = []

    def draw() -> float:
        nonlocal state, block
        if not block:
            block = splitmix64_block(state, _BLOCK).tolist()
            block.reverse()
            state = (state + _BLOCK * int(_GOLDEN)) % (1 << 64)
        return block.pop()

    return draw


def splitmix64_block(state: int, count: int) -> np.ndarray:
    """The next `count` uniform numbers `[count]` float64 of the stream in the given state."""
    # Unsigned arithmetic wraps around by definition of the generator.
    with np.errstate(over="ignore"):
        z = np.uint64(state) + _GOLDEN * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
