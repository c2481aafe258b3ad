"""The files of docs/cluster/ have the syntax and the fields that Kubernetes, Ray and Slurm expect."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "docs" / "cluster"


_WITHOUT_OPTIONS = 'while [ "${1:0:1}" = - ]; do [ $1 = -w ] && shift; shift; done'


def _only(values: Any) -> Any:
    [value] = values
    return value


def _keys(value: Any) -> set[str]:
    return set(value)


def test_the_manifest_of_kuberay() -> None:
    cluster = _only(yaml.safe_load_all((FOLDER / "raycluster.yaml").read_text()))
    assert _keys(cluster) == {"apiVersion", "kind", "metadata", "spec"}
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert re.fullmatch(r"[a-z0-9-]{1,50}", cluster["metadata"]["name"])
    spec = cluster["spec"]
    assert _keys(spec) == {"autoscalerOptions", "enableInTreeAutoscaling", "headGroupSpec", "workerGroupSpecs"}
    assert spec["enableInTreeAutoscaling"] is True
    assert isinstance(spec["autoscalerOptions"]["idleTimeoutSeconds"], int)
    head, workers = spec["headGroupSpec"], _only(spec["workerGroupSpecs"])
    assert _keys(head) == {"rayStartParams", "template"}
    assert _keys(workers) == {"groupName", "maxReplicas", "minReplicas", "rayStartParams", "replicas", "template"}
    assert 0 <= workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    # Parameters of `ray start` are strings, and so are values of environment variables.
    assert head["rayStartParams"] == {"num-cpus": "0"} and workers["rayStartParams"] == {}
    # Workers have no emptyDir for the cache: all can write it, so no library is loaded from it (`build_cache`).
    for group, name, volumes, mounts in (
        (head, "ray-head", {"volumes"}, {"volumeMounts"}),
        (workers, "ray-worker", set(), set()),
    ):
        pod = group["template"]["spec"]
        assert _keys(pod) == {"containers"} | volumes
        container = _only(pod["containers"])
        assert _keys(container) == {"env", "image", "name", "resources"} | mounts and container["name"] == name
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
        assert all(isinstance(variable["value"], str) for variable in container["env"])
        # Ray derives a node's CPUs and memory from the limits.
        assert container["resources"]["limits"] == container["resources"]["requests"]
        for resource, amount in container["resources"]["limits"].items():
            assert resource in ("cpu", "memory", "ephemeral-storage") and re.fullmatch(r"\d+(Gi)?", amount)
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod.get("volumes", [])}
        assert all(mount["mountPath"].startswith("/") for mount in container.get("volumeMounts", []))


def test_the_script_for_slurm(tmp_path: Path) -> None:
    """It runs with programs that note what they are asked for."""
    script = FOLDER / "train.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    options = re.findall(r"^#SBATCH --([a-z-]+)", script.read_text(), re.MULTILINE)
    assert {"nodes", "ntasks-per-node", "cpus-per-task", "time"} <= set(options)
    for name, body in (
        ("scontrol", "printf '%s\\n' n1 n2 n3"),
        (
            "srun",
            f'echo "srun $*" >> {tmp_path}/log; while [ "${{1:0:1}}" = - ]; do [ $1 = -w ] && shift; shift; done; "$@"',
        ),
        ("hostname", "echo 10.0.0.1"),
        ("ray", f'echo "ray $* ${{#RAY_AUTH_TOKEN}} $RAY_USAGE_STATS_ENABLED" >> {tmp_path}/log'),
        ("compiler_opt", f'echo "compiler_opt $*" >> {tmp_path}/log'),
    ):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "32"}
    subprocess.run(
        ["bash", str(script), "--output_dir=a b", "--seed=1"],
        env={**environment, "SLURM_JOB_NODELIST": "n[1-3]"},
        check=True,
        timeout=60,
    )
    deadline_s = time.monotonic() + 30
    # What the script starts in the background may take longer than itself.
    while (log := (tmp_path / "log").read_text()).count("\nray start") < 3 and time.monotonic() < deadline_s:
        time.sleep(0.05)
    lines = log.splitlines()
    rays = [line for line in lines if line.startswith("ray start")]
    assert "ray start --head --port=20007 --num-cpus=28 --include-dashboard=false --block 64 0" in rays
    assert rays.count("ray start --address=10.0.0.1:20007 --num-cpus=32 --block 64 0") == 2
    train = "compiler_opt train_locally --worker_manager=ray --ray_address=10.0.0.1:20007 --output_dir=a b --seed=1"
    assert train in lines
    assert {line.split(" -w ")[1][:2] for line in lines if "ray start" in line and " -w " in line} == {"n1", "n2", "n3"}
