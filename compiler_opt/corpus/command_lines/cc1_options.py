"""The cc1 options that a corpus may use, by purpose; `command_line.py` refuses all others.

`-name` is a flag, `-name=<value>` and `-name<value>` have a joined value, `-name <value>` a separate one. `clang -cc1
--help` lists clang's options; a test checks these against the tested compilers.
"""

import re

KEPT = """
    # The target.
    -triple <value> -target-abi <value> -target-cpu <value> -target-feature <value> -target-linker-version <value>
    -tune-cpu <value> -mabi=<value> -mfloat-abi <value> -msoft-float -mfpmath <value> -mthread-model <value>
    -mlong-double-64 -mlong-double-80 -mlong-double-128 -mvscale-min=<value> -mvscale-max=<value>
    -mprefer-vector-width=<value> -exception-model=<value> -exception-model <value> -fclang-abi-compat=<value>
    -fbinutils-version=<value>
    # The pipeline.
    -O<value> -disable-O0-optnone -disable-free -disable-lifetime-markers -disable-llvm-verifier -disable-red-zone
    -discard-value-names -clear-ast-before-backend -no-clear-ast-before-backend -fdebug-pass-manager
    -fno-debug-pass-manager -vectorize-loops -vectorize-slp -floop-interchange -fno-loop-interchange -funroll-loops
    -fno-unroll-loops -ffinite-loops -fno-finite-loops -finline-functions -finline-hint-functions
    -finline-max-stacksize=<value> -fno-inline -fno-inline-functions -fmerge-functions -fno-builtin
    -fno-builtin-<value> -fno-math-builtin -fno-optimize-sibling-calls -fsplit-machine-functions -fveclib=<value>
    -fvirtual-function-elimination -fwhole-program-vtables -fno-verbose-asm -fverbose-asm
    # Floating point.
    -fapprox-func -fdenormal-fp-math=<value> -fdenormal-fp-math-f32=<value> -ffast-math -ffinite-math-only
    -ffp-contract=<value> -ffp-exception-behavior=<value> -ffloat16-excess-precision=<value>
    -fbfloat16-excess-precision=<value> -fcomplex-arithmetic=<value> -complex-range=<value> -fmath-errno
    -fno-rounding-math -fno-signed-zeros -freciprocal-math -frounding-math -funsafe-math-optimizations
    -menable-no-infs -menable-no-nans -mreassociate -mrecip -mrecip=<value> -mlimit-float-precision <value>
    # Code layout and addressing.
    -mrelocation-model <value> -pic-level <value> -pic-is-pie -mcmodel=<value> -mcode-model <value>
    -mlarge-data-threshold=<value> -msmall-data-limit <value> -mtls-size=<value> -mtls-dialect=<value>
    -ftls-model=<value> -femulated-tls -enable-tlsdesc -mno-tls-direct-seg-refs -fdata-sections -ffunction-sections
    -fno-unique-section-names -fseparate-named-sections -fbasic-block-address-map -fbasic-block-sections=all
    -fbasic-block-sections=none -fbasic-block-sections=labels -funique-basic-block-section-names -falign-loops=<value>
    -function-alignment <value> -fno-jump-tables -fno-plt -fdirect-access-external-data
    -fno-direct-access-external-data -fhalf-no-semantic-interposition -fno-use-init-array -fno-zero-initialized-in-bss
    -fropi -frwpi -faddrsig -mglobal-merge -mno-global-merge -mrelax-all -mrelax-relocations=no -mnoexecstack
    -mincremental-linker-compatible -moutline -mno-outline -moutline-atomics -mno-outline-atomics
    # Frames, calls, exceptions.
    -mframe-pointer=<value> -mregparm <value> -mrtd -mskip-rax-setup -fswift-async-fp=<value> -mbackchain
    -mpacked-stack -mstack-alignment=<value> -mstack-probe-size=<value> -mstackrealign -mno-stack-arg-probe
    -mconstructor-aliases -fasync-exceptions -fcxx-exceptions -fexceptions -fignore-exceptions -funwind-tables=<value>
    -fdwarf2-cfi-asm -fno-dwarf-directory-asm -fforce-dwarf-frame -femit-dwarf-unwind=<value> -fsplit-stack
    -fpatchable-function-entry=<value> -fpatchable-function-entry-offset=<value> -finstrument-functions
    -finstrument-functions-after-inlining -finstrument-function-entry-bare -mfentry -mnop-mcount -mrecord-mcount -pg
    # Hardening and sanitizers, which instrument the IR.
    -fcf-protection -fcf-protection=<value> -fzero-call-used-regs=<value> -fstack-clash-protection
    -fstack-size-section -ftrap-function=<value> -stack-protector <value> -stack-protector-buffer-size <value>
    -mstack-protector-guard=<value> -mstack-protector-guard-offset=<value> -mstack-protector-guard-reg=<value>
    -mstack-protector-guard-symbol=<value> -mharden-sls=<value> -mfunction-return=<value> -mindirect-branch-cs-prefix
    -mspeculative-load-hardening -msign-return-address=<value> -msign-return-address-key=<value>
    -mbranch-target-enforce -mguarded-control-stack -fsanitize=<value> -fsanitize-recover=<value>
    -fno-sanitize-recover=<value> -fsanitize-trap=<value> -fsanitize-merge=<value> -fno-sanitize-merge=<value>
    -fno-sanitize-memory-param-retval -fsanitize-memory-track-origins=<value> -fsanitize-memory-use-after-dtor
    -fsanitize-minimal-runtime -fsanitize-coverage-type=<value> -fsanitize-coverage-control-flow
    -fsanitize-coverage-indirect-calls -fsanitize-coverage-inline-8bit-counters -fsanitize-coverage-inline-bool-flag
    -fsanitize-coverage-no-prune -fsanitize-coverage-pc-table -fsanitize-coverage-stack-depth
    -fsanitize-coverage-trace-bb -fsanitize-coverage-trace-cmp -fsanitize-coverage-trace-div
    -fsanitize-coverage-trace-gep -fsanitize-coverage-trace-loads -fsanitize-coverage-trace-pc
    -fsanitize-coverage-trace-pc-guard -fsanitize-coverage-trace-stores -fsanitize-address-use-after-scope
    -fsanitize-address-use-after-return=<value> -fsanitize-address-globals-dead-stripping
    -fno-sanitize-address-use-odr-indicator
    # The format of debug information.
    -debugger-tuning=<value> -dwarf-version=<value> -debug-info-kind=<value> -gdwarf32 -gdwarf64 -gno-column-info
    -ggnu-pubnames -gpubnames -gstrict-dwarf -gsimple-template-names=<value> -gkey-instructions
    -fdebug-info-for-profiling -fprofile-update=<value> -fexperimental-assignment-tracking=<value>
    --compress-debug-sections=<value> -compress-debug-sections=<value> -Qn
"""
"""The options that control code generation, with values that cannot name a file."""

