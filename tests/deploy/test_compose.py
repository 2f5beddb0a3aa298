"""What the compose files say and what images are made of, without an engine; `make containers` brings them up."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.manual import ROOT, blocks
from tideline_agent.policy_file import read_policy
from tideline_server.settings import CoordinatorSettings

PAGE = ROOT / "docs" / "deploying.md"
BASE = ROOT / "docker-compose.yml"
OVERLAYS = sorted((ROOT / "deploy").glob("*.yml"))
FILES = [BASE, *OVERLAYS]
JOINTS = [file for file in OVERLAYS if "-" in file.stem]  # where two overlays meet
PLAIN = [file for file in OVERLAYS if file not in JOINTS]
CLOSED = {"internal": True, "driver_opts": {"com.docker.network.bridge.inhibit_ipv4": "true"}}
SITES = ("site-1", "site-2", "site-3", "site-4")
# What each volume with a secret is for, and the services that mount it: `+` for those that write to it. Nobody else may.
SECRETS = {
    "secrets": {"setup+"},  # all of them, drawn once
    "secret-postgres": {"setup+", "postgres"},
    "secret-redis": {"setup+", "redis"},
    "secret-coordinator": {"setup+", "coordinator", "coordinator-2"},
    "secret-admin": {"setup+", "invite", "scraper"},
    "secret-demo": {"invite+", "demo"},
    "authority": {"authority+"},
    "certificate": {"authority+", "coordinator", "coordinator-2"},
    "scraper": {"scraper+", "prometheus"},
    "grafana-admin": {"scraper+", "grafana"},
    **{f"token-{i}": {"invite+", f"site-{i}"} for i in range(1, 5)},
    **{f"home-{i}": {f"site-{i}+"} for i in range(1, 5)},
    **{f"data-{i}": {f"site-{i}+"} for i in range(1, 5)},
}
# What the scripts and commands of the containers read, beside the coordinator's settings.
OURS = {"TIDELINE_URL", "TIDELINE_CA", "TIDELINE_INSECURE", "TIDELINE_DEVICE", "TIDELINE_POLICY"}


def read(file: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


def services(file: Path) -> dict[str, dict[str, Any]]:
    return dict(read(file)["services"])


def together() -> dict[str, dict[str, Any]]:
    """The services of all files that are whole, which have an image."""
    return {name: told for file in reversed(FILES) for name, told in services(file).items() if "image" in told}


def parts(file: Path) -> list[Path]:
    """The overlays that a file joins; none if it is one itself."""
    return [file.with_name(f"{name}.yml") for name in file.stem.split("-")] if file in JOINTS else []


def combinations() -> Iterator[list[Path]]:
    """Every choice of overlays, with the files that it takes where they meet."""
    for count in range(len(PLAIN) + 1):
        for chosen in itertools.combinations(PLAIN, count):
            yield [BASE, *chosen, *(file for file in JOINTS if set(parts(file)) <= set(chosen))]


def merged(first: Any, second: Any, key: str = "") -> Any:
    """Two files as Compose puts them together: maps by their keys, volumes one after the other, the rest replaced."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first | {name: merged(first[name], each, name) if name in first else each for name, each in second.items()}
    return [*first, *second] if key == "volumes" and isinstance(first, list) else second


def whole(files: list[Path]) -> dict[str, dict[str, Any]]:
    made: dict[str, Any] = {}
    for file in files:
        made = merged(made, services(file))
    return made


