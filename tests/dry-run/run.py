# SPDX-License-Identifier: Apache-2.0
"""Unchanged training scripts on phantom GPUs: the same peaks as the oracle, to the byte, and what is said when something
is wrong.  Run by a Python that has the packages of expected.json:

    python tests/dry-run/run.py PROGRAM
"""
import json
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAM = os.path.abspath(sys.argv[1])
EXPECTED = json.loads((HERE / "expected.json").read_text())
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
OVERHEAD = 5.0                                     # seconds of CPU beyond what importing the packages takes

passed = failed = 0


def check(name, wrong):
    global passed, failed
    if wrong:
        failed += 1
        print(f"FAIL {name}: {wrong}")
    else:
        passed += 1


def dry_run(options, command, apart=None):
    """Exit code, answer (None if there is none), what was written to standard error. apart: packages beside the others."""
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{sys.prefix}/apart/{apart}"} if apart else ENVIRONMENT
    done = subprocess.run([PROGRAM, "dry-run", "--json", *options, "--", *command], cwd=HERE, env=environment,
                          capture_output=True, text=True, timeout=600)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    return done.returncode, answer, done.stderr


def script(text, *options, python=()):
    """A few lines of a program."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        return (*dry_run(options, ["python", *python, file.name]), os.path.basename(file.name))


def peaks(answer):
    return [(d["allocated_peak"], d["reserved_peak"]) for p in answer["processes"] for d in p["devices"]]


def cpu_seconds(act):
    """Of the processes that `act` starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    act()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def exact_runs():
    for run in EXPECTED["runs"]:
        with tempfile.TemporaryDirectory() as folder:
            recorded = [*run["options"], "--out", f"{folder}/run.tide"]
            code, answer, errors = dry_run(recorded, run["command"], run.get("apart"))
            names = sorted(os.listdir(folder))
            replayed = [replay(f"{folder}/{name}") for name in names] if answer else []
        wanted = [(run["allocated"], run["reserved"])] * run.get("processes", 1) if "allocated" in run else None
        wrong = ""
        if code != 0 or answer is None:
            wrong = f"exit code {code}: {errors[-800:]}"
        elif wanted and peaks(answer) != wanted:
            wrong = f"{peaks(answer)}, not {wanted}"
        elif len(answer["steps"]) != run.get("steps", len(answer["steps"])):
            wrong = f"{len(answer['steps'])} steps"
        elif sum(f["bytes"] for f in answer["factors"]) != answer["peak"]["allocated"]:
            wrong = "the factors do not add up to the peak"
        elif max((s["allocated_peak"] for s in answer["steps"]), default=0) > answer["peak"]["allocated"]:
            wrong = "a step is above the peak"
        elif len(replayed) != len(peaks(answer)):
            wrong = f"recordings: {names}"
        elif replayed[0] is not None and replayed != peaks(answer):
            wrong = f"replayed to {replayed}, not {peaks(answer)}"
        check(run["name"], wrong)


def replay(path):
    """The peaks to which the simulated allocator comes; None where tidemark has no such command."""
    done = subprocess.run([PROGRAM, "replay", path, "--json"], capture_output=True, text=True)
    if "no command" in done.stderr:
        return None
    answer = json.loads(done.stdout)
    return answer["allocated_peak"], answer["reserved_peak"]


def overhead():
    """Of the whole run, the making of the model on the host included."""
    imports = [sys.executable, "-c", "import smollm"]
    least = cpu_seconds(lambda: subprocess.run(imports, cwd=HERE, env=ENVIRONMENT, check=True))
    whole = cpu_seconds(lambda: dry_run([], ["python", "llama.py"]))
    print(f"overhead: {whole - least:.1f} s of CPU beyond {least:.1f} s of imports")
    check("overhead", "" if whole - least < OVERHEAD else f"{whole:.1f} s, imports take {least:.1f} s")


LOOP = """
import torch, os, sys
net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(%d):
    net(torch.ones(64, 1024).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    %s
"""


