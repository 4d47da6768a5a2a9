"""How many examples a property gets: the profile's, or a share of them where each takes long."""

from hypothesis import HealthCheck, settings


def one_in(share: int) -> settings:
    """Return settings with one in so many of the profile's examples; each may take as long as it takes."""
    examples = max(1, settings.default.max_examples // share) if settings.default else 1
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
