"""The batch script for Slurm, on three addresses of this machine, with programs that stand in for Slurm's."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess

import cluster
import pytest
import server as heddle
from test_cluster import wait_until

SCRIPT = heddle.ROOT / "deploy/slurm/heddle.sbatch"

# What sbatch gives a job: nodes are addresses of this machine.
SRUN = """#!/usr/bin/env bash
# Runs a step here, at the node that it is for.
while [[ $1 == --* ]]; do
  [[ $1 != --nodelist=* ]] || export SLURMD_NODENAME=${1#*=}
  [[ $1 != --job-name=* ]] || step=${1#*=}
  shift
done
trap '' TERM # Which the real one does not hand on well.
printf '%s %s\\n' "$SLURMD_NODENAME" "$*" >>"$FAKE_SLURM_LOG"
(
  trap - TERM
  printf '%s %s\\n' "$BASHPID" "$step" >>"$FAKE_SLURM_LOG.steps"
  exec "$@"
)
"""
SQUEUE = """#!/usr/bin/env bash
cat "$FAKE_SLURM_LOG.steps"
"""
SCANCEL = """#!/usr/bin/env bash
kill -s "${1#--signal=}" "$2"
"""
SCONTROL = """#!/usr/bin/env bash
case "$1 $2" in
  "show hostnames") [ "$3" = "n[1-3]" ] && printf 'n1\\nn2\\nn3\\n' ;;
  "show node") printf 'NodeName=%s Arch=x86_64 NodeAddr=127.0.0.%d NodeHostName=%s\\n' "$4" "$((${4#n} + 1))" "$4" ;;
  *) exit 1 ;;
esac
"""


class Job:
    """A job of heddle.sbatch on three nodes."""

    def __init__(self, folder, registry):
        self.folder, self.log = folder, folder / "job.log"
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("squeue", SQUEUE), ("scancel", SCANCEL)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        config = folder / "heddle.yaml"
        config.write_text(heddle.config(models=["adder", "sorter"], device_extra=", pace: {step: 20ms}"))
        self.port = cluster.free_port()
        self.id = f"{os.getpid()}{self.port}"
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HEDDLE": str(heddle.BINARY),
                       "SLURM_JOB_ID": self.id, "SLURM_JOB_NODELIST": "n[1-3]", "HEDDLE_GATEWAYS": "2",
                       "HEDDLE_HTTP_PORT": str(self.port), "HEDDLE_PORT": str(self.port - 5000 if self.port > 10000 else self.port + 5000),
                       "FAKE_SLURM_LOG": str(folder / "steps")}
        if registry:
            environment["HEDDLE_REGISTRY"] = registry
        with self.log.open("w") as out:
            self.process = subprocess.Popen([SCRIPT, config], stdout=out, stderr=out, env=environment,
                                            start_new_session=True)
        self.gateways = []
        for address in ("127.0.0.2", "127.0.0.3"):
            gateway = cluster.Gateway.__new__(cluster.Gateway)
            gateway.url = f"http://{address}:{self.port}"
            self.gateways.append(gateway)

    def kill(self):
        """Whatever is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def steps(self, role):
        """Nodes with such a process."""
        lines = [line.split() for line in (self.folder / "steps").read_text().splitlines()]
        return sorted(line[0] for line in lines if line[1] == str(heddle.BINARY) and line[2] == role)

    def pid(self, step):
        return int(re.search(rf"^(\d+) {step}$", (self.folder / "steps.steps").read_text(), re.M)[1])

    def is_ready(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return all(gateway.call("/readyz")[0] == 200 for gateway in self.gateways)
        except OSError:
            return False


@pytest.mark.parametrize("registry", ["none", "shared"])
def test_a_job_of_slurm_serves_from_its_nodes_and_ends_well(tmp_path, registry):
    job = Job(tmp_path, None if registry == "none" else f"file:{tmp_path}/registry")
    try:
        wait_until(job.is_ready)
        assert job.steps("manager") == (["n1"] if registry == "none" else ["n1", "n2"])
        assert job.steps("agent") == ["n1", "n2", "n3"] and job.steps("gateway") == ["n1", "n2"]
        first = job.gateways[0]
        wait_until(lambda: len([each for each in first.call("/api/devices")[2]["devices"] if each["up"]]) == 3)
        if registry == "none":
            os.kill(job.pid("agent-n3"), signal.SIGKILL)
            wait_until(lambda: job.steps("agent").count("n3") == 2)
            wait_until(lambda: all(each["up"] for each in first.call("/api/devices")[2]["devices"]))
        prompt, answer = heddle.eval_set("adder", 1)[0]
        assert [gateway.chat("adder", prompt) for gateway in job.gateways] == [answer, answer]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            body = {"model": "sorter", "prompt": "1 2 3", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
            running = pool.submit(first.call, "/v1/completions", body)
            other = job.gateways[1]
            wait_until(lambda: other.metrics().get('vllm:num_requests_running{engine="0",model_name="sorter"}') == 1)  # It tells of all.
            job.process.send_signal(signal.SIGTERM)
            status, _, told = running.result(60)
        assert status == 200 and told["usage"]["completion_tokens"] == 60, "what runs ends first"
        assert job.process.wait(60) == 0, job.log.read_text()
    finally:
        job.kill()
    assert not list(pathlib.Path("/tmp").glob(f"heddle-{job.id}-*")), "keys are left on no node"


def test_a_job_has_one_manager_where_the_registry_is_not_shared(tmp_path):
    job = Job(tmp_path, f"file:{tmp_path}/registry")
    job.kill()
    (tmp_path / "srun").write_text(SRUN.replace('exec "$@"', '[ "$SLURMD_NODENAME $1" != "n2 test" ] && exec "$@"'))
    script = SCRIPT.read_text().split("# ---- What each node gets")[0]
    done = subprocess.run(["bash", "-c", script + 'echo "managers ${#managers[@]} registry [$registry]"', "x", tmp_path / "heddle.yaml"],
                          capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "1",
                               "SLURM_JOB_NODELIST": "n[1-3]", "HEDDLE_REGISTRY": f"file:{tmp_path}/registry",
                               "FAKE_SLURM_LOG": str(tmp_path / "steps")})
    assert "managers 1 registry []" in done.stdout and "is not shared" in done.stdout, done.stdout + done.stderr
