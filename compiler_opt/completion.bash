# Completion of compiler_opt for bash: source <(compiler_opt --completion=bash)

declare -gA _compiler_opt_flags # by verb: to list them takes a second

_compiler_opt() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} words=
  if ((COMP_CWORD > 2)) && [[ ${COMP_WORDS[2]} != -* ]]; then verb+=" ${COMP_WORDS[2]}"; fi
  if [[ $word == -* ]]; then
    words=${_compiler_opt_flags[$verb]:=$("$1" --flags $verb 2>/dev/null)}
  elif ((COMP_CWORD == 1)); then
    words=$("$1" --list | cut -d ' ' -f 1 | uniq)
  elif ((COMP_CWORD == 2)); then # of a group
    words=$("$1" --list | sed -n "s/^$verb \([a-z_]\+\) .*/\1/p")
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _compiler_opt compiler_opt
