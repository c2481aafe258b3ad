"""Turns the recorded cc1 options of a module into the command that compiles its bitcode.

A corpus is untrusted input, so options pass through an allow-list by effect: those that steer code generation are kept
(with values that cannot name a file), those that only concern the front end are dropped (the bitcode is already past
it), and everything else (plugins, other outputs, profiles, dump folders, response files) is refused by name.
"""

import enum
import functools
import pathlib
import re
from collections.abc import Sequence

from compiler_opt.errors import CorpusError


class _Effect(enum.Enum):
    """What happens to an option."""

    KEEP = enum.auto()
    DROP = enum.auto()


_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:=+-]*")
"""Values of kept options: words, numbers and lists; nothing that can name a file elsewhere."""

# Options without a value that change the code, or how fast it is made.
_KEPT_FLAGS = frozenset(
    """
    -O0 -O1 -O2 -O3 -Os -Oz -disable-free -disable-llvm-verifier -discard-value-names -clear-ast-before-backend
    -pic-is-pie -fmath-errno -fno-rounding-math -frounding-math -mconstructor-aliases -fexceptions -fcxx-exceptions
    -fseh-exceptions -fsjlj-exceptions -fwasm-exceptions -fasync-exceptions -fignore-exceptions
    -vectorize-slp -vectorize-loops -funroll-loops -fno-unroll-loops -floop-interchange -fmerge-functions
    -fsplit-machine-functions -fno-split-machine-functions -ffunction-sections -fdata-sections
    -fno-unique-section-names -funique-basic-block-section-names -fno-plt -fno-direct-access-external-data
    -fdirect-access-external-data -faddrsig -fno-addrsig -fdwarf2-cfi-asm -fno-dwarf2-cfi-asm -fno-dwarf-directory-asm
    -mnoexecstack -msave-temp-labels -mrelax-all -mno-relax-all -mno-relax -mrelax-relocations=no
    -mno-tls-direct-seg-refs -mno-implicit-float -mstack-realign -mstackrealign -munwind-tables
    -mspeculative-load-hardening -mincremental-linker-compatible -mlink-builtin-bitcode-postopt
    -msoft-float -mno-zero-initialized-in-bss -mdisable-tail-calls -fno-optimize-sibling-calls
    -mno-outline -moutline -menable-no-infs -menable-no-nans -menable-unsafe-fp-math -menable-no-infinities
    -fapprox-func -fno-signed-zeros -freciprocal-math -mreassociate -ffast-math -ffinite-math-only -fno-trapping-math
    -fno-use-init-array -fno-semantic-interposition -fhalf-no-semantic-interposition -femulated-tls -fno-jump-tables
    -fjump-tables -fno-builtin -fno-inline -fno-inline-functions -finline-functions -finline-hint-functions
    -fstrict-vtable-pointers -fwhole-program-vtables -fvirtual-function-elimination -fforce-emit-vtables
    -fcoroutines -fno-strict-aliasing -relaxed-aliasing -no-struct-path-tbaa -fstack-size-section -fno-stack-size-section
    -fno-integrated-as -fverbose-asm -mno-exec-stack -fzero-call-used-regs=skip -funified-lto -flto-unit
    -disable-O0-optnone -disable-lifetime-markers -disable-red-zone -fno-verbose-asm -mregparm
    -fstack-clash-protection -stack-protector-buffer-size -fcf-protection -mibt-seal -mretpoline
    -fnew-infallible -fassume-unique-vtables -fno-assume-unique-vtables -ftrap-function=abort
    """.split()
) - {"-mregparm", "-stack-protector-buffer-size"}

# Options whose plain value is joined to them.
_KEPT_JOINED = tuple(
    """
    -mframe-pointer= -ffp-contract= -funwind-tables= -ffp-exception-behavior= -mcmodel= -mcode-model= -mtls-size=
    -fvisibility= -ftls-model= -fdenormal-fp-math= -fdenormal-fp-math-f32= -fcf-protection= -mfloat-abi
    -exception-model= -fzero-call-used-regs= -mprefer-vector-width= -mrecip= -mstack-alignment= -mstack-probe-size=
    -mbranch-target-enforce -msign-return-address= -msign-return-address-key= -mbranch-protection-pauth-lr
    -fveclib= -mharden-sls= -mindirect-branch-cs-prefix -mfunction-return= -fbasic-block-address-map
    -mlarge-data-threshold= -mtls-dialect= -menable-tlsdesc -falign-functions= -falign-loops= -mabi=
    -mvscale-min= -mvscale-max= -msve-vector-bits= -mrvv-vector-bits= -fwchar-type= -mspeculative-load-hardening
    -fcomplex-arithmetic= -ffloat16-excess-precision= -fbfloat16-excess-precision= -mdaz-ftz -fpatchable-function-entry
    -fbasic-block-sections=none -fbasic-block-sections=all
    """.split()
)

