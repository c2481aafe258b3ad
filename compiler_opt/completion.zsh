# Completion of compiler_opt for zsh, after compinit: source <(compiler_opt --completion=zsh)

typeset -gA _compiler_opt_flags # by verb: to list them takes a second

_compiler_opt() {
  local program=$words[1] verb=$words[2] name text
  local -a verbs flags
  if ((CURRENT == 2)); then
    $program --list | while read -r name text; do verbs+=("$name:$text"); done
    _describe verb verbs
  elif [[ $PREFIX == -*=* ]]; then
    compset -P '*='
    _files
  elif [[ $PREFIX == -* ]]; then
    : ${_compiler_opt_flags[$verb]:=$($program --flags $verb 2>/dev/null)}
    flags=(${=_compiler_opt_flags[$verb]})
    compadd -S '' -- ${(M)flags:#*=}
    compadd -- ${flags:#*=}
  else
    _files
  fi
}
compdef _compiler_opt compiler_opt
