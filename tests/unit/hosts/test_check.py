"""What a check says of a host's frameworks: one of them is enough for runs, and none says how to get each."""

from app.hosts.book import HostEntry
from app.hosts.check import HostCheck, check_lines, no_framework
from app.hosts.messages import HostFramework, HostHello
from tests.unit.viewmodels.events import CPU_INVENTORY

ENTRY = HostEntry(name="lab", address="ssh://lab")


def hello(**versions: str | None) -> HostHello:
    return HostHello(
        pid=1,
        t_ns=1,
        utc_ns=1,
        environment={},
        python=("3.11.7", "/usr/bin/python3"),
        user="me",
        home="/home/me",
        home_free_bytes=1 << 30,
        frameworks=tuple(
            HostFramework(name=name, interpreter="/usr/bin/python3", version=version)
            for name, version in versions.items()
        ),
    )


def test_each_framework_has_a_line_with_its_version_or_the_packages_that_have_it() -> None:
    facts = hello(tensorflow=None, pytorch="2.13.0")
    lines = dict(check_lines(HostCheck(entry=ENTRY, inventory=CPU_INVENTORY, hello=facts)))
    assert lines["PyTorch"] == "2.13.0  /usr/bin/python3"
    sentence = "/usr/bin/python3 has no TensorFlow on lab; use packages=tensorflow for runs there."
    assert lines["TensorFlow"] == f"none: {sentence}"


def test_a_host_without_any_says_how_to_get_each() -> None:
    problem = no_framework(ENTRY, hello(tensorflow=None, pytorch=None, jax=None).frameworks)
    assert problem == (
        "/usr/bin/python3 has no TensorFlow and no PyTorch and no JAX on lab; use packages=tensorflow or "
        "packages=torch or packages=jax for runs there."
    )
