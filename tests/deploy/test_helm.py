"""The Helm chart: what it makes is valid, closed and consistent, for every kind of installation; what cannot work is refused."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest
import typer

from tests.deploy.cases import IMAGES, POSTGRES, REFUSED, RENDERED, S3, SCRATCH, SHARED, agent, made_of, plain
from tests.deploy.chart import (
    CHART,
    NAMESPACE,
    NEWEST,
    OLDEST,
    Object,
    cluster,
    containers,
    leaves,
    loaded,
    named,
    of,
    picked,
    pods,
    render,
    rendered_in,
    validator,
)
from tests.docs.manual import ROOT
from tideline import __version__
from tideline.cli.app import app
from tideline.cli.serving import coordinator_settings
from tideline_server.main import check as check_settings
from tideline_server.settings import CoordinatorSettings

# Variables that libraries read
ELSEWHERE = {"HOME", "PGPASSWORD", "PGSSLROOTCERT"}
ELSEWHERE |= {f"AWS_{name}" for name in ("ENDPOINT_URL", "REGION", "CA_BUNDLE", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY")}
# Settings for which the chart has keys of its own.
OWN_SETTINGS = "home database parts host redis redis_password_file admin_key_file admin_key signing_key grpc_port http_port "
OWN_SETTINGS += "advertise bulk tls_cert tls_key tls_client_ca tls_ca insecure smtp_password smtp_password_file "
OWN_SETTINGS += "oidc_ca oidc_client_secret oidc_client_secret_file"
WRITABLE = {"/var/lib/tideline", "/tmp", "/parts"}
COMMAND: Any = typer.main.get_command(app)


def test_it_lints() -> None:
    import helm_python

    for values in ({}, RENDERED["every port and every knob"]):
        said = helm_python.lint(CHART, values, strict=True)
        assert not said["errors"]
        assert [each for each in said["messages"] if each["severity"] >= 2] == []


def test_it_is_of_this_version() -> None:
    """The chart installs the version that it lies beside, and says how old a cluster may be."""
    facts = loaded().metadata
    assert facts["appVersion"] == facts["version"] == __version__
    assert facts["kubeVersion"] == f">={OLDEST}-0"


def check_schemas(name: str, objects: list[Object]) -> None:
    """Every object passes the schemas of the oldest and of the newest API, without a field that they do not know."""
    for each in objects:
        if each["kind"] != "ServiceMonitor":  # not Kubernetes' own
            for version in (OLDEST, NEWEST):
                validator(version, each["kind"], each["apiVersion"]).validate(each)


def test_the_schemas_are_strict() -> None:
    deployment = of(render(plain()), "Deployment")[0]
    deployment["spec"]["template"]["spec"]["containers"][0]["readOnly"] = True
    assert not validator(NEWEST, "Deployment", "apps/v1").is_valid(deployment)


def check_rights(name: str, objects: list[Object]) -> None:
    """No root, no capability, no writable root, no token of the cluster, no host; and resources are asked for."""
    for pod in pods(objects):
        spec, security = pod["spec"], pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] >= 1 and security["runAsGroup"] >= 1
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    for each in containers(objects):
        security = each["securityContext"]
        assert security["readOnlyRootFilesystem"] and security["runAsNonRoot"] and not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(each["resources"]["requests"]) and "memory" in each["resources"]["limits"]
    for each in of(objects, "ServiceAccount"):
        assert each["automountServiceAccountToken"] is False


def check_environment(name: str, objects: list[Object]) -> None:
    """Services of a namespace set no variables: one called tideline-http would set TIDELINE_HTTP_PORT."""
    assert [pod["spec"]["enableServiceLinks"] for pod in pods(objects)] == [False] * len(pods(objects))


def check_permissions_of_homes(name: str, objects: list[Object]) -> None:
    """Nobody opens the keys in a home to their group at each start, or changes the owners of a site's data."""
    for pod in pods(objects):
        assert pod["spec"]["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
        for volume in pod["spec"]["volumes"]:
            if volume["name"] == "data":
                assert volume.get("persistentVolumeClaim", {"readOnly": True})["readOnly"]


def check_mounts(name: str, objects: list[Object]) -> None:
    """Every mount has its volume, every volume its mount; all but homes, parts and /tmp are read-only."""
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert sorted(mounts) == sorted(volume["name"] for volume in pod["spec"]["volumes"])
        assert {mount["mountPath"] for mount in mounts.values() if not mount.get("readOnly")} <= WRITABLE


def check_secrets(name: str, objects: list[Object]) -> None:
    """A password, key or token is in a Secret; the chart draws one, the admin key."""
    secrets = of(objects, "Secret")
    assert len(secrets) <= 1
    for each in secrets:
        (drawn,) = each["data"].values()
        assert len(drawn) >= 56 and "stringData" not in each
        assert drawn not in str([other for other in objects if other is not each])
    for container in containers(objects):
        for variable in container.get("env", []):
            path = variable.get("value", "").startswith("/secrets/")
            secret = re.search(r"KEY(?!S)|PASSWORD|TOKEN|SECRET|CREDENTIAL", variable["name"]) and not path
            assert not secret or "secretKeyRef" in variable["valueFrom"], variable["name"]
    assert [text for text in leaves(objects) if re.search(r"://[^/@]*:[^/@]+@", text)] == []


def check_references(name: str, objects: list[Object]) -> None:
    """Every Secret, ConfigMap, claim and account is made by the chart or named in the values, and none is made for nothing."""
    theirs = set(leaves(RENDERED[name])) | {"default"}
    used: dict[str, set[str]] = {kind: set() for kind in ("Secret", "ConfigMap", "PersistentVolumeClaim", "ServiceAccount")}
    for pod in pods(objects):
        spec = pod["spec"]
        used["ServiceAccount"].add(spec.get("serviceAccountName", "default"))
        used["Secret"] |= {each["name"] for each in spec.get("imagePullSecrets", [])}
        for volume in spec["volumes"]:
            used["Secret"] |= {volume["secret"]["secretName"]} if "secret" in volume else set()
            used["ConfigMap"] |= {volume["configMap"]["name"]} if "configMap" in volume else set()
            claim = volume.get("persistentVolumeClaim")
            used["PersistentVolumeClaim"] |= {claim["claimName"]} if claim else set()
        for container in spec["containers"]:
            for variable in container.get("env", []):
                used["Secret"] |= {variable["valueFrom"]["secretKeyRef"]["name"]} if "valueFrom" in variable else set()
    for kind, names in used.items():
        made = set(named(objects, kind))
        assert names <= made | theirs, kind
        assert made <= names, kind


def check_selectors(name: str, objects: list[Object]) -> None:
    """Deployments find their own pods and no others; Services, policies, budgets and spreads find some."""
    labels = [pod["metadata"]["labels"] for pod in pods(objects)]
    for deployment in of(objects, "Deployment"):
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert [each for each in labels if picked(selector, each)] == [deployment["spec"]["template"]["metadata"]["labels"]]
    for selector in selectors(objects):
        assert any(picked(selector, each) for each in labels) or selector == {"app": "db"}, selector


def selectors(objects: list[Object]) -> list[dict[str, str]]:
    """By what everything but Deployments finds pods."""
    found = [each["spec"]["selector"] for each in of(objects, "Service")]
    found += [each["spec"]["selector"]["matchLabels"] for each in of(objects, "PodDisruptionBudget")]
    found += [each["spec"]["podSelector"]["matchLabels"] for each in of(objects, "NetworkPolicy")]
    for pod in pods(objects):
        found += [each["labelSelector"]["matchLabels"] for each in pod["spec"].get("topologySpreadConstraints", [])]
    return found


def check_ports(name: str, objects: list[Object]) -> None:
    """A Service's ports are a container's, an ingress' and a monitor's are a Service's, probes' are the container's own."""
    ports = {port["name"]: port["containerPort"] for each in containers(objects) for port in each.get("ports", [])}
    services = named(objects, "Service")
    for service in services.values():
        assert [port["name"] for port in service["spec"]["ports"] if port["targetPort"] not in ports] == []
        outside = {"nodePort", "externalTrafficPolicy", "loadBalancerSourceRanges"} & {
            *service["spec"],
            *service["spec"]["ports"][0],
        }
        assert service["spec"]["type"] != "ClusterIP" or not outside  # an API server would refuse it
    for ingress in of(objects, "Ingress"):
        for path in ingress["spec"]["rules"][0]["http"]["paths"]:
            to = path["backend"]["service"]
            assert to["port"]["name"] in [port["name"] for port in services[to["name"]]["spec"]["ports"]]
    for monitor in of(objects, "ServiceMonitor"):
        selector, (endpoint,) = monitor["spec"]["selector"]["matchLabels"], monitor["spec"]["endpoints"]
        (service,) = (each for each in services.values() if picked(selector, each["metadata"]["labels"]))
        assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    for container in containers(objects):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container.get(probe, {}).get("httpGet", {"port": next(iter(ports), "")})["port"] in [*ports, ""]


def check_names(name: str, objects: list[Object]) -> None:
    """No two objects of a kind have one name, all are in the release's namespace, and names and labels are not too long."""
    keys = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(keys) == len(set(keys))
    for each in objects:
        facts = each["metadata"]
        assert facts["namespace"] == NAMESPACE
        assert len(facts["name"]) <= (63 if each["kind"] == "Service" else 253)
        assert all(re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value) for value in facts["labels"].values())