LLVM_KNOBS = """
    -aarch64-enable-global-merge -arm-implicit-it -emulated-tls -enable-dfa-jump-thread -enable-gvn-hoist
    -enable-gvn-sink -enable-machine-outliner -generate-type-units -global-isel -global-isel-abort -hot-cold-split
    -import-instr-limit -inline-threshold -inlinecold-threshold -inlinedefault-threshold -inlinehint-threshold
    -max-devirt-iterations -pgo-analysis-map -sink-insts-to-avoid-spills -treat-scalable-fixed-error-as-warning
    -unroll-count -unroll-threshold -x86-asm-syntax
"""
"""The options allowed after `-mllvm`, which reaches every internal option of LLVM, even those that write files."""

DROPPED = """
    # The output: always an object without embedded bitcode.
    -cc1 -S -emit-llvm -emit-llvm-bc -emit-llvm-uselists -emit-obj -fembed-bitcode=<value>
    # Other outputs.
    -dependency-file <value> -header-include-file <value> -object-file-name=<value> -opt-record-file <value>
    -opt-record-format <value> -opt-record-passes <value> -serialize-diagnostic-file <value> -split-dwarf-file <value>
    -split-dwarf-output <value> -stack-usage-file <value> -stats-file=<value> -ftime-report -ftime-report=<value>
    -ftime-trace=<value> -ftime-trace-granularity=<value> -fno-temp-file -fmodule-output=<value>
    -record-command-line <value> -MG -MP -MQ <value> -MT <value> -MV -sys-header-deps
    # Paths of sources and headers, and macros.
    -x <value> -D <value> -D<value> -U <value> -U<value> -F <value> -F<value> -I <value> -I<value> -c-isystem <value>
    -cxx-isystem <value> -idirafter <value> -iframework <value> -imacros <value> -include <value> -include-pch <value>
    -fmodule-file=<value> -fmodule-map-file=<value> -fmodule-name=<value> -fmodules-cache-path=<value>
    -fprebuilt-module-path=<value> -fno-validate-pch -fpch-instantiate-templates -internal-externc-isystem <value>
    -internal-iframework <value> -internal-isystem <value> -iprefix <value> -iquote <value> -isysroot <value>
    -isystem <value> -iwithprefix <value> -iwithprefixbefore <value> -iwithsysroot <value> -nobuiltininc -nostdinc++
    -nostdsysteminc -resource-dir <value> -stdlib=<value> -undef -fdebug-compilation-dir=<value>
    -fcoverage-compilation-dir=<value> -fcoverage-prefix-map=<value> -fdebug-prefix-map=<value>
    -fmacro-prefix-map=<value> -ffile-reproducible -fno-file-reproducible -dwarf-debug-flags <value>
    -main-file-name <value> -source-date-epoch <value> -working-directory <value>
    # Messages.
    -R<value> -W<value> -pedantic -pedantic-errors -v -w -fansi-escape-codes -fcaret-diagnostics-max-lines=<value>
    -fcolor-diagnostics -fdiagnostics-<value> -fdiagnostics-format <value> -fno-caret-diagnostics
    -fsafe-buffer-usage-suggestions -massembler-fatal-warnings -fcomment-block-commands=<value> -fparse-all-comments
    -fretain-comments-from-system-headers -ferror-limit <value> -fmacro-backtrace-limit=<value>
    -fmessage-length=<value> -fno-diagnostics-<value> -fno-elide-type -fno-show-column -fno-show-source-location
    -fno-spell-checking -fspell-checking-limit=<value> -fshow-overloads=<value> -ftabstop <value>
    -ftemplate-backtrace-limit=<value> -fconstexpr-backtrace-limit=<value>
    # The language.
    -std=<value> -pthread -static-define -traditional-cpp -malign-double -mms-bitfields -mdouble=<value>
    -relaxed-aliasing -no-struct-path-tbaa -pointer-tbaa -no-pointer-tbaa -enable-noundef-analysis
    -no-enable-noundef-analysis -fapple-kext -fapple-pragma-pack -fapplication-extension
    -fassume-nothrow-exception-dtor -faligned-alloc-unavailable -faligned-allocation -fno-aligned-allocation -fblocks
    -fborland-extensions -fbracket-depth <value> -fc++-abi=<value> -fc++-static-destructors=<value> -fchar8_t
    -fno-char8_t -fcheck-new -fcommon -fno-common -fconst-strings -fno-const-strings -fconstexpr-depth=<value>
    -fconstexpr-steps=<value> -fconvergent-functions -fcoro-aligned-allocation -fcoroutines -fcx-fortran-rules
    -fcx-limited-range -fdeclspec -fno-declspec -fdelayed-template-parsing -fdeprecated-macro -fno-deprecated-macro
    -fdigraphs -fno-digraphs -fdollars-in-identifiers -fno-dollars-in-identifiers -femit-all-decls
    -fexperimental-library -fexperimental-new-constant-interpreter -fextend-variable-liveness=<value>
    -fexperimental-relative-c++-abi-vtables -fno-experimental-relative-c++-abi-vtables -ffixed-point
    -fforbid-guard-variables -fforce-emit-vtables -ffp-eval-method=<value> -ffreestanding -fgnu-keywords
    -fgnu89-inline -fgnuc-version=<value> -fimplicit-module-maps -fno-implicit-modules -fopenmp -fopenmp-simd
    -fopenmp-version=<value> -fkeep-static-consts -fkeep-persistent-storage-variables -flax-vector-conversions=<value>
    -fmax-type-align=<value> -fmerge-all-constants -fms-compatibility -fms-compatibility-version=<value>
    -fms-extensions -fms-layout-compatibility=<value> -fms-volatile -fmodules-validate-system-headers -fmodules
    -fno-gnu-keywords -fobjc-arc -fzvector -fsanitize-undefined-strip-path-components=<value> -fno-knr-functions
    -fraw-string-literals -fsemantic-interposition -fvisibility-from-dllstorageclass -debug-info-macro
    -debug-forward-template-params -default-function-attr <value> -fdebug-ranges-base-address -gembed-source
    -gno-inline-line-tables -gomit-unreferenced-methods -gtemplate-alias -fnew-alignment=<value> -fnew-infallible
    -fno-new-infallible -fno-access-control -fno-assume-sane-operator-new -fno-assume-unique-vtables -fno-assumptions
    -fno-autolink -fno-bitfield-type-align -fno-c++-static-destructors -fno-constant-cfstrings
    -fno-delete-null-pointer-checks -fno-elide-constructors -fno-gnu-inline-asm -inline-asm=<value>
    -fno-operator-names -fno-pch-timestamp -fno-rtti -fno-rtti-data -fno-signed-char -fno-signed-wchar -fsigned-wchar
    -fno-sized-deallocation -fsized-deallocation -fno-skip-odr-check-in-gmf -fskip-odr-check-in-gmf
    -fno-strict-float-cast-overflow -fno-strict-return -fno-threadsafe-statics -fno-trigraphs -ftrigraphs
    -fno-use-cxa-atexit -fno-wchar -foperator-arrow-depth=<value> -fpack-struct=<value> -fpascal-strings
    -fpcc-struct-return -fprotect-parens -freg-struct-return -fregister-global-dtors-with-atexit
    -fno-relaxed-template-template-args -fshort-enums -fstrict-enums -fstrict-flex-arrays=<value>
    -fstrict-vtable-pointers -ftemplate-depth=<value> -ftrapv -ftrivial-auto-var-init=<value>
    -ftrivial-auto-var-init-max-size=<value> -ftrivial-auto-var-init-stop-after=<value> -ftype-visibility=<value>
    -fuse-line-directives -fvisibility=<value> -fvisibility-global-new-delete=<value> -fvisibility-inlines-hidden
    -fvisibility-inlines-hidden-static-local-var -fwchar-type=<value> -fwrapv -fwrapv-pointer -fwritable-strings
    -fxl-pragma-pack -funique-internal-linkage-names
    # The front end has applied these lists. clang passes the system's list if its runtime libraries are installed.
    -fsanitize-ignorelist=<value> -fsanitize-system-ignorelist=<value>
"""
"""The options that make no difference to bitcode, or name outputs: they are left out."""

REASONS = {
    "it loads code": "-load -plugin -add-plugin -fplugin -fpass-plugin",
    "it writes other files": "-coverage-notes-file -coverage-data-file -save-temps -fcrash-diagnostics-dir -dumpdir",
    "it reads a profile, or makes programs write one": "-fprofile- -fmemory-profile -fcoverage-mapping -fpseudo-probe",
    "it reads other files": "@ -mlink- -ivfsoverlay",
    "the object came from an assembler that is not clang's": "-fno-integrated-as",
}
"""Why some options are refused: prefixes of options by reason."""


def entries(table: str) -> list[str]:
    """The options of a table, in its notation."""
    lines = (line for line in table.splitlines() if not line.lstrip().startswith("#"))
    return [option for line in lines for option in re.findall(r"\S+(?: <value>)?", line)]
