"""Which options are not chosen, whatever they gain, because programs might break: by rule, with the reason.

An option may switch off a part of the compiler that every build runs, or change how far or in which order it works:
that makes other code of the same meaning from a compiler that is tested daily. It may not

- switch on code that clang runs at no level by itself on the targets that the sets are for. Nobody's builds test it,
  and some of it is known to be wrong: LLVM's own comments and reports say so of `enable-gvn-hoist` and the attributor.
  With `pre-RA-sched=linearize`, clang-22 makes jsoncpp fail all of its tests;
- change what programs may rely on: results of floating-point arithmetic, aliasing, traps, unwinding, symbols, the
  layout of the stack, or how code that other compilers have made is called;
- change limits of analyses, which keep compile time bounded;
- switch off the placement of blocks, change the alignment of loops, or ignore how likely branches are: executed
  instructions do not show that time, and without likelihoods the compiler's estimates mean something else.
"""

import re

_EXPERIMENTAL = re.compile(
    r"attributor-.*|enable-(newgvn|gvn-hoist|gvn-sink|ipra|module-inliner|knowledge-retention|matrix|loop-flatten|"
    r"loopinterchange|loop-distribute|loop-versioning-licm|unroll-and-jam|dfa-jump-thread|merge-functions|"
    r"subreg-liveness|pipeliner|chr|jump-table-to-switch|machine-outliner|partial-inlining|global-merge-func|"
    r"linkonceodr-.*|heap-to-stack-.*|epilogue-.*|vplan-.*|early-exit-.*|split-machine-functions|cond-stores-vec|"
    r"interleaved-mem-accesses|masked-interleaved-mem-accesses|selectiondag-sp|phi-of-ops|loop-header-duplication|"
    r"nontrivial-unswitch|wide-lane-mask|devirtualize-.*)|devirtualize-.*|early-live-intervals|global-isel.*|fast-isel.*|"
    r"extra-vectorizer-passes|sink-insts-to-avoid-spills|disable-2addr-hack|regalloc|optimize-regalloc|terminal-rule|aggressive-machine-cse|force-.*|run-.*|"
    r"use-segment-set-.*|machine-outliner-.*|outliner-.*|hot-cold-split.*|ir-outliner.*|polly.*|slp-revec|window-sched.*|"
    r"exhaustive-register-search|enable-aa-sched-mi|rewrite-.*|x86-tile-ra|mergefunc-.*|pi-.*|sbvec-.*|lsr-(exp-narrow|drop-solution)|"
    r"misched|global-merge-(on|all)-.*|join-splitedges|pre-RA-sched=(linearize|fast|vliw-td)|x86-cmov-converter-force-all|combiner-disabled|join-liveintervals"
)
_MEANING = re.compile(
    r"limit-float-precision|.*double-float-shrink|disable-strictnode-mutation|expand-(fp|div).*|enable-unsafe-.*|"
    r".*assume-.*|.*visibility.*|enable-vfe|no-stack-.*|no-trap-.*|trap-unreachable|disable-cleanups|demote-.*|"
    r"emit-.*|x86-use-base-pointer|x86-slh-.*|x86-lvi-.*|x86-seses-.*|x86-indirect-.*|x86-speculative-.*|x86-pad-.*|"
    r"x86-align-.*|x86-branches-.*|x86-relax-.*|x86-sse2avx|x86-use-vzeroupper|x86-asm-syntax|crel|dwarf.*|use-dwarf-.*|"
    r"fdpic|mc-relax-all|align-.*|max-bytes-for-alignment|.*emscripten.*|fp-.*|safe-stack-.*|safestack-.*|use-undef|"
    r"(un)?likely-branch-weight|enable-(scoped-noalias|tbaa)|disable-basic-aa|basic-aa-.*|use-noalias-.*|use-dereferenceable-.*|.*name-compression|"
    r"coro-.*|disable-whole-.*|enable-cold-section|strip-.*|propagate-attrs|.*-nonnull-arg-prop|disable-(nofree|nounwind)-inference"
)
_SLOW = re.compile(
    r"scalar-evolution-.*|scev-.*|memdep-.*|licm-max-.*|capture-tracking-.*|dom-.*|constraint-elimination-max-.*|"
    r"aggressive-instcombine-.*|lvi-.*|cvp-max-.*|alias-set-.*|inline-deferral.*"
)
_UNSEEN = re.compile(r".*loop-alignment|disable-block-placement|use-mbpi")


def reason_against(name: str) -> str:
    """Why an option of this name, or with this value (`NAME=VALUE`), is not chosen; empty if it may be."""
    if _EXPERIMENTAL.fullmatch(name):
        return "switches on code that clang does not run by itself on this target"
    if _MEANING.fullmatch(name):
        return "may change what programs rely on"
    if _SLOW.fullmatch(name):
        return "a limit of an analysis: what it costs depends on the code"
    if _UNSEEN.fullmatch(name):
        return "costs time that instructions do not show"
    return ""