# Options whose plain value is the next argument.
_KEPT_SEPARATE = frozenset(
    """
    -triple -mrelocation-model -pic-level -target-cpu -tune-cpu -target-feature -target-abi -target-linker-version
    -main-file-name -mfloat-abi -mthread-model -stack-protector -stack-protector-buffer-size -mregparm
    -function-alignment -mfpmath -mlimit-float-precision -debugger-tuning -split-dwarf-output-none -fnew-alignment
    """.split()
) - {"-split-dwarf-output-none"}

# Front end only: language, headers, diagnostics, macros; and what we replace ourselves.
_DROPPED_FLAGS = frozenset(
    """
    -cc1 -emit-obj -emit-llvm-bc -emit-llvm -S -disable-llvm-passes -w -pedantic -pedantic-errors -v -pthread
    -nostdsysteminc -nobuiltininc -nostdinc -nostdinc++ -undef -trigraphs -dwarf-debug-flags-none -f -munwind-tables
    -mms-bitfields -mdouble=64 -fcolor-diagnostics -P -C -H
    """.split()
) - {"-dwarf-debug-flags-none", "-f", "-munwind-tables", "-H"}

_DROPPED_SEPARATE = frozenset(
    """
    -resource-dir -internal-isystem -internal-externc-isystem -internal-iframework -isystem -idirafter -iquote -iprefix
    -iwithprefix -iwithprefixbefore -cxx-isystem -c-isystem -isysroot -include -imacros -iframework
    -ferror-limit -fmessage-length -ftemplate-depth -fconstexpr-depth -fconstexpr-steps -fbracket-depth -fmacro-backtrace-limit
    -ftemplate-backtrace-limit -fspell-checking-limit -fcaret-diagnostics-max-lines -ftabstop
    -fdebug-compilation-dir -fcoverage-compilation-dir -x -D -U -I -F
    -dwarf-debug-flags -fdiagnostics-hotness-threshold
    """.split()
)

_DROPPED_JOINED = tuple(
    """
    -D -U -I -W -R -std= -fembed-bitcode -fdebug-compilation-dir= -fcoverage-compilation-dir= -fgnuc-version=
    -fmacro-prefix-map= -ffile-prefix-map= -fdebug-prefix-map= -fcoverage-prefix-map= -fms-compatibility-version=
    -fdiagnostics- -fno-diagnostics- -fmessage-length= -ferror-limit= -fcolor-diagnostics -fno-color-diagnostics
    -fconstexpr- -ftemplate- -fbracket-depth= -fmodules-embed-all-files- -ftrivial-auto-var-init= -isysroot -isystem
    -debug-info-kind= -dwarf-version= -debugger-tuning= -fshow- -fno-show- -fcaret-diagnostics- -nostdinc
    -fobjc-runtime= -fobjc-dispatch-method= -fsanitize-trap= -ffp-eval-method= -fexperimental-
    """.split()
)

_DROPPED_LANGUAGE = frozenset(
    f"-f{no}{name}"
    for no in ("", "no-")
    for name in """
    deprecated-macro skip-odr-check-in-gmf rtti rtti-data char8_t signed-char wchar short-enums short-wchar gnu-keywords
    gnu89-inline implicit-modules implicit-module-maps modules-validate-system-headers access-control elide-constructors
    elide-type threadsafe-statics use-cxa-atexit operator-names sized-deallocation aligned-allocation assume-sane-operator-new
    assumptions dollars-in-identifiers digraphs spell-checking caret-diagnostics inline-asm pch-timestamp
    borland-extensions ms-extensions ms-compatibility delayed-template-parsing common strict-return strict-enums strict-bool
    strict-float-cast-overflow strict-flex-arrays bool wrapv trapv constant-cfstrings asm-blocks blocks
    retain-comments-from-system-headers double-square-bracket-attributes raw-string-literals trigraphs visibility-inlines-hidden
    visibility-inlines-hidden-static-local-var visibility-from-dllstorageclass visibility-global-new-delete-hidden
    merge-all-constants standalone-debug c++-static-destructors c++-abi-version relaxed-template-template-args coroutines-ts
    coro-aligned-allocation finite-loops freestanding hosted-none fixed-point gnu-inline-asm pascal-strings writable-strings
    unsigned-char unsigned-wchar honor-nans show-column show-source-location xl-pragma-pack zos-extensions
    debug-info-for-profiling ident keep-static-consts delete-null-pointer-checks signed-bitfields
    convergent-functions protect-parens lax-vector-conversions register-global-dtors-with-atexit apple-kext
    declspec pointer-tbaa implicit-constexpr openmp-none experimental-new-constant-interpreter
    """.split()
    if not name.endswith("-none")
)