def test_long_names_are_cut() -> None:
    """A release with the longest name that Helm takes has Services whose names are short enough."""
    made = render(plain() | {"agents": [agent("a" * 40)]}, release="r" * 53)
    assert all(len(name) <= 63 for name in named(made, "Service"))
    assert all(len(value) <= 63 for each in made for value in each["metadata"]["labels"].values())


@pytest.mark.parametrize("release", ["7up", "a.b"])
def test_names_that_no_service_can_have_are_refused(release: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Helm takes such a release; Services begin with a letter and have no dot. Another name may be given."""
    import helm_python

    with pytest.raises(helm_python.HelmError, match=r"No Service can be called .*set fullnameOverride"):
        render(plain(), release=release)
    capfd.readouterr()
    assert render(plain() | {"fullnameOverride": "federation"}, release=release)


def check_images(name: str, objects: list[Object]) -> None:
    """Unless the values say otherwise, images are of the chart's version; agents with GPUs take those with CUDA."""
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        repository, _, tag = container["image"].rpartition(":")
        assert repository in set(leaves(RENDERED[name])), "a registry is always named"
        gpu = "nvidia.com/gpu" in container["resources"]["limits"]
        assert tag == (f"{__version__}-cuda" if gpu else __version__) or tag in set(leaves(RENDERED[name]))
        assert not gpu or "--device=cuda" in container["args"]


def check_settings_of_coordinators(name: str, objects: list[Object]) -> None:
    """Every variable is a setting, its value is one that the setting takes, and the whole is what a coordinator starts with."""
    for container in containers(objects):
        given = {each["name"]: each.get("value", "postgresql://from@a/secret") for each in container.get("env", [])}
        if container["name"] == "coordinator":
            ours = {key.removeprefix("TIDELINE_").lower() for key in given if key not in ELSEWHERE}
            assert ours <= set(CoordinatorSettings.__dataclass_fields__)
            with pytest.MonkeyPatch.context() as patch:
                for key in given.keys() - ELSEWHERE:
                    patch.setenv(key, given[key])
                settings = coordinator_settings({})
            check_settings(settings)
            assert settings.advertised and settings.host == "0.0.0.0"


def test_every_setting_can_be_set() -> None:
    """Each setting of a coordinator is the chart's own, or one of coordinator.settings; large numbers stay as they are."""
    listed = loaded().schema["properties"]["coordinator"]["properties"]["settings"]["properties"]
    theirs = {re.sub(r"([A-Z])", r"_\1", each).lower() for each in listed}
    own = {*OWN_SETTINGS.split()}
    assert theirs | own == set(CoordinatorSettings.__dataclass_fields__) and not theirs & own
    env = containers(made_of("every port and every knob"))
    values = {each["name"]: each["value"] for container in env for each in container["env"] if "value" in each}
    assert values["TIDELINE_RATE"] == "2000000" and values["TIDELINE_LEASE"] == "7.5" and values["TIDELINE_RATE_ENROL"] == "0"
    assert values["TIDELINE_BULK"] == "7801" and values["TIDELINE_SIGNING_KEY"] == "/secrets/signing/signing.key"
    assert values["TIDELINE_NETWORKS"] == "ours:small,ours:NETWORKS"
    assert (values["TIDELINE_SMTP_FROM"], values["TIDELINE_NOTIFY_PRIVATE"]) == ("tideline@example.org", "10.0.0.0/8,::1")
    secret = {"name": "TIDELINE_SMTP_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "mail", "key": "password"}}}
    assert secret in [each for container in env for each in container["env"]]


def check_options_of_agents(name: str, objects: list[Object]) -> None:
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        if container["name"] == "agent":
            first, *rest = container["args"]
            params = COMMAND.commands[first].make_context(first, rest).params
            paths = ("data", "home", "token_file", "policy", "ca", "tls_cert", "tls_key")
            places = [str(params[key]) for key in paths if params[key]]
            mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert [place for place in places if not place.startswith(tuple(mounted))] == []
            assert params["name"] == pod["metadata"]["labels"]["tideline/client"]


def test_every_option_of_an_agent_can_be_given() -> None:
    """But for a token in the open, new keys at each start, the owner's page, which is for one machine, and the log's form, which
    the image sets.
    """
    others = {"token", "rotate", "page", "page_host", "log_json", "help"}
    options = {param.name for param in COMMAND.commands["agent"].params} - others
    args = {arg.partition("=")[0] for arg in containers(made_of("agent with everything"))[0]["args"]}
    told = {arg.removeprefix("--").replace("-", "_") for arg in args if arg.startswith("--")}
    assert told | {"insecure"} == options


def test_one_agent_a_home() -> None:
    """Never two processes on a home: one replica, stopped before the next starts, each on a claim of its own."""
    made = [each for each in of(made_of("sixteen agents"), "Deployment") if each["metadata"]["name"].startswith("tideline-agent")]
    assert [(each["spec"]["replicas"], each["spec"]["strategy"]["type"]) for each in made] == [(1, "Recreate")] * 16
    homes = [deployment["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] for deployment in made]
    assert len(set(homes)) == 16


def test_what_cannot_be_lost_is_kept() -> None:
    made = render(RENDERED["many replicas"] | {"agents": [agent()]})
    for each in (*of(made, "PersistentVolumeClaim"), *of(made, "Secret")):
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert sorted(named(made, "PersistentVolumeClaim")) == ["tideline-agent-hospital-a", "tideline-parts"]


@pytest.mark.nightly(job="services")
def test_the_admin_key_is_drawn_once() -> None:
    """Each installation draws its own; an upgrade takes the one that the cluster has, and one without the key gets it."""
    with cluster({}) as empty:
        first, second = (key_of(rendered_in(empty, plain())) for _ in range(2))
    assert first != second and len(b64decode(first)) == 43
    for kept, same in (({"admin.key": first}, True), ({"other": first}, False)):
        with cluster({"tideline-admin": kept}) as config:
            assert (key_of(rendered_in(config, plain())) == first) is same


def key_of(objects: list[Object]) -> str:
    """The admin key, as it stands in its Secret."""
    (secret,) = of(objects, "Secret")
    return str(secret["data"]["admin.key"])


def test_budgets_are_for_replicas() -> None:
    """A single coordinator would keep its machine from being emptied; of several, one may go."""
    assert of(render(plain()), "PodDisruptionBudget") == []
    (budget,) = of(made_of("many replicas"), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


def test_ports_with_tls_are_probed_with_tls() -> None:
    """By the kubelet, whether it is alive apart from whether it is ready; and by whoever gathers metrics."""
    for name, scheme in (("coordinator with TLS", "HTTPS"), ("trial", "HTTP")):
        (container,) = containers(made_of(name))
        assert {container[f"{each}Probe"]["httpGet"]["scheme"] for each in ("startup", "readiness", "liveness")} == {scheme}
        assert container["livenessProbe"]["httpGet"]["path"] != container["readinessProbe"]["httpGet"]["path"] == "/ready"
    (monitor,) = of(made_of("every port and every knob"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https" and endpoint["authorization"]["credentials"] == {"name": "viewer", "key": "key"}


def test_the_alerts_know_the_job() -> None:
    """What Prometheus' operator scrapes bears the name that the alerts ask for."""
    (monitor,) = of(made_of("every port and every knob"), "ServiceMonitor")
    jobs = {each["replacement"] for each in monitor["spec"]["endpoints"][0]["relabelings"] if each["targetLabel"] == "job"}
    alerts = (ROOT / "deploy" / "metrics" / "alerts.yml").read_text(encoding="utf-8")
    assert jobs == set(re.findall(r'up\{job="([^"]+)"\}', alerts))


@pytest.mark.parametrize(
    ("values", "room"),
    [
        ({}, "1Gi"),
        (POSTGRES | SHARED | SCRATCH, "20Gi"),
        (POSTGRES | SHARED | {"home": {"kind": "scratch", "size": "7Gi"}}, "7Gi"),
        (POSTGRES | SHARED | SCRATCH | {"resources": {"requests": {"ephemeral-storage": "3Gi"}}}, "3Gi"),
        (POSTGRES | SHARED | SCRATCH | {"resources": {"limits": {"ephemeral-storage": "30Gi"}}}, None),
    ],
)
def test_a_scratch_home_is_asked_room_for(values: Object, room: str | None) -> None:
    (container,) = containers(render(plain(**values)))
    assert container["resources"]["requests"].get("ephemeral-storage") == room
    assert {"cpu", "memory"} < set(container["resources"]["requests"]) | {"ephemeral-storage"}


def test_room_is_counted_in_every_unit(subtests: pytest.Subtests) -> None:
    """A scratch home of 13 GB has room for a cache of 10; one of 17 needs more."""
    import helm_python

    for size in ("13Gi", "13G", "13000M", "13000000k", "12.2Gi", "13000000000", 13000000000, "0.02Ti", "12400Mi"):
        with subtests.test(size):
            home = {"kind": "scratch", "size": size}
            assert render(plain(**POSTGRES | S3, home=home))
            with pytest.raises(helm_python.HelmError, match="no room for a cache"):
                render(plain(**POSTGRES | S3, home=home, settings={"partsCache": 17}))


def test_the_start_is_given_time() -> None:
    """Longer than a coordinator waits for its database, which would otherwise be cut short and begun again."""
    (container,) = containers(render(plain()))
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > CoordinatorSettings.__dataclass_fields__["wait"].default


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    import helm_python

    values, words = REFUSED[name]
    with pytest.raises(helm_python.HelmError, match=words):
        render(IMAGES | values)
    capfd.readouterr()  # Helm says it on stderr as well


CHECKS = (check_schemas, check_rights, check_environment, check_permissions_of_homes, check_mounts, check_secrets)
CHECKS += (check_references, check_selectors, check_ports, check_names, check_images)
CHECKS += (check_settings_of_coordinators, check_options_of_agents)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_installation(check: Callable[[str, list[Object]], None], subtests: pytest.Subtests) -> None:
    for name in RENDERED:
        with subtests.test(name):
            check(name, made_of(name))