def mounted(told: dict[str, Any], path: str) -> bool:
    """Whether a file is in a volume that a service mounts, or is one itself."""
    return any(f"{path}/".startswith(f"{volume.split(':')[1]}/") for volume in told.get("volumes", ()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_a_file_names_is_there(file: Path) -> None:
    """Volumes, networks and services that another names, settings that a program reads, scripts that can be started."""
    known = read(BASE)
    for each in [*parts(file), file]:
        known = merged(known, read(each))
    volumes = set(known["volumes"])
    for name, told in services(file).items():
        assert "image" in known["services"][name], f"{name} is nowhere whole"
        for volume in told.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in volumes or (source.startswith("./") and (ROOT / source).exists()), f"{name} mounts {volume}"
        assert set(told.get("networks", ())) <= set(known["networks"]), name
        assert set(told.get("depends_on", ())) <= set(known["services"]), name
        settings = {word for word in told.get("environment", {}) if word.startswith("TIDELINE_")}
        assert settings <= OURS | {f"TIDELINE_{field.upper()}" for field in CoordinatorSettings.__dataclass_fields__}, name
        for script in told.get("entrypoint", ()):
            here = ROOT / "deploy" / "compose" / Path(script).name
            runs = here.is_file() if here.suffix == ".py" else os.access(here, os.X_OK)
            assert script == "python" or (script == f"/usr/local/lib/tideline/{here.name}" and runs), script


def test_images_are_pinned() -> None:
    for name, told in together().items():
        image = re.fullmatch(r"\$\{[A-Z_]+:-(.+)\}", told["image"])
        assert image is not None, f"{name}: another image can be named for {told['image']}"
        assert re.search(r":(local|cuda|v?\d+[\d.]*(-[a-z0-9]+)*)$", image[1]), name


def test_no_registry_is_asked_for_our_images() -> None:
    """A name without a host is the public registry's, where somebody else could answer for it before anything is built."""
    ours = {told["image"] for file in FILES for told in services(file).values() if "tideline/" in told.get("image", "")}
    assert len(ours) == 3 and all(re.fullmatch(r"\$\{[A-Z_]+:-localhost/tideline/[a-z]+:[a-z]+\}", each) for each in ours)
    for page in (ROOT / "Dockerfile", PAGE):
        assert not re.search(r"(?<!/)\btideline/(coordinator|agent)\b", page.read_text(encoding="utf-8")), page.name


def test_containers_may_do_little() -> None:
    """No capability but those with which Postgres drops root, no new privileges, and a root file system that stays as it is."""
    for name, told in together().items():
        assert told["cap_drop"] == ["ALL"] and told["security_opt"] == ["no-new-privileges:true"], name
        assert told.get("read_only") or name == "grafana", name
        assert "privileged" not in told and ("cap_add" in told) is (name == "postgres"), name
        assert not any("docker.sock" in volume for volume in told.get("volumes", ())), name


def test_containers_take_no_more_than_is_theirs() -> None:
    """Memory, processors, processes and logs are bounded, by numbers that can be changed where a service goes on running.

    No default asks for more than one processor: an engine on a machine that has fewer would refuse it.
    """
    for name, told in together().items():
        limits = [str(told[key]) for key in ("mem_limit", "cpus", "pids_limit")]
        found = [re.fullmatch(r"\$\{([A-Z]+)_(MEMORY|CPUS):-([0-9]+[mg]?)\}", each) for each in limits[:2]]
        assert type(told["pids_limit"]) is int, f"{name}: Compose 1.29 takes it from no variable"
        if told["restart"] == "no" and name != "scraper":
            assert limits == ["1g", "1", "256"], name
        else:
            assert [each and each[2] for each in found] == ["MEMORY", "CPUS"], name
            assert len({each[1] for each in found if each}) == 1 and found[1] is not None and found[1][3] == "1", name
        assert told["logging"]["driver"] == "json-file" and told["init"] is True, name
        assert told["logging"]["options"] == {"max-size": "${LOG_SIZE:-10m}", "max-file": "${LOG_FILES:-3}"}, name
        assert told["restart"] in ("no", "unless-stopped"), name
        checked = "disable" not in told.get("healthcheck", {"in the image": name.startswith("coordinator")})
        assert checked is (told["restart"] != "no"), f"{name} is asked how it is"


def test_networks_keep_sites_apart() -> None:
    """A site is in one network, with the coordinators; the HTTP ports are published on this machine alone.

    deploy/open.yml publishes the one port at which agents of other machines call.
    """
    every, networks = together(), read(BASE)["networks"]
    for site in SITES:
        assert list(every[site]["networks"]) == [site] and networks[site] == CLOSED
        others = {name for name, told in every.items() if site in told.get("networks", ())}
        assert others == {site, "coordinator", "coordinator-2"}
    for name in ("postgres", "redis"):
        assert list(every[name]["networks"]) == ["backend"] and networks["backend"] == {"internal": True}
    published = {name: told["ports"] for name, told in every.items() if "ports" in told}
    assert set(published) == {"coordinator", "prometheus", "alertmanager", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_overlays_can_be_combined(subtests: pytest.Subtests) -> None:
    for files in combinations():
        with subtests.test("+".join(file.stem for file in files)):
            check_services_of(files)


def check_services_of(files: list[Path]) -> None:
    """Coordinators are alike but for their homes; they show a certificate and whoever calls them trusts it, or none does."""
    made = whole(files)
    first, second = made["coordinator"], made.get("coordinator-2")
    if second is not None:
        assert second["environment"] == first["environment"] and second["networks"] == first["networks"]
        assert [each.replace("coordinator-2:", "coordinator:") for each in second["volumes"]] == first["volumes"]
    tls = BASE.with_name("deploy") / "plain.yml" not in files
    shown = [bool(first["environment"][f"TIDELINE_TLS_{word}"]) for word in ("CERT", "KEY")]
    assert shown == [tls, tls] and first["environment"]["TIDELINE_INSECURE"] == "01"[not tls]
    for name, told in made.items():
        env = {key: value for key, value in told.get("environment", {}).items() if value}
        assert not name.startswith("site-") or ("TIDELINE_INSECURE" in env) is not tls, name
        paths = [env[key] for key in ("TIDELINE_CA", "TIDELINE_TLS_CERT", "TIDELINE_TLS_KEY", "TIDELINE_POLICY") if key in env]
        assert all(mounted(told, path) for path in paths), name
        if "TIDELINE_URL" in env:
            assert env["TIDELINE_URL"].startswith("https:" if tls else "http:") and ("TIDELINE_CA" in env) is tls, name
    if "prometheus" in made:
        scraped(made["prometheus"], tls)


def scraped(prometheus: dict[str, Any], tls: bool) -> None:
    """Prometheus calls both ports as they are, with files that it mounts."""
    (config,) = (word.removeprefix("--config.file=") for word in prometheus["command"] if word.startswith("--config"))
    (job,) = read(ROOT / "deploy" / "metrics" / Path(config).name)["scrape_configs"]
    assert (job.get("scheme") == "https") is tls and mounted(prometheus, job["authorization"]["credentials_file"])
    if tls:
        assert mounted(prometheus, job["tls_config"]["ca_file"]) and job["tls_config"]["server_name"] == "federation"


def test_the_example_of_a_policy_is_one() -> None:
    """An agent would start with it, and it lets the demonstration happen."""
    policy = read_policy(ROOT / "deploy" / "policy.toml")
    assert {"fedavg", "feddadil"} <= set(policy.rules.runs.methods)


def test_each_service_sees_its_own_secrets() -> None:
    """As the table says, in whichever overlays; only who makes a secret can write to where it lies. Other volumes hold none."""
    made, found = whole([BASE, *OVERLAYS]), dict[str, set[str]]()
    for name, told in made.items():
        for volume in told.get("volumes", ()):
            source, _, mode = str(volume).partition(":")
            found.setdefault(source, set()).add(name if mode.endswith(":ro") else f"{name}+")
    others = {"trust", "database", "coordinator", "coordinator-2", "parts", "alerts", "prometheus", "alertmanager", "grafana"}
    assert {name: held for name, held in found.items() if not name.startswith("./") and name not in others} == SECRETS


def test_no_secret_is_in_what_inspect_shows() -> None:
    """Commands and environments name files; a secret itself stands in none of them."""
    for name, told in together().items():
        env = {key: value for key, value in told.get("environment", {}).items() if re.search("PASS|KEY|SECRET|TOKEN", key)}
        assert all(re.search("FILE$|_(TLS|SIGNING)_KEY$", key) and str(value).startswith("/") for key, value in env.items()), name
        assert not re.search(r"requirepass|--pass|-a ", " ".join(told.get("command", ()))), name


def test_nobody_logs_in_to_grafana_with_a_known_password() -> None:
    grafana = services(ROOT / "deploy" / "metrics.yml")["grafana"]
    assert grafana["environment"]["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert mounted(grafana, grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"])
    assert not any(word in grafana["environment"] for word in ("GF_SECURITY_ADMIN_PASSWORD", "GF_AUTH_ANONYMOUS_ORG_ROLE"))


def printed() -> list[list[str]]:
    """The files of each command that the manual prints."""
    lines = "".join(blocks(PAGE, "sh")).replace("\\\n", " ").splitlines()
    return [re.findall(r"-f (\S+)", line) for line in lines if line.startswith("docker compose -f") and " up" in line]


def test_the_manual_combines_them() -> None:
    """Each file where two overlays meet is in a command of the manual, and no command lacks one."""
    commands = [{ROOT / name for name in files} for files in printed()]
    assert commands and all(sorted(files) in [sorted(each) for each in combinations()] for files in commands)
    assert set(OVERLAYS) <= set().union(*commands)


def composers() -> list[list[str]]:
    """The commands of Compose that are here: the plugin, and the older program, which reads the same files."""
    plugin = shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode
    older = shutil.which("docker-compose")
    return [*([["docker", "compose"]] if plugin else []), *([[older]] if older else [])]


@pytest.mark.parametrize("files", printed(), ids=lambda files: "+".join(Path(each).stem for each in files))
def test_compose_takes_them(files: list[str]) -> None:
    if not (found := composers()):
        pytest.skip("There is neither docker-compose nor `docker compose` here")
    for command in found:
        words = [*command, *(word for file in files for word in ("-f", file)), "config", "--quiet"]
        env = os.environ | {"FEDERATION_HOST": "federation.example"}
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_manual_knows_the_overlays() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `deploy/([a-z-]+\.yml)`", page, re.MULTILINE)) == {file.name for file in OVERLAYS}
    variables = set(re.findall(r"\$\{([A-Z_]+)", "".join(file.read_text(encoding="utf-8") for file in FILES)))
    assert variables == set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", page.split("## Limits")[1].split("## Secrets")[0]))


RECIPE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FILE = ROOT / "deploy" / "constraints.txt"
LINES = FILE.read_text(encoding="utf-8").splitlines()
LOCKED = (ROOT / "deploy" / "locked.txt").read_text(encoding="utf-8")
PINS = dict(line.split("==") for line in LINES if not line.startswith("#"))


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("constraints", ROOT / "tools" / "constraints.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


TOOL = tool()


def torch(text: str) -> list[Requirement]:
    found = re.search(r"torch==\S+ torchvision==[0-9.]+", text)
    assert found is not None, text
    return [Requirement(word) for word in found[0].split()]


def test_every_package_that_is_asked_for_has_its_version() -> None:
    """One that the project takes; torch's in the recipe, all others in the file."""
    pins = PINS | {each.name: str(each.specifier).removeprefix("==") for each in torch(RECIPE)}
    for each in TOOL.asked((ROOT / "pyproject.toml").read_text(encoding="utf-8")):
        assert each.specifier.contains(pins[canonicalize_name(each.name)]), each


def test_so_has_what_they_need() -> None:
    for name in PINS:
        try:
            same = version(name) == PINS[name]
        except PackageNotFoundError:
            continue
        for line in (requires(name) or ()) if same else ():
            more = Requirement(line)
            if TOOL.wanted(more, ()):
                assert more.specifier.contains(PINS[canonicalize_name(more.name)], prereleases=True), f"{name} needs {line}"


def test_it_is_what_its_tool_makes() -> None:
    """Sorted names with a version each; torch's family is the recipe's, for it differs with the index that it comes from."""
    names = list(PINS)
    assert LINES[0] == TOOL.HEAD.strip() and names == sorted(names) == [canonicalize_name(name) for name in names]
    assert not [name for name in names if TOOL.TORCHS.match(name)]
    made = TOOL.needed([Requirement("torchvision"), Requirement("psycopg[binary]")])
    assert {"numpy", "sympy", "psycopg", "psycopg-binary"} <= set(made) and not [name for name in made if TOOL.TORCHS.match(name)]


def test_their_files_are_known_by_hash() -> None:
    """The locked file has the same packages in the same versions, each with the hashes of its files."""
    entries = re.findall(r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", LOCKED, flags=re.MULTILINE)
    assert {canonicalize_name(name): version for name, version, _ in entries} == PINS, "see docs/deploying.md#images"
    assert LOCKED.count("==") == len(entries)


def test_the_recipe_goes_by_it() -> None:
    """Nothing is installed in whichever version is the newest, and nothing but torch's family without a hash."""
    installs = [line.strip() for line in re.findall(r"pip install ([^&\n]+)", RECIPE)]
    assert installs == [
        "--no-deps --require-hashes --requirement locked.txt",
        '--no-deps ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} $TORCH',
        "--constraint constraints.txt $TORCH",
        "--no-deps .",
    ]
    assert "pip check" in RECIPE, "what the project asks for is there"
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"!deploy/constraints.txt", "!deploy/locked.txt"} <= set(kept)


def test_torch_is_pinned_alike() -> None:
    files = (ROOT / "docker-compose.yml", ROOT / "deploy" / "gpu.yml")
    base, gpu = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in files)
    usual = base["x-coordinator-image"]["build"]["args"]["TORCH"].removeprefix("${TORCH:-").removesuffix("}")
    assert usual == gpu["services"]["site-1"]["build"]["args"]["TORCH"] == " ".join(map(str, torch(RECIPE)))


# What an engine says of images: those of `lost` are at no registry, and `made` was made here.
ENGINE = """#!/bin/sh
case "$1 $2" in
  "pull --quiet") case "$3" in lost*) echo "no such host" >&2; exit 1 ;; esac ;;
  "image inspect") case "$5" in made*) ;; *) echo "somewhere/else@sha256:$(echo "$5" | tr -c 'a-z0-9\\n' 0)" ;; esac ;;
esac
"""


def digests(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """deploy/digests.sh, with an engine that answers so."""
    (folder / "docker").write_text(ENGINE, encoding="utf-8")
    (folder / "docker").chmod(0o755)
    usual = {name: value for name, value in os.environ.items() if not name.endswith("_IMAGE")}
    env = usual | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"} | variables
    return subprocess.run([ROOT / "deploy" / "digests.sh", *args], env=env, capture_output=True, text=True, check=False)


def test_digests_are_lines_of_settings(tmp_path: Path) -> None:
    """Every base image of the file, under the name that the environment gives it; our own are built here and have none."""
    told = digests(tmp_path, REDIS_IMAGE="redis:8@sha256:0ld")
    lines = dict(line.split("=") for line in told.stdout.splitlines())
    assert told.returncode == 0 and set(lines) == {"PYTHON_IMAGE", "POSTGRES_IMAGE", "REDIS_IMAGE"}, told.stderr
    assert lines["REDIS_IMAGE"] == "redis:8@sha256:redis08" and lines["PYTHON_IMAGE"].startswith(
        "python:3.11-slim-bookworm@sha256:"
    )
    told = digests(tmp_path, str(ROOT / "deploy" / "metrics.yml"))
    assert {line.split("=")[0] for line in told.stdout.splitlines()} == {
        f"{n}_IMAGE" for n in ("PROMETHEUS", "ALERTMANAGER", "GRAFANA")
    }


@pytest.mark.parametrize(
    ("image", "why"), [("lost:1", "lost:1 cannot be pulled"), ("made:1", "the registry of made:1 tells no digest")]
)
def test_an_image_without_a_digest_is_an_error(image: str, why: str, tmp_path: Path) -> None:
    """Said with the image; it does not end well, so that no half of a file passes for a whole one."""
    told = digests(tmp_path, PYTHON_IMAGE=image)
    assert told.returncode == 1 and why in told.stderr
