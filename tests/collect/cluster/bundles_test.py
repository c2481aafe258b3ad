"""Bundles arrive whole and unchanged, and a node's cache stays within its disk."""

import dataclasses
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from compiler_opt.collect.cluster.bundles import (
    BundleCache,
    SharedFiles,
    digest_of,
    module_bundle,
    module_files,
    policy_bundle,
)
from compiler_opt.collect.policy_folder import PickledPolicy, PolicyFolder
from compiler_opt.corpus.module import Module
from compiler_opt.errors import CorpusError, OutputError, ResourceError


def _module(folder: Path, content: bytes = b"BC\xc0\xde", name: str = "lib/a.o") -> Module:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.bc").write_bytes(content)
    (folder / f"{name}.cmd").write_bytes(b"-cc1\0")
    return Module(name, "lib", folder)


def test_a_module_has_the_same_files_on_the_node(tmp_path: Path) -> None:
    module = _module(tmp_path / "corpus")
    (tmp_path / "corpus/lib/a.o.thinlto.bc").write_bytes(b"index")
    files = module_files(module)
    bundle, cache = module_bundle(files), BundleCache(tmp_path / "cache", 0)
    assert not cache.has(bundle)
    cache.put(bundle, files)
    cache.put(bundle, files)
    assert cache.has(bundle) and BundleCache(tmp_path / "cache").has(bundle)
    there = dataclasses.replace(module, root=cache.path(bundle))
    assert module_files(there) == files and len(files) == 3
    assert there.content_digest() == module.content_digest()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["modules"]


def test_the_host_shares_what_a_job_reads_once(tmp_path: Path) -> None:
    module, folder = _module(tmp_path / "corpus"), PolicyFolder(tmp_path / "policies")
    policy = PickledPolicy(b"", ("1f2e",))
    folder.path("1f2e").mkdir(parents=True)
    (folder.path("1f2e") / "policy.pickle").write_bytes(b"a policy")
    put: list[Mapping[str, bytes]] = []

    def keep(files: Mapping[str, bytes]) -> int:
        put.append(files)
        return len(put) - 1

    shared = SharedFiles(keep)
    first, again = (shared.of_job(module, policy, folder) for _ in range(2))
    assert first == again and [put[at] for _, [at] in first] == put == [
        module_files(module),
        {"policy.pickle": b"a policy"},
    ]
    assert [bundle.path.partition("/")[0] for bundle, _ in first] == ["modules", "policies"]


def test_a_module_that_changes_while_it_is_used_is_refused(tmp_path: Path) -> None:
    module, policy, folder = _module(tmp_path / "corpus"), PickledPolicy(b""), PolicyFolder(tmp_path / "policies")
    others = [_module(tmp_path / "corpus", name=f"lib/{number}.o") for number in range(2)]
    shared = SharedFiles(len, max_bytes=1)
    for each in (module, *others):
        shared.of_job(each, policy, folder)
    _module(tmp_path / "corpus", b"other")
    with pytest.raises(CorpusError, match=r"lib/a\.o: its files have changed"):
        shared.of_job(module, policy, folder)


def test_equal_content_is_one_bundle_and_other_content_another(tmp_path: Path) -> None:
    one, same, other = (
        module_bundle(module_files(_module(tmp_path / name, content)))
        for name, content in (("1", b"x"), ("2", b"x"), ("3", b"y"))
    )
    assert one == same != other
    assert digest_of({"a": b"bc"}) != digest_of({"ab": b"c"})


def test_a_command_of_all_modules_needs_no_command_file(tmp_path: Path) -> None:
    module = dataclasses.replace(_module(tmp_path), command_override=("-cc1",))
    module.command_path.unlink()
    assert list(module_files(module)) == ["lib/a.o.bc"]
    with pytest.raises(CorpusError, match=r"a\.o\.cmd"):
        module_files(dataclasses.replace(module, command_override=None))


def test_damage_is_found(tmp_path: Path) -> None:
    files = {"policy.pickle": b"weights", "network.mlgo": b"native"}
    bundle, cache = policy_bundle("key", files), BundleCache(tmp_path, 0)
    with pytest.raises(ResourceError, match="policies/key"):
        cache.put(bundle, {**files, "network.mlgo": b"natiwe"})
    cache.put(bundle, files)
    # What a worker adds is not a part of it.
    (tmp_path / "policies/key/extra").touch()
    assert BundleCache(tmp_path).has(bundle)
    (tmp_path / "policies/key/network.mlgo").write_bytes(b"natiwe")
    assert not BundleCache(tmp_path).has(bundle)
    assert not (tmp_path / "policies/key").exists()
    cache.put(bundle, files)
    assert cache.has(bundle)


def test_what_nobody_uses_makes_room_and_what_is_used_stays(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    old, used, new = ({"m.bc": name} for name in (b"old", b"used", b"new"))
    BundleCache(tmp_path, 0).put(module_bundle(old), old)
    BundleCache(tmp_path, 0).put(module_bundle(used), used)
    long_ago_s = time.time() - 1e6
    for files in (old, used):
        os.utime(tmp_path / module_bundle(files).path, (long_ago_s, long_ago_s))
    # This disk can never have so much free.
    cache = BundleCache(tmp_path, 2 * free)
    assert cache.has(module_bundle(used))
    with pytest.raises(OutputError, match=rf"{tmp_path}: cannot hold the corpus"):
        cache.put(module_bundle(new), new)
    assert not cache.has(module_bundle(old)) and cache.has(module_bundle(used)) and not cache.has(module_bundle(new))


def test_files_from_the_future_do_not_push_out_what_is_stored_now(tmp_path: Path) -> None:
    cache, tomorrow_s = BundleCache(tmp_path, 0), time.time() + 86400
    for number in range(80):
        files = {"policy.pickle": str(number).encode()}
        cache.put(policy_bundle(f"future-{number}", files), files)
        os.utime(tmp_path / f"policies/future-{number}", (tomorrow_s, tomorrow_s))
    now = [(policy_bundle(name, {"f": name.encode()}), {"f": name.encode()}) for name in ("one", "two")]
    for bundle, files in now:
        cache.put(bundle, files)
    assert all(cache.has(bundle) for bundle, _ in now)
    assert len(list((tmp_path / "policies").iterdir())) == 64


def test_modules_from_the_future_make_room(tmp_path: Path) -> None:
    old, new = {"m.bc": b"old"}, {"m.bc": b"new"}
    BundleCache(tmp_path, 0).put(module_bundle(old), old)
    tomorrow_s = time.time() + 86400
    os.utime(tmp_path / module_bundle(old).path, (tomorrow_s, tomorrow_s))
    with pytest.raises(OutputError, match="cannot hold the corpus"):
        BundleCache(tmp_path, 2 * shutil.disk_usage(tmp_path).free).put(module_bundle(new), new)
    assert not (tmp_path / module_bundle(old).path).exists()


def test_a_bundle_that_cannot_be_replaced_is_not_taken_for_stored(tmp_path: Path) -> None:
    files = {"m.bc": b"good"}
    bundle = module_bundle(files)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "m.bc").write_bytes(b"other")
    (tmp_path / "cache/modules").mkdir(parents=True)
    # Folders are not removed through links.
    (tmp_path / "cache" / bundle.path).symlink_to(elsewhere)
    with pytest.raises(OutputError, match="cannot be written"):
        BundleCache(tmp_path / "cache", 0).put(bundle, files)
    assert (elsewhere / "m.bc").read_bytes() == b"other"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        BundleCache(tmp_path / "file" / "cache").put(policy_bundle("k", {"f": b""}), {"f": b""})
