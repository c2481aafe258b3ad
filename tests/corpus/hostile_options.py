"""Compiler options that load code, name another output, or read files that are not the module's."""

HOSTILE_OPTIONS = """
-o escaped
-oescaped
-load ./plugin.so
-fpass-plugin=./plugin.so
-mllvm -load=./plugin.so
-stats-file=escaped
-ftime-trace=escaped
-opt-record-file escaped
-serialize-diagnostic-file escaped
-diagnostic-log-file escaped -Wall
-stack-usage-file escaped
-split-dwarf-file escaped -split-dwarf-output escaped
-dependency-file escaped -MT target
-mllvm -ir-dump-directory=escaped -mllvm -print-after=instcombine
-mllvm -stats -mllvm -stats-json -mllvm -info-output-file=escaped
-mllvm -pass-remarks-output=escaped
-fcrash-diagnostics-dir=escaped
-fprofile-instrument=clang -fprofile-instrument-path=escaped
-fprofile-instrument=csllvm -fprofile-instrument-path=escaped
-coverage-data-file=escaped -coverage-notes-file=escaped
-fcoverage-mapping -dump-coverage-mapping
-fsanitize-coverage-type=3 -fsanitize-coverage-trace-pc-guard
-fthin-link-bitcode=escaped
-fverify-debuginfo-preserve-export=escaped
-header-include-file escaped
-module-dependency-dir escaped
-dumpdir escaped
-save-temps=obj
-emit-llvm-bc -o escaped
-plugin escaped
-add-plugin escaped
-Xclang -load -Xclang ./plugin.so
-fplugin=./plugin.so
-MF escaped
-MD -MF escaped
-B escaped
-specs=escaped
@escaped
-fmodule-file=escaped
-fmodule-file=name=escaped
-fmodule-output=escaped
-fmodules-cache-path=escaped
-fmodule-map-file=escaped
-fprebuilt-module-path=escaped
-include-pch escaped
-ivfsoverlay escaped
-working-directory escaped
-fprofile-instrument-use-path=escaped -fprofile-instrument-use=llvm
-fprofile-sample-use=escaped
-fprofile-remapping-file=escaped
-fprofile-list=escaped
-fmemory-profile-use=escaped
-fmemory-profile=escaped
-fbasic-block-sections=list=escaped
-fbasic-block-sections=list=/etc/passwd
-fsanitize-ignorelist=escaped
-fsanitize-system-ignorelist=escaped
-fsanitize-coverage-allowlist=escaped
-fsanitize-coverage-ignorelist=escaped
-fxray-attr-list=escaped
-fxray-always-instrument=escaped
-fthinlto-index=escaped
-mlink-bitcode-file escaped
-mlink-builtin-bitcode escaped
-fembed-offload-object=escaped
-fopenmp-host-ir-file-path escaped
-fcuda-include-gpubinary escaped
-frandomize-layout-seed-file=escaped
-fms-secure-hotpatch-functions-file=escaped
-mllvm -sample-profile-file=escaped
-mllvm -profile-file=escaped
-mllvm -pgo-instrument-entry -mllvm -pgo-test-profile-file=escaped
-mllvm -print-module-scope -mllvm -print-after-all
-mllvm -dot-cfg-dir=escaped -mllvm -print-changed=dot-cfg
-mllvm -inliner-interactive-channel-base=escaped
-mllvm -regalloc-evict-interactive-channel-base=escaped
-mllvm -internalize-public-api-file=escaped
-mllvm -inline-replay=escaped -mllvm -cgscc-inline-replay=escaped
-mllvm -inline-threshold=/etc/passwd
-as-secure-log-file escaped
escaped
- escaped
-- escaped
""".strip().splitlines()
"""One or several options a line; they load `./plugin.so`, or name the file `escaped`."""

WRITERS = HOSTILE_OPTIONS[:14]
"""Without the allow-list, these write a file with at least one of the compilers."""