def programs():
    """The program sees what it would see: its own peaks, its own end."""
    code, answer, errors, *_ = script(LOOP % (2, "print(torch.cuda.max_memory_allocated()); "
                                                 "torch.cuda.reset_peak_memory_stats()"), "--steps", "0")
    own = [int(line) for line in errors.split() if line.isdigit()]
    steps = [s["allocated_peak"] for s in answer["steps"]]
    check("program resets the peaks", "" if code == 0 and own[1] == steps[1] and max(own) == answer["peak"]["allocated"]
          else f"{code} {own} {steps}")

    code, answer, errors, *_ = script(LOOP % (9, "pass"))
    check("stopped after three steps", "" if code == 0 and len(answer["steps"]) == 3 and "(--steps)" in answer["title"]
          else f"{code} {errors[-300:]}")

    code, answer, *_ = script(LOOP % (9, "pass"), "--steps", "5")
    check("stopped after five", "" if code == 0 and len(answer["steps"]) == 5 else f"{code}")

    code, answer, errors, *_ = script(LOOP % (3, "if step: raise RuntimeError('my own')"))
    check("program fails", "" if code == 4 and answer and "my own" in errors.splitlines()[-2] else f"{code} {errors[-300:]}")
    check("what failed is not said to fit", "" if answer["verdict"]["fits"] is None else f"{answer['verdict']}")

    code, answer, errors, *_ = script(LOOP % (3, "if step: os._exit(0)"))
    check("program leaves by _exit", "" if code == 0 and answer["peak"]["allocated"] > 0 else f"{code} {errors[-300:]}")

    code, answer, errors, *_ = script(LOOP % (3, "if step: os.kill(os.getpid(), 9)"))
    check("program is killed", "" if code == 4 and answer and "signal 9" in errors else f"{code} {errors[-300:]}")

    code, answer, errors, *_, name = script(LOOP % (2, "print(net.weight.sum().item())"), "--steps", "0")
    reads = [(os.path.basename(r["file"]), r["count"]) for r in answer["reads"]]
    check("reads are told", "" if reads == [(name, 2)] else f"{reads}")

    code, answer, errors, *_ = script("import importlib.util\nimportlib.util.find_spec('torch')\n" + LOOP % (2, "pass"))
    check("looked for before it is imported", "" if code == 0 and len(answer["steps"]) == 2 else f"{code} {errors[-300:]}")

    mask = "import torch\nx = torch.ones(100, 1024).cuda()\ny = x[x > 0]\nprint('rows', y.numel())\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mask.py")
        path.write_text(mask)
        code, answer, errors = dry_run(["--answer", "mask.py:3=4096"], ["python", str(path)])
        check("an answer", "" if code == 0 and "rows 4096" in errors and "as --answer says" in str(answer["assumed"])
              else f"{code} {errors[-300:]}")


    code, answer, errors, *_ = script("import torch\ntorch.cuda.memory._record_memory_history()\n" + LOOP % (2, "pass"), "--steps", "0")
    kinds = [n["kind"] for n in answer["notes"]] if answer else []
    check("a history of the program's own", "" if code == 0 and ("history-lost" in kinds or answer["factors"]) else f"{code} {kinds} {errors[-300:]}")

    code, answer, errors, *_ = script("import torch, os\nos.environ['TIDEMARK_ANSWERS'] = ''\n"
                                      "torch._C._cuda_memoryStats = lambda device: {}\n" + LOOP % (2, "pass"), "--steps", "0")
    kinds = [n["kind"] for n in answer["notes"]] if answer else []
    check("a fault of the hook is not the program's", "" if "Error" not in errors.split("tidemark:")[0] else f"{code} {kinds} {errors[-600:]}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "one_card.py")
        path.write_text(LOOP % (2, "pass"))
        code, answer, errors = dry_run(["--steps", "0"], ["torchrun", "--nproc-per-node", "2", str(path)])
    whole = answer["verdict"]["device_bytes"] if answer else 0
    reserved = sum(r for _, r in peaks(answer)) if answer else 0
    check("two processes on one GPU", "" if code == 0 and 670040064 < whole <= 2 * 670040064 + reserved and len(peaks(answer)) == 2
          else f"{code} {whole} {reserved} {errors[-300:]}")


def compared():
    """A recording beside the estimate of the same job."""
    with tempfile.TemporaryDirectory() as folder:
        dry_run(["--steps", "2", "--out", f"{folder}/run.tide"], ["python", "llama.py"])
        job = "smollm2-135m overrides.num_hidden_layers=6 batch=4 seq=512 sdpa_backend=flash".split()
        done = subprocess.run([PROGRAM, "compare", *job, "--recording", f"{folder}/run.tide"], capture_output=True, text=True)
    rows = {" ".join(line.split()[:-3]): line.split()[-1] for line in done.stdout.splitlines() if "at most" in line}
    check("compare", "" if done.returncode == 0 and set(rows.values()) == {"exact"} else f"{done.returncode} {done.stdout[:600]} {done.stderr[:300]}")


    code, answer, errors, *_ = script("import torch\nprint('cudnn', torch.backends.cudnn.version())\n" + LOOP % (2, "pass"))
    check("the version of cuDNN", "" if code == 0 and "cudnn 9" in errors else f"{code} {errors[-600:]}")

    code, answer, errors, *_ = script("import torch\nnet = torch.nn.LSTM(64, 64).cuda()\nnet(torch.zeros(5, 2, 64).cuda())\n")
    kinds = [n["kind"] for n in answer["notes"]] if answer else []
    check("recurrent layers", "" if code == 4 and "phantom-unknown-call" in kinds else f"{code} {kinds} {errors[-600:]}")


def refusals():
    code, answer, errors, *_ = script("import torch\nx = [torch.empty(1 << 30, device='cuda') for _ in range(9)]\n",
                                      "--gpu", "t4")
    sentence = answer["verdict"]["sentence"] if answer else ""
    check("out of memory", "" if code == 1 and sentence.startswith("out of memory in step 0, load: 4.0 GiB asked for, 2.4 GiB of 14.6 GiB")
          and "smallest_device_bytes" not in answer else f"{code} {sentence} {errors[-300:]}")

    code, answer, errors, *_ = script("import torch\ntorch.ones(9, device='cuda')\n", "--gpu", "p100")
    kinds = [n["kind"] for n in answer["notes"]] if answer else []
    check("a GPU without kernels", "" if kinds == ["phantom-kernels"] else f"{code} {kinds} {errors[-300:]}")

    caught = ("import torch\nn = 64\nwhile True:\n    try:\n        x = torch.empty(n << 30, device='cuda', dtype=torch.uint8)\n"
              "        break\n    except torch.cuda.OutOfMemoryError:\n        n //= 2\nprint('n', n)\n")
    code, answer, errors, *_ = script(caught, "--gpu", "t4")
    check("out of memory, caught", "" if code == 0 and "n 8" in errors and answer["processes"][0]["ooms"] else f"{code} {errors[-300:]}")

    code, _, errors, *_ = script("import torch\nprint(torch.ones(3))\n")
    check("no CUDA call", "" if code == 3 and "made no CUDA call" in errors else f"{code} {errors[-300:]}")

    code, _, errors, *_ = script("raise SystemExit(7)\n")
    check("fails before a GPU", "" if code == 4 and "exit code 7 before it used a GPU" in errors else f"{code} {errors[-300:]}")

    code, _, errors, *_ = script(LOOP % (1, "pass"), python=("-I",))
    check("python -I", "" if code == 3 and "without -I, -E and -S" in errors else f"{code} {errors[-300:]}")

    code, _, errors = dry_run([], ["env", "PYTHONPATH=/", "python", "-c", "import torch; torch.ones(9, device='cuda')"])
    check("PYTHONPATH set anew", "" if code == 3 and "add to PYTHONPATH" in errors else f"{code} {errors[-300:]}")

    code, answer, errors, *_ = script("import torch\ntorch.ones(9, device='cuda')\ntorch.cuda.set_device(1)\n")
    kinds = [n["kind"] for n in answer["notes"]] if answer else []
    check("a device too many", "" if code == 4 and kinds == ["phantom-device"] else f"{code} {kinds} {errors[-300:]}")

    graph = ("import torch\nx = torch.ones(9, device='cuda')\ng = torch.cuda.CUDAGraph()\n"
             "with torch.cuda.graph(g):\n    x + 1\n")
    code, answer, errors, *_ = script(graph)
    kinds = [n["kind"] for n in answer["notes"]] if answer else []
    # 2 MiB for the 9 numbers, and a pool of the graph's own for the sum.
    check("CUDA graphs", "" if code == 0 and kinds == ["phantom-graph"] and peaks(answer) == [(1024, 4 << 20)] else
          f"{code} {kinds} {peaks(answer) if answer else ''} {errors[-300:]}")

    code, answer, errors, *_ = script("import torch\nx = torch.ones(8, 8, device='cuda')\ntorch.linalg.svd(x)\n")
    kinds = [n["kind"] for n in answer["notes"]] if answer else []
    check("a size that only a library knows", "" if code == 4 and "phantom-unknown-call" in kinds else f"{code} {kinds} {errors[-300:]}")


COMPILED = """
import torch
net = torch.compile(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()).cuda())
optimizer = torch.optim.AdamW(net.parameters())
for step in range(3):
    net(torch.ones(64, 256).cuda()).sum().backward()
    optimizer.step()
"""


def compiled():
    code, answer, errors, *_ = script(COMPILED)
    kinds = [n["kind"] for n in answer["notes"]] if answer else []
    check("torch.compile", "" if code == 0 and "phantom-compiled" in kinds else f"{code} {kinds} {errors[-600:]}")


def checked():
    """`tidemark check` where driver, NVML and CUPTI are phantoms: sees what dry-run sees, and estimate predicts it."""
    tools = Path(PROGRAM).resolve().parent / "cuda-check"
    phantom = {**ENVIRONMENT, "LD_PRELOAD": str(tools / "libcuda.so.1"), "LD_LIBRARY_PATH": str(tools), "TIDEMARK_GPUS": "2",
               "TIDEMARK_CUPTI": str(tools / "libphantom-cupti.so"), "TIDEMARK_CARD": "85017755648 670040064 90 132 2048"}

    def run(options, command):
        done = subprocess.run([PROGRAM, "check", "--json", *options, "--", *command], cwd=HERE, env=phantom, capture_output=True,
                              text=True, timeout=600)
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def components(device):
        return {c["name"]: c.get("own_peak", c.get("at_peak")) for c in device["components"]}

    llama = EXPECTED["runs"][0]
    job = "smollm2-135m overrides.num_hidden_layers=6 batch=4 seq=512 sdpa_backend=flash --gpu h100-80"
    code, answer, errors = run(["--steps", "3", "--estimate", job], llama["command"])
    found = components(answer["devices"][0]) if answer else {}
    check("check: a run as estimated", "" if code == 0 and found["allocated"] == llama["allocated"] and found["reserved"] == llama["reserved"]
          and found["unexplained"] == 0 and answer["devices"][0]["predicted"] == answer["devices"][0]["measured"]
          else f"{code} {found} {errors[-600:]}")

    code, answer, errors = run(["--steps", "3", "--estimate", job.replace("batch=4", "batch=16")], llama["command"])
    check("check: not as estimated", "" if code == 1 and answer["verdict"]["name"] == "fail" else f"{code} {errors[-600:]}")

    code, answer, errors = run(["--steps", "1", "--estimate", job], llama["command"])
    check("check: one step", "" if code == 5 and "1 step was seen" in answer["verdict"]["reason"] else f"{code} {errors[-600:]}")

    ddp = EXPECTED["runs"][3]
    code, answer, errors = run(["--steps", "3"], ddp["command"])
    found = [components(d)["reserved"] for d in answer["devices"]] if answer else []
    check("check: two ranks", "" if code == 0 and found == [ddp["reserved"]] * 2 else f"{code} {found} {errors[-600:]}")

    code, answer, errors = run(["--measure", "poll", "--steps", "3"], llama["command"])
    found = answer["devices"][0] if answer else {}
    check("check: polled", "" if code == 0 and not found["exact"] and components(found)["reserved"] == llama["reserved"]
          else f"{code} {found} {errors[-600:]}")

    toolkit = wheels()
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run([toolkit / "bin/nvcc", "-cudart", "none", f"-I{toolkit}/include", str(HERE.parent / "cuda-check/self_test.cu"),
                                "-o", f"{folder}/self_test", "-Xlinker",
                                f"{toolkit}/lib/libcudart.so.13,-rpath,{toolkit}/lib"], capture_output=True, text=True)
        code, answer, errors = run([], [f"{folder}/self_test"]) if built.returncode == 0 else (1, None, built.stdout + built.stderr)
    found = components(answer["devices"][0]) if answer else {}
    check("check: a CUDA program with known sums", "" if code == 0 and found["self_test"] == 132 << 20 and found["unexplained"] == 0
          else f"{code} {found} {errors[-600:]}")

    with tempfile.TemporaryDirectory() as folder:
        code, answer, errors = run(["--steps", "3", "--out", f"{folder}/run.tide"], llama["command"])
        found = replay(f"{folder}/run.tide")
    check("check: a recording", "" if code == 0 and found == (llama["allocated"], llama["reserved"]) else f"{code} {found} {errors[-600:]}")


def wheels():
    """The folder in which pip's wheels of CUDA 13 meet."""
    return Path(sysconfig.get_paths()["purelib"], "nvidia", "cu13")


def layouts():
    """What cuda-check declares for itself, against the headers that come with PyTorch."""
    done = subprocess.run(["cc", "-std=c11", "-fsyntax-only", f"-I{wheels()}/include", str(HERE.parent / "cuda-check/layouts.c")],
                          capture_output=True, text=True)
    check("layouts", done.stderr[:800])


layouts()
exact_runs()
programs()
refusals()
compiled()
compared()
checked()
overhead()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