# `-mllvm` reaches every internal switch of LLVM, some of which write files: only plain tuning knobs pass.
_LLVM_KNOB = re.compile(
    r"--?(inline-threshold|inlinehint-threshold|inlinecold-threshold|inlinedefault-threshold|unroll-threshold"
    r"|unroll-count|import-instr-limit|enable-dfa-jump-thread|enable-gvn-hoist|enable-gvn-sink|hot-cold-split"
    r"|treat-scalable-fixed-error-as-warning|sink-insts-to-avoid-spills|enable-machine-outliner"
    r"|max-devirt-iterations|aarch64-enable-global-merge|generate-type-units|emulated-tls)(=[A-Za-z0-9_.-]*)?"
)


def compile_command(
    clang: pathlib.Path | str,
    options: Sequence[str],
    bitcode: pathlib.Path | str,
    output: pathlib.Path | str,
    extra: Sequence[str] = (),
) -> list[str]:
    """The command that compiles a corpus module to an object file, as the build did, minus the embedded bitcode.

    Args:
      clang: the compiler.
      options: the module's recorded cc1 options, `Module.options()`.
      bitcode: the module's `.bc` file.
      output: the object file to write.
      extra: our own cc1 options, e.g. `-mllvm` pairs; trusted, and last so that they win.

    Raises:
      CorpusError: an option is not on the allow-list.
    """
    kept = checked_options(tuple(options))
    return [str(clang), "-cc1", *kept, "-emit-obj", *extra, "-x", "ir", str(bitcode), "-o", str(output)]


@functools.lru_cache(maxsize=65536)
def checked_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options that steer code generation, in order; front-end options are dropped.

    Raises:
      CorpusError: `options` is no cc1 command line, or one is neither known as harmless nor as front-end only.
    """
    if not options or options[0] != "-cc1":
        found = repr(options[0])[:80] if options else "nothing"
        raise CorpusError(f"command line: expected cc1 options that start with '-cc1', found {found}")
    kept: list[str] = []
    arguments = iter(options)
    for option in arguments:
        effect, takes_value = _effect(option)
        if not takes_value:
            words = [option]
        else:
            value = next(arguments, None)
            if value is None:
                raise CorpusError(f"command line: {_shown(option)} ends the line but takes a value")
            words = [option, value]
        if effect is _Effect.KEEP:
            _check_value(words)
            kept += words
    return tuple(kept)


def _effect(option: str) -> tuple[_Effect, bool]:
    """What to do with an option, and whether the next argument belongs to it."""
    if option in _KEPT_FLAGS:
        return _Effect.KEEP, False
    if option in _KEPT_SEPARATE or option == "-mllvm":
        return _Effect.KEEP, True
    if option in _DROPPED_FLAGS or option in _DROPPED_LANGUAGE:
        return _Effect.DROP, False
    if option in _DROPPED_SEPARATE:
        return _Effect.DROP, True
    if option.startswith(_KEPT_JOINED):
        return _Effect.KEEP, False
    if option.startswith(_DROPPED_JOINED):
        return _Effect.DROP, False
    raise CorpusError(
        f"command line: {_shown(option)} is not on the list of options that a corpus may use; "
        "remove it from the module's .cmd file, or leave the module out"
    )


def _check_value(words: Sequence[str]) -> None:
    if words[0] == "-mllvm":
        if not _LLVM_KNOB.fullmatch(words[1]):
            raise CorpusError(
                f"command line: -mllvm {_shown(words[1])} is not on the list of options that a corpus may use; "
                "remove it from the module's .cmd file, or leave the module out"
            )
    elif words[0] == "-main-file-name":
        # Only ever printed, never opened; may hold any character of a file name.
        if "\0" in words[1] or "/" in words[1] or words[1].startswith(("-", "@")):
            raise CorpusError(f"command line: -main-file-name: expected a file name, found {_shown(words[1])}")
    elif not all(_PLAIN_VALUE.fullmatch(word) for word in words):
        raise CorpusError(f"command line: {_shown(' '.join(words))}: expected a plain word as its value")


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 80 else repr(text[:80]) + "..."
