# Completion of compiler_opt for zsh, after compinit: source <(compiler_opt --completion=zsh)

typeset -gA _compiler_opt_flags # by verb: to list them takes a second

_compiler_opt() {
  local program=$words[1] verb=$words[2] line name text
  local -aU verbs flags
  if ((CURRENT > 3)) && [[ $words[3] != -* ]]; then verb+=" $words[3]"; fi
  if [[ $PREFIX == -*=* ]]; then
    compset -P '*='
    _files
  elif [[ $PREFIX == -* ]]; then
    : ${_compiler_opt_flags[$verb]:=$($program --flags ${=verb} 2>/dev/null)}
    flags=(${=_compiler_opt_flags[$verb]})
    compadd -S '' -- ${(M)flags:#*=}
    compadd -- ${flags:#*=}
  else
    $program --list | while read -r line; do
      name=${line%%  *} text=${line##*  }
      if ((CURRENT == 2)); then
        if [[ $name == *' '* ]]; then name=${name% *} text="a group of commands"; fi
        verbs+=("$name:$text")
      elif ((CURRENT == 3)) && [[ $name == "$verb "* ]]; then
        verbs+=("${name#* }:$text")
      fi
    done
    if (($#verbs)); then _describe verb verbs; else _files; fi
  fi
}
compdef _compiler_opt compiler_opt
