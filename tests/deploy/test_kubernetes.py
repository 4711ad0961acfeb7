"""The manifests, and what the chart makes: valid, without rights that they need not, and with times that fit."""

import subprocess

import pytest
import yaml
from kit import CHART, MANIFESTS, documents, needs, pods, program, run

from partbox import __version__
from partbox.duration import seconds
from partbox.settings import Settings, load

OLDEST, NEWEST = "1.25", ""  # what the chart asks for, and whatever the validator knows
FOREIGN = "ServiceMonitor"  # of an operator: no schema of Kubernetes

helm = needs("helm", "https://helm.sh")
PLAIN = [each for path in MANIFESTS for each in documents(path.read_text())]


def rendered(*options: str) -> list:
    # A helm that was built without its makefile takes itself for one of an older Kubernetes.
    return documents(run("helm", "template", "shop", CHART, "--kube-version", OLDEST, *options))


@pytest.fixture(params=["plain", pytest.param("chart", marks=helm)])
def manifests(request):
    return PLAIN if request.param == "plain" else rendered("--set", "metrics.serviceMonitor.enabled=true")


def test_every_field_of_the_manifests_is_known_to_kubernetes(manifests):
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, of the extra dev")
    for each in manifests:
        if each["kind"] != FOREIGN:
            for version in (OLDEST, validator.latest_version()):
                validator.validate(each, version, strict=True)


def test_the_manifests_have_every_kind_of_object_that_a_deployment_needs(manifests):
    assert {"Deployment", "Job", "PodDisruptionBudget", "Service", FOREIGN} <= {each["kind"] for each in manifests}


def test_no_pod_has_rights_that_it_does_not_need(manifests):
    for pod in pods(manifests):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False, "a Service named partbox would give it variables PARTBOX_…"
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
            assert "cpu" not in container["resources"]["limits"]


def test_a_pod_has_more_time_to_stop_than_its_handlers(manifests):
    (pod,) = (pod for pod in pods(manifests) if "terminationGracePeriodSeconds" in pod)
    assert pod["terminationGracePeriodSeconds"] >= seconds(variables(manifests)["PARTBOX_DRAIN_TIMEOUT"]) + 5


def variables(manifests) -> dict[str, str]:
    """All that the manifests set by value."""
    found = {}
    for each in manifests:
        found |= each["data"] if each["kind"] == "ConfigMap" else each.get("stringData", {})
    for pod in pods(manifests):
        for container in pod["containers"]:
            found |= {each["name"]: each.get("value", "one") for each in container.get("env", ())}
    return found


def test_every_variable_of_the_manifests_is_a_valid_setting(manifests, monkeypatch):
    given = variables(manifests)
    for name, value in given.items():
        monkeypatch.setenv(name, "dbname=shop" if name == "PARTBOX_DSN" else value)
    loaded = load()
    assert {origin for origin in loaded.origins.values() if origin.startswith("PARTBOX_")} == {*given}
    assert (loaded.processes, loaded.http) == (2, "0.0.0.0:9464")


def test_selectors_match_the_workers_and_not_the_job(manifests):
    (worker,) = (each["spec"]["template"]["metadata"]["labels"] for each in manifests if each["kind"] == "Deployment")
    (job,) = (each["spec"]["template"]["metadata"]["labels"] for each in manifests if each["kind"] == "Job")
    for each in manifests:
        if each["kind"] in ("Service", "PodDisruptionBudget", "Deployment"):
            selector = each["spec"]["selector"]
            wanted = selector.get("matchLabels", selector).items()
            assert wanted <= worker.items(), each["kind"]
            assert not wanted <= job.items(), each["kind"]


def test_the_service_monitor_matches_the_service_and_names_the_job_of_the_alerts(manifests):
    (service,) = (each for each in manifests if each["kind"] == "Service")
    (monitor,) = (each for each in manifests if each["kind"] == FOREIGN)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert endpoint["relabelings"][0]["replacement"].startswith("partbox")


@helm
def test_helm_lint_finds_no_fault_in_the_chart():
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", CHART)


@helm
def test_the_values_of_a_chart_become_settings(tmp_path):
    values = tmp_path / "values.yaml"
    given = {"max_payload": 2_000_000, "pooler": True, "lease": "10s", "schema": "other", "processes": 2}
    values.write_text(yaml.safe_dump({"settings": given, "drainTimeoutSeconds": 60, "args": ["relay"]}))
    made = rendered("--values", str(values))
    said = variables(made)
    assert said["PARTBOX_MAX_PAYLOAD"] == "2000000"
    assert (said["PARTBOX_POOLER"], said["PARTBOX_LEASE"], said["PARTBOX_SCHEMA"]) == ("true", "10s", "other")
    assert [pod["containers"][0]["args"] for pod in pods(made)] == [["relay"], ["init"]]
    assert [pod.get("terminationGracePeriodSeconds") for pod in pods(made)] == [70, None]


@helm
@pytest.mark.parametrize("kind", ["secret", "configMap"])
def test_an_authority_and_further_volumes_are_mounted_in_workers_and_migration(tmp_path, kind):
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, of the extra dev")
    values = tmp_path / "values.yaml"
    volumes = [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]
    mounts = [{"name": "models", "mountPath": "/models", "readOnly": True}]
    given = {"ca": {kind: "db-ca", "key": "root.pem"}, "extraVolumes": volumes, "extraVolumeMounts": mounts}
    values.write_text(yaml.safe_dump(given))
    made = rendered("--values", str(values))
    for each in made:
        validator.validate(each, validator.latest_version(), strict=True)
    found = [*pods(made)]
    assert len(found) == 2
    for pod in found:
        by_name = {each["name"]: each for each in pod["volumes"]}
        source = {"secret": {"secretName": "db-ca"}} if kind == "secret" else {"configMap": {"name": "db-ca"}}
        assert by_name["ca"] == {"name": "ca", **source}
        assert by_name["models"] == volumes[0]
        (container,) = pod["containers"]
        mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert mounted == {"tmp": "/tmp", "ca": "/etc/partbox/ca", "models": "/models"}
        said = {each["name"]: each.get("value") for each in container["env"]}
        assert (said["PGSSLROOTCERT"], said["PGSSLMODE"]) == ("/etc/partbox/ca/root.pem", "verify-full")


@helm
def test_without_an_authority_nothing_says_how_to_verify_the_server():
    for pod in pods(rendered()):
        assert not [each for each in pod["containers"][0]["env"] if each["name"].startswith("PG")]
        assert [each["name"] for each in pod["volumes"]] == ["tmp"]


@helm
@pytest.mark.parametrize(
    "wrong",
    [
        "ca.secret=a,ca.configMap=b",
        "ca.sslmode=disable",
        "extraVolumes[0].emptyDir.medium=Memory",
        "replica=3",
        "settings.dsn=postgresql://shop:secret@db/shop",
        "settings.http=:1",
        "metrics.serviceMonitor.job=shop",
    ],
)
def test_a_wrong_value_of_the_chart_is_refused(wrong):
    command = [program("helm"), "template", "shop", CHART, "--set", wrong]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr


def test_the_values_of_the_chart_fit_their_schema_and_its_version_is_that_of_partbox():
    import json

    from jsonschema import Draft7Validator

    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    Draft7Validator.check_schema(schema)
    assert not [*Draft7Validator(schema).iter_errors(values)]
    assert {*values} == {*schema["properties"]} - {"global"}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert Settings().drain_timeout == values["drainTimeoutSeconds"]
