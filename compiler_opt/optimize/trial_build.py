"""A build of the program in which objects are replaced, and which its own build tool links again."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from compiler_opt.errors import ConfigError
from compiler_opt.optimize.program import Program, Variant, targets_of_tests, training_objects


class TrialBuild:
    """Puts other objects into a finished build.

    The objects are replaced in place, with the times of the old ones, and the files that are linked are removed. So the
    build tool compiles nothing and links everything, and nothing has to be known about how it links.
    """

    def __init__(self, program: Program, default: Variant, trial: Variant):
        """Builds the program in the folder of `trial`, as in that of `default`, which is built already.

        Raises:
          ConfigError: the build fails.
        """
        self._program, self._default, self._trial = program, default, trial
        program.prepare(trial)
        program.build(trial, lambda done, total: None)
        targets = program.targets(trial)
        testing = targets_of_tests(targets, program.test_programs(trial))
        objects = training_objects(program.sources(trial), targets, testing)
        self._objects = {item.name: item.path for item in objects}
        self._artifacts = [trial.folder / target.artifact for target in targets if target.artifact]
        self._replaced: set[str] = set(self._objects)

    @property
    def folder(self) -> Path:
        return self._trial.folder

    def link(self, objects: Mapping[str, Path]) -> None:
        """Links the program with these objects, by module of the corpus, and the default build's for the others.

        Raises:
          ConfigError: linking fails.
        """
        unknown = sorted(objects.keys() - self._objects.keys())
        if unknown:
            raise ConfigError(f"{self._trial.folder}: expected an object for the module {unknown[0]}, found none")
        for name in sorted(self._replaced | objects.keys()):
            path = self._objects[name]
            original = self._default.folder / path.relative_to(self._trial.folder)
            times = path.stat()
            shutil.copyfile(objects.get(name, original), path)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        self._replaced = set(objects)
        for artifact in self._artifacts:
            artifact.unlink(missing_ok=True)
        self._program.build(self._trial, lambda done, total: None)
        gone = next((artifact for artifact in self._artifacts if not artifact.is_file()), None)
        if gone is not None:
            raise ConfigError(f"{gone}: was not linked again; see {self._trial.log('build')}")
